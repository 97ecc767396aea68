/* SPDX-License-Identifier: Apache-2.0
 * projection.h - projections onto a subspace, for methods that send coordinates in place of
 * tensors: the program projects x, sends the coordinates through any codec, and takes them back at
 * the other end. Both ends need the same matrix; the option `project` of their configs compares its
 * digest.
 *
 * | name   | shape     | meaning                                                     | owner      |
 * | matrix | (1, C, R) | its columns should be orthonormal, which is not checked     | caller     |
 * | x, y   | (N, T, C) | any dtype and strides                                       | caller     |
 * | z      | (N, T, R) | the coordinates, f32                                        | caller     |
 *
 *     z = x U,    y = z U^T
 *
 * Sums are made in binary32 in the order of the channels, or of the coordinates: the same bits on
 * every processor. Tensors are in main memory; cuda.h has the same for a GPU. x and z, or z and y,
 * must not overlap. Errors, with nothing
 * written: ARGUMENT, LIMIT; SHAPE where extents differ, with both in *why, which may be NULL.
 * Threads: any number. */
#ifndef DELTAWIRE_PROJECTION_H
#define DELTAWIRE_PROJECTION_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif
typedef struct dw_projection dw_projection;

/* Copies the matrix, 1 <= R <= C, all of it finite. allocator: as in a config; NULL: malloc and
 * free. Errors: also NO_MEMORY; *projection is then NULL. */
DW_API dw_status dw_projection_create(dw_projection **projection, const dw_tensor *matrix,
                                      const dw_allocator *allocator, dw_why *why);

/* Makes a projection onto the subspace of `rank` dimensions that x lies closest to: its principal
 * components without subtraction of the mean, by subspace iteration in a fixed order. Tokens with
 * values that are not finite are left out. Errors: also NO_MEMORY; *projection is then NULL. */
DW_API dw_status dw_projection_fit(dw_projection **projection, const dw_tensor *x, uint32_t rank,
                                   const dw_allocator *allocator, dw_why *why);

/* Frees a projection. NULL is allowed. */
DW_API void dw_projection_destroy(dw_projection *projection);

/* The value for the option `project`: 32 bits of a digest of the matrix and its shape; never 0. */
DW_API uint32_t dw_projection_digest(const dw_projection *projection);

/* The matrix, f32 of shape (1, C, R), to be saved or sent to the other end. It belongs to the
 * projection and must not be written. */
DW_API dw_tensor dw_projection_matrix(const dw_projection *projection);

/* Writes the coordinates of x to z: z = x U. */
DW_API dw_status dw_project(const dw_projection *projection, const dw_tensor *x, const dw_tensor *z,
                            dw_why *why);

/* Writes the tensor with the coordinates z to y: y = z U^T. This is the point of the subspace that
 * lies closest to x, if the columns of U are orthonormal. */
DW_API dw_status dw_unproject(const dw_projection *projection, const dw_tensor *z,
                              const dw_tensor *y, dw_why *why);
#ifdef __cplusplus
}
#endif
#endif
