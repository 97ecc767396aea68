/* SPDX-License-Identifier: Apache-2.0
 * emulated.h - runs the kernels of cuda/ on the CPU with shim.h, for tests in C. */
#ifndef DW_EMULATED_H
#define DW_EMULATED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a kernel (cuda/message.h) over an array of parts, and returns 1 when all blocks have ended.
 * Returns 0 if there is no kernel of that name. */
int dw_shim_launch(const char *kernel, const void *parts, uint32_t n, uint64_t grid);

/* From now on, blocks run in reverse order, and so do threads between two barriers; or again in the
 * usual order. */
void dw_shim_turn_round(int is_backwards);

#ifdef __cplusplus
}
#endif
#endif
