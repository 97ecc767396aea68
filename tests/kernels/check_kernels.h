/* SPDX-License-Identifier: Apache-2.0
 * check_kernels.h - the groups of kernel tests; each has a file of its own.
 *
 * Each returns how many of its tests failed. Kernels for microscaling have a program of their own,
 * check_mx.c. */
#ifndef DW_TEST_CHECK_KERNELS_H
#define DW_TEST_CHECK_KERNELS_H

int check_ladder(char *best); /* best: the table that must be chosen here; NULL: any */
int check_runs(void);
int check_scales(void);
int check_columns(void);
int check_floats(void);
int check_rotations(void);
int check_bytes(void);
int check_collected(void);
int check_compacted(void);
int check_frames(void);

#endif
