/* SPDX-License-Identifier: Apache-2.0
 * emulated.h - runs the kernels of cuda/ on the CPU by shim.h, for tests in C. */
#ifndef DW_EMULATED_H
#define DW_EMULATED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs a kernel (cuda/message.h) over an array of parts, and returns when all blocks have ended. 0:
 * there is no kernel of that name. */
int dw_shim_launch(const char *kernel, const void *parts, uint32_t n, uint64_t grid);

/* Blocks, and the threads between two barriers, from the last to the first from now on; or forwards
 * again. */
void dw_shim_turn_round(int is_backwards);

#ifdef __cplusplus
}
#endif
#endif
