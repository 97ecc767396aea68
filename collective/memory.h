/* SPDX-License-Identifier: Apache-2.0
 * memory.h - memory of groups: from the allocator of the config, or from the default one. All
 * memory is aligned to 64 bytes. Who gives a block back states its size. */
#ifndef DW_GROUP_MEMORY_H
#define DW_GROUP_MEMORY_H

#include <stddef.h>

#include "deltawire/deltawire.h"

/* Returns *chosen, or the default allocator if it has no functions. */
dw_allocator dw_group_allocator(const dw_allocator *chosen);
void *dw_group_memory_take(const dw_allocator *allocator, size_t bytes); /* NULL: none */
void *dw_group_memory_zeroed(const dw_allocator *allocator, size_t bytes);
void dw_group_memory_give(const dw_allocator *allocator, void *memory, size_t bytes);

#endif
