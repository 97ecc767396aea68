/* SPDX-License-Identifier: Apache-2.0
 * shared.h - how functions are declared whose text C and CUDA share. */
#ifndef DW_SHARED_H
#define DW_SHARED_H

#ifdef __CUDACC__
#define DW_INLINE static __device__ __forceinline__
#else
#define DW_INLINE static inline
#endif

#endif
