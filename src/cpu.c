/* SPDX-License-Identifier: Apache-2.0
 * cpu.c - the processor's floating-point mode. */
#include "cpu.h"

#if defined(__SSE__) || defined(__x86_64__)
#include <xmmintrin.h>

/* All exceptions masked, round to nearest even, neither flush-to-zero nor denormals-are-zero. */
enum { EXACT_MXCSR = 0x1f80 };

dw_cpu_mode dw_cpu_enter_exact(void)
{
    dw_cpu_mode mode = {_mm_getcsr()};
    if (mode.saved != EXACT_MXCSR) _mm_setcsr(EXACT_MXCSR);
    return mode;
}

/* The exception flags that our arithmetic raised are not the caller's business either. */
void dw_cpu_leave_exact(dw_cpu_mode mode)
{
    _mm_setcsr((unsigned)mode.saved);
}

#elif defined(__aarch64__)

dw_cpu_mode dw_cpu_enter_exact(void)
{
    dw_cpu_mode mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode.saved));
    if (mode.saved != 0) __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return mode;
}

void dw_cpu_leave_exact(dw_cpu_mode mode)
{
    if (mode.saved != 0) __asm__ volatile("msr fpcr, %0" : : "r"(mode.saved));
}

#else
#include <fenv.h>

/* No way to name a flush mode here; the rounding mode can be set everywhere. */
dw_cpu_mode dw_cpu_enter_exact(void)
{
    dw_cpu_mode mode = {(uint64_t)fegetround()};
    fesetround(FE_TONEAREST);
    return mode;
}

void dw_cpu_leave_exact(dw_cpu_mode mode)
{
    fesetround((int)mode.saved);
}
#endif
