/* SPDX-License-Identifier: Apache-2.0
 * cpu.h - the processor: its instruction sets and its floating-point mode.
 *
 * The format's arithmetic rounds to nearest even and keeps subnormals (docs/format.md, Exactness),
 * but the host program may have set flush-to-zero, another rounding mode or traps. So every entry
 * point that computes calls dw_cpu_enter_exact first and dw_cpu_leave_exact last, which restores
 * the caller's mode and its exception flags. */
#ifndef DW_CPU_H
#define DW_CPU_H

#include <stdint.h>

#if defined(__SSE__) || defined(__x86_64__) || defined(__aarch64__)
typedef struct dw_cpu_mode {
    uint64_t saved; /* MXCSR; on Arm FPCR, with FPSR in the upper half */
} dw_cpu_mode;
#else
#include <fenv.h>

typedef struct dw_cpu_mode {
    fenv_t saved;
} dw_cpu_mode;
#endif

dw_cpu_mode dw_cpu_enter_exact(void);
void dw_cpu_leave_exact(dw_cpu_mode mode);

/* Returns the instruction sets that both the processor and the operating system support, as a set
 * of these bits. (Where the operating system does not save the wide registers, their contents are
 * lost at a thread switch.) The function asks the processor at every call. */
enum {
    DW_CPU_AVX2 = 1,   /* with F16C and FMA */
    DW_CPU_AVX512 = 2, /* F, BW, VL and DQ */
    /* Advanced SIMD. The calling conventions of 64-bit Arm require it, so it is always there. */
    DW_CPU_NEON = 4,
    DW_CPU_VBMI2 = 8, /* AVX-512 VBMI2. It is there only with DW_CPU_AVX512 */
    DW_CPU_ALL = 0x7fffffff
};
uint32_t dw_cpu_features(void);

/* The size of the largest cache, as the processor reports it; 0: unknown. Every call asks anew. */
uint64_t dw_cpu_last_cache(void);

/* The smallest result, in bytes, that is better stored past the caches because the last of them, of
 * the given size (0: unknown), would not hold it until it is read: half of that cache. The other
 * half is for what the program uses beside it. Threads that work on one result share that cache, so
 * their number does not matter. */
uint64_t dw_cpu_past_from(uint64_t last_cache);

#endif
