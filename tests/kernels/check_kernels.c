/* SPDX-License-Identifier: Apache-2.0
 * check_kernels.c - compares every table of kernels that this processor can run with the C table,
 * byte by byte.
 *
 * check_kernels [--share N] [--best NAME]
 *   --share N    does only one in N of the random draws, for emulated processors
 *   --best NAME  says which table must be chosen on this processor */
#include "check_kernels.h"

#include "kernel_rig.h"

int main(int argc, char **argv)
{
    char *best = NULL;
    if (!test_can_run()) return 77;
    if (!kernel_rig_read(argc, argv, &best)) return 2;
    return check_ladder(best) + check_runs() + check_scales() + check_columns() + check_floats() +
           check_rotations() + check_bytes() + check_collected() + check_compacted() +
           check_frames();
}
