/* SPDX-License-Identifier: Apache-2.0
 * cpu.h - the processor: its floating-point mode.
 *
 * The format's arithmetic is round to nearest even with subnormals (docs/format.md, Exactness), but a host program may
 * have set flush-to-zero or another rounding: every entry point that computes saves the mode, sets ours, and restores. */
#ifndef DW_CPU_H
#define DW_CPU_H

#include <stdint.h>

typedef struct dw_cpu_mode {
    uint64_t saved;
} dw_cpu_mode;

dw_cpu_mode dw_cpu_enter_exact(void);
void dw_cpu_leave_exact(dw_cpu_mode mode);

#endif
