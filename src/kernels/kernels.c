/* SPDX-License-Identifier: Apache-2.0
 * kernels.c - chooses the best table of kernels that this processor can run. */
#include "kernels/kernels.h"

#include <string.h>

#include "common/cpu.h"

/* From the slowest to the fastest. */
static const struct {
    uint32_t needs;
    const dw_kernels *kernels;
} ladder[] = {
    {0, &dw_kernels_c},
#ifdef DW_HAVE_X86_KERNELS
    {DW_CPU_AVX2, &dw_kernels_avx2},
    {DW_CPU_AVX512, &dw_kernels_avx512},
    {DW_CPU_AVX512 | DW_CPU_VBMI2, &dw_kernels_vbmi2},
#endif
#ifdef DW_HAVE_NEON_KERNELS
    {DW_CPU_NEON, &dw_kernels_neon},
#endif
};

enum { STEPS = sizeof ladder / sizeof *ladder };

const dw_kernels *dw_kernels_choose(uint32_t allowed)
{
    const dw_kernels *best = ladder[0].kernels;
    uint32_t features = dw_cpu_features() & allowed;
    for (int i = 0; i < STEPS; i++)
        if ((ladder[i].needs & ~features) == 0) best = ladder[i].kernels;
    return best;
}

const dw_kernels *dw_kernels_find(const char *name)
{
    uint32_t features = dw_cpu_features();
    for (int i = 0; i < STEPS; i++)
        if (strcmp(ladder[i].kernels->name, name) == 0)
            return (ladder[i].needs & ~features) == 0 ? ladder[i].kernels : NULL;
    return NULL;
}
