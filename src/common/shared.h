/* SPDX-License-Identifier: Apache-2.0
 * shared.h - how to declare functions that are compiled both as C and as CUDA. */
#ifndef DW_SHARED_H
#define DW_SHARED_H

#ifdef __CUDACC__
#define DW_INLINE static __device__ __forceinline__
#else
#define DW_INLINE static inline
#endif

#endif
