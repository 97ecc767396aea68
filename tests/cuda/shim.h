/* SPDX-License-Identifier: Apache-2.0
 * shim.h - implements on a CPU the part of CUDA that the kernels use: blocks run one after another,
 * with a fiber per thread.
 *
 * A fiber runs until it reaches a barrier or an exchange between lanes; when all fibers of the
 * block, or of the warp, have reached it, they continue. So all threads of a block must reach every
 * barrier, and all of a warp every exchange, in the same order; otherwise the program ends with a
 * message. The order in which fibers, warps and blocks run can be reversed, to find results that
 * depend on it. Races between two such places and reordering by the memory model are not detected
 * here, but by the tools on a GPU. */
#ifndef DW_SHIM_H
#define DW_SHIM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__      static
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct shim_index {
    unsigned x;
};
extern shim_index threadIdx, blockIdx;

/* Waits until all threads of the block have called it; `what` names the place in messages. */
void shim_meet(const char *what);

/* Publishes a word of each thread. All threads may read the words until the next exchange but
 * one. */
const uint32_t *shim_exchange(uint32_t mine);

/* Waits as shim_meet does, and returns whether any thread of the block has passed true. */
int shim_any(bool mine);

#define __syncthreads()        shim_meet("__syncthreads")
#define __syncthreads_or(mine) shim_any((mine) != 0)
#define __threadfence()        ((void)0)
#define __threadfence_system() ((void)0)

struct uint4 {
    unsigned x, y, z, w;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}

/* Misaligned vector accesses are errors on a GPU: UBSan finds them here. */
template <typename Type> static inline Type __ldcs(const Type *from)
{
    return *from;
}
template <typename Type> static inline Type __ldcg(const Type *from)
{
    return *from;
}
template <typename Type> static inline void __stcs(Type *to, Type value)
{
    *to = value;
}

/* The NaN that a GPU makes, in place of that of this CPU. */
static inline float shim_made_by_gpu(float value)
{
    uint32_t bits, nan = 0x7fffffffu;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) memcpy(&value, &nan, sizeof value);
    return value;
}
#define DW_MADE_BY_GPU(value) shim_made_by_gpu(value)

static inline unsigned max(unsigned a, unsigned b)
{
    return a > b ? a : b;
}
static inline int max(int a, int b)
{
    return a > b ? a : b;
}
static inline int min(int a, int b)
{
    return a < b ? a : b;
}
static inline uint64_t __umul64hi(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)a * b >> 64);
}
static inline int __popc(unsigned value)
{
    return __builtin_popcount(value);
}
static inline int __clz(int value)
{
    return value ? __builtin_clz((unsigned)value) : 32;
}

template <typename Type> static inline Type shim_fetch_add(Type *to, Type value)
{
    Type before = *to;
    *to += value;
    return before;
}
static inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value)
{
    return shim_fetch_add(to, value);
}
static inline unsigned atomicMax(unsigned *to, unsigned value)
{
    unsigned before = *to;
    *to = max(before, value);
    return before;
}
static inline unsigned long long atomicMax(unsigned long long *to, unsigned long long value)
{
    unsigned long long before = *to;
    *to = before < value ? value : before;
    return before;
}
static inline unsigned atomicMin(unsigned *to, unsigned value)
{
    unsigned before = *to;
    *to = before < value ? before : value;
    return before;
}
static inline unsigned atomicAdd(unsigned *to, unsigned value)
{
    return shim_fetch_add(to, value);
}
static inline unsigned atomicOr(unsigned *to, unsigned value)
{
    unsigned before = *to;
    *to |= value;
    return before;
}
static inline unsigned long long atomicExch(unsigned long long *to, unsigned long long value)
{
    unsigned long long before = *to;
    *to = value;
    return before;
}

static inline unsigned __shfl_xor_sync(unsigned, unsigned mine, int mask)
{
    return shim_exchange(mine)[threadIdx.x ^ (unsigned)mask];
}

static inline unsigned __shfl_sync(unsigned, unsigned mine, int lane)
{
    return shim_exchange(mine)[threadIdx.x / 32 * 32 + (unsigned)lane];
}

static inline unsigned __shfl_up_sync(unsigned, unsigned mine, unsigned apart)
{
    unsigned lane = threadIdx.x % 32;
    return shim_exchange(mine)[lane < apart ? threadIdx.x : threadIdx.x - apart];
}

static inline unsigned __ballot_sync(unsigned, bool mine)
{
    const uint32_t *all = shim_exchange(mine) + threadIdx.x / 32 * 32;
    unsigned mask = 0;
    for (int lane = 0; lane < 32; lane++) mask |= all[lane] << lane;
    return mask;
}

static inline unsigned __reduce_add_sync(unsigned, unsigned mine)
{
    const uint32_t *all = shim_exchange(mine) + threadIdx.x / 32 * 32;
    unsigned sum = 0;
    for (int lane = 0; lane < 32; lane++) sum += all[lane];
    return sum;
}

#endif
