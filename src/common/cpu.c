/* SPDX-License-Identifier: Apache-2.0
 * cpu.c - detects the processor's instruction sets and sets its floating-point mode. */
#include "common/cpu.h"

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

/* Restores the control bits and the exception flags: the caller must not see the flags that the
 * library's own arithmetic raised. */
void dw_cpu_leave_exact(dw_cpu_mode mode)
{
    _mm_setcsr((unsigned)mode.saved);
}

#elif defined(__aarch64__)

/* FPCR 0 means: no traps, round to nearest even, no flushing of subnormals (FZ, FZ16), NaN operands
 * propagate, half-precision conversions follow IEEE 754. The upper 32 bits of FPCR are reserved and
 * zero, so FPSR is stored there. */
dw_cpu_mode dw_cpu_enter_exact(void)
{
    uint64_t control, status;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("mrs %0, fpsr" : "=r"(status));
    if (control != 0) __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return (dw_cpu_mode){control | status << 32};
}

void dw_cpu_leave_exact(dw_cpu_mode mode)
{
    uint64_t control = mode.saved & 0xffffffff, status = mode.saved >> 32;
    if (control != 0) __asm__ volatile("msr fpcr, %0" : : "r"(control));
    __asm__ volatile("msr fpsr, %0" : : "r"(status));
}

#else

/* C has no portable way to control flush-to-zero. Rounding, traps and flags can be saved and set
 * with <fenv.h>. */
dw_cpu_mode dw_cpu_enter_exact(void)
{
    dw_cpu_mode mode;
    feholdexcept(&mode.saved);
    fesetround(FE_TONEAREST);
    return mode;
}

void dw_cpu_leave_exact(dw_cpu_mode mode)
{
    fesetenv(&mode.saved);
}
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

/* Intel SDM volume 1, 13.2 and 14.3: XCR0 says which registers the operating system saves. Bits 1
 * and 2 stand for xmm and ymm, bits 5 to 7 for AVX-512. */
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low | (uint64_t)high << 32;
}

uint32_t dw_cpu_features(void)
{
    unsigned a, b, c, d, leaf7, more7;
    unsigned need1 = bit_OSXSAVE | bit_AVX | bit_F16C | bit_FMA;
    unsigned need512 = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
    uint64_t ymm = 0x06, zmm = 0xe6;
    uint32_t features = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1) return 0;
    if (!__get_cpuid_count(7, 0, &a, &leaf7, &more7, &d)) return 0;
    uint64_t saved = saved_registers();
    if ((leaf7 & bit_AVX2) && (saved & ymm) == ymm) features |= DW_CPU_AVX2;
    if (features && (leaf7 & need512) == need512 && (saved & zmm) == zmm) features |= DW_CPU_AVX512;
    if ((features & DW_CPU_AVX512) && (more7 & bit_AVX512VBMI2)) features |= DW_CPU_VBMI2;
    return features;
}

/* Intel SDM volume 2, CPUID leaf 4; AMD64 APM volume 3, leaf 8000001Dh: the same layout. */
static uint64_t largest_cache(unsigned leaf)
{
    unsigned a, b, c, d;
    uint64_t largest = 0;
    for (unsigned i = 0; i < 16 && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31); i++) {
        uint64_t ways = (b >> 22) + 1, parts = (b >> 12 & 1023) + 1, line = (b & 4095) + 1,
                 bytes = ways * parts * line * ((uint64_t)c + 1);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

uint64_t dw_cpu_last_cache(void)
{
    uint64_t bytes = largest_cache(4);
    return bytes ? bytes : largest_cache(0x8000001d);
}

#elif defined(__aarch64__) && defined(__ARM_NEON)

uint32_t dw_cpu_features(void)
{
    return DW_CPU_NEON;
}

#else

uint32_t dw_cpu_features(void)
{
    return 0;
}
#endif

#if !defined(__x86_64__) || !defined(__GNUC__)
uint64_t dw_cpu_last_cache(void)
{
    return 0; /* nothing is stored past the caches there */
}
#endif

uint64_t dw_cpu_past_from(uint64_t last_cache)
{
    return (last_cache ? last_cache : UINT64_C(32) << 20) / 2;
}
