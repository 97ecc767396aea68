/* SPDX-License-Identifier: Apache-2.0
 * cpu.h - the processor: its instruction sets and its floating-point mode.
 *
 * The format's arithmetic is round to nearest even with subnormals (docs/format.md, Exactness), but
 * a host program may have set flush-to-zero, another rounding or traps: every entry point that
 * computes saves the mode, sets ours, and restores. The flags that our arithmetic raises (inexact,
 * ...) are not the caller's business either, and are restored with it. */
#ifndef DW_CPU_H
#define DW_CPU_H

#include <stdint.h>

#if defined(__SSE__) || defined(__x86_64__) || defined(__aarch64__)
typedef struct dw_cpu_mode {
    uint64_t saved; /* MXCSR; or FPCR, and FPSR in the upper half */
} dw_cpu_mode;
#else
#include <fenv.h>

typedef struct dw_cpu_mode {
    fenv_t saved;
} dw_cpu_mode;
#endif

dw_cpu_mode dw_cpu_enter_exact(void);
void dw_cpu_leave_exact(dw_cpu_mode mode);

/* Instruction sets that both the processor and the operating system have: without the latter's
 * support the wide registers of one thread would not survive another's turn. Pure; asks the
 * processor anew each time. */
enum {
    DW_CPU_AVX2 = 1,   /* with F16C and FMA */
    DW_CPU_AVX512 = 2, /* F, BW, VL and DQ */
    /* Advanced SIMD; the calling conventions of 64-bit Arm want it, so it is always there. */
    DW_CPU_NEON = 4,
    DW_CPU_ALL = 0x7fffffff
};
uint32_t dw_cpu_features(void);

#endif
