/* SPDX-License-Identifier: Apache-2.0
 * shim.cc - the source of the kernels, compiled for a CPU; fibers run its threads. */
#include "shim.h"

#include "../../cuda/kernels.cu"

#include "emulated.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>
#if defined(__SANITIZE_ADDRESS__)
#define SHIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHIM_ASAN 1
#endif
#endif
#ifdef SHIM_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

shim_index threadIdx, blockIdx;

namespace
{

enum { THREADS = DW_CUDA_THREADS, WARP = 32, STACK_BYTES = 64 << 10 };

typedef void kernel_function(const void *parts, uint32_t n);

/* makecontext gives a fiber its stack when the first block runs. From then on, _setjmp and _longjmp
 * switch between fibers, and the same fibers run all blocks, because that takes no system calls. */
struct fiber {
    ucontext_t context;
    jmp_buf place;
    bool begun;
    const char *at; /* the place where it waits; NULL: its thread of this block has ended */
    void *fake_stack;
    alignas(16) unsigned char stack[STACK_BYTES];
};

/* Where a fiber waits for the others of its warp alone. */
const char *const shim_lanes = "an exchange between lanes";

fiber fibers[THREADS];
ucontext_t beginning;
jmp_buf scheduler;
#ifdef SHIM_ASAN
void *scheduler_fake_stack;
const void *scheduler_stack;
size_t scheduler_stack_bytes;
#endif
uint32_t exchanged[2][THREADS];
bool voted[2][THREADS];
unsigned exchanges[THREADS], votes[THREADS];
bool backwards;

struct launch {
    kernel_function *kernel;
    const void *parts;
    uint32_t n;
} running;

void to_fiber(fiber *f)
{
#ifdef SHIM_ASAN
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, f->stack, STACK_BYTES);
#endif
    if (_setjmp(scheduler) == 0) {
        if (f->begun) _longjmp(f->place, 1);
        f->begun = true;
        swapcontext(&beginning, &f->context);
    }
#ifdef SHIM_ASAN
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, NULL, NULL);
#endif
}

void to_scheduler(fiber *f)
{
#ifdef SHIM_ASAN
    __sanitizer_start_switch_fiber(&f->fake_stack, scheduler_stack, scheduler_stack_bytes);
#endif
    unsigned thread = threadIdx.x;
    if (_setjmp(f->place) == 0) _longjmp(scheduler, 1);
#ifdef SHIM_ASAN
    __sanitizer_finish_switch_fiber(f->fake_stack, &scheduler_stack, &scheduler_stack_bytes);
#endif
    threadIdx.x = thread;
}

void run_thread(void)
{
    fiber *f = &fibers[threadIdx.x];
#ifdef SHIM_ASAN
    __sanitizer_finish_switch_fiber(f->fake_stack, &scheduler_stack, &scheduler_stack_bytes);
#endif
    for (;;) { /* one block after the other */
        running.kernel(running.parts, running.n);
        f->at = NULL;
        to_scheduler(f);
    }
}

/* Gives a fiber its stack, on which run_thread will begin. */
void make_fiber(fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    f->fake_stack = NULL;
    makecontext(&f->context, run_thread, 0);
}

/* Ends the program where two threads wait at different places. */
void check_same(unsigned one, unsigned other)
{
    const char *mine = fibers[other].at, *first = fibers[one].at;
    if (mine == first || (mine && first && !strcmp(mine, first))) return;
    fprintf(stderr, "shim: block %u: thread %u waits at %s, thread %u at %s\n", blockIdx.x, one,
            first ? first : "its end", other, mine ? mine : "its end");
    abort();
}

/* Runs a warp up to a barrier of the block or its end. Exchanges between lanes concern the warp
 * alone, and other warps need not take part in them. */
void run_warp(unsigned from)
{
    do {
        for (unsigned i = 0; i < WARP; i++) {
            threadIdx.x = from + (backwards ? WARP - 1 - i : i);
            to_fiber(&fibers[threadIdx.x]);
        }
        for (unsigned i = 1; i < WARP; i++) check_same(from, from + i);
    } while (fibers[from].at == shim_lanes);
}

void run_block(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        fiber *f = &fibers[i];
        if (!f->begun) make_fiber(f);
        f->at = "start";
        exchanges[i] = votes[i] = 0;
    }
    while (fibers[0].at) {
        for (unsigned i = 0; i < THREADS; i += WARP) run_warp(backwards ? THREADS - WARP - i : i);
        for (unsigned i = WARP; i < THREADS; i += WARP) check_same(0, i);
    }
}

struct named {
    const char *name;
    kernel_function *kernel;
};

#define NAMED(name, part)                                                                          \
    {                                                                                              \
#name, [](const void *parts, uint32_t n) { name((const part *)parts, n); }                 \
    }
#define ENCODER(name) NAMED(name, dw_cuda_encode_part)
#define DECODER(name) NAMED(name, dw_cuda_decode_part)

const named kernels[] = {
    ENCODER(dw_encode_f32_f32),
    ENCODER(dw_encode_f32_f16),
    ENCODER(dw_encode_f32_bf16),
    ENCODER(dw_encode_f16_f32),
    ENCODER(dw_encode_f16_f16),
    ENCODER(dw_encode_f16_bf16),
    ENCODER(dw_encode_bf16_f32),
    ENCODER(dw_encode_bf16_f16),
    ENCODER(dw_encode_bf16_bf16),
    ENCODER(dw_encode_columns),
    ENCODER(dw_encode_mse),
    ENCODER(dw_choose_scales),
    DECODER(dw_decode_f32),
    DECODER(dw_decode_f16),
    DECODER(dw_decode_bf16),
    DECODER(dw_decode_columns),
    DECODER(dw_decode_direct_f32),
    DECODER(dw_decode_direct_f16),
    DECODER(dw_decode_direct_bf16),
    DECODER(dw_decode_direct_columns),
    ENCODER(dw_audit_encode),
    DECODER(dw_audit_decode),
    ENCODER(dw_mx_encode_f32_f32),
    ENCODER(dw_mx_encode_f32_f16),
    ENCODER(dw_mx_encode_f32_bf16),
    ENCODER(dw_mx_encode_f16_f32),
    ENCODER(dw_mx_encode_f16_f16),
    ENCODER(dw_mx_encode_f16_bf16),
    ENCODER(dw_mx_encode_bf16_f32),
    ENCODER(dw_mx_encode_bf16_f16),
    ENCODER(dw_mx_encode_bf16_bf16),
    DECODER(dw_mx_decode_f32),
    DECODER(dw_mx_decode_f16),
    DECODER(dw_mx_decode_bf16),
    DECODER(dw_mx_decode_direct_f32),
    DECODER(dw_mx_decode_direct_f16),
    DECODER(dw_mx_decode_direct_bf16),
    ENCODER(dw_step_measure),
    ENCODER(dw_step_encode_f32_f32),
    ENCODER(dw_step_encode_f32_f16),
    ENCODER(dw_step_encode_f32_bf16),
    ENCODER(dw_step_encode_f16_f32),
    ENCODER(dw_step_encode_f16_f16),
    ENCODER(dw_step_encode_f16_bf16),
    ENCODER(dw_step_encode_bf16_f32),
    ENCODER(dw_step_encode_bf16_f16),
    ENCODER(dw_step_encode_bf16_bf16),
    DECODER(dw_step_decode_f32),
    DECODER(dw_step_decode_f16),
    DECODER(dw_step_decode_bf16),
    DECODER(dw_step_decode_direct_f32),
    DECODER(dw_step_decode_direct_f16),
    DECODER(dw_step_decode_direct_bf16),
    ENCODER(dw_blocks_encode),
    DECODER(dw_blocks_decode),
    ENCODER(dw_join_payloads),
    NAMED(dw_finalize_heads, dw_cuda_head_part),
    ENCODER(dw_floats_encode),
    DECODER(dw_floats_decode),
    ENCODER(dw_choose_scales_rotated),
    ENCODER(dw_step_measure_rotated),
    ENCODER(dw_encode_rotated),
    ENCODER(dw_encode_mse_rotated),
    DECODER(dw_decode_rotated),
    DECODER(dw_decode_direct_rotated),
    ENCODER(dw_mx_encode_rotated),
    DECODER(dw_mx_decode_rotated),
    DECODER(dw_mx_decode_direct_rotated),
    ENCODER(dw_step_encode_rotated),
    DECODER(dw_step_decode_rotated),
    DECODER(dw_step_decode_direct_rotated),
    ENCODER(dw_expand_encode),
    DECODER(dw_expand_decode),
    ENCODER(dw_compact_encode),
    DECODER(dw_compact_decode),
};

} // namespace

void shim_meet(const char *what)
{
    fiber *f = &fibers[threadIdx.x];
    f->at = what;
    to_scheduler(f);
}

const uint32_t *shim_exchange(uint32_t mine)
{
    uint32_t *room = exchanged[exchanges[threadIdx.x]++ % 2];
    room[threadIdx.x] = mine;
    shim_meet(shim_lanes);
    return room;
}

int shim_any(bool mine)
{
    bool *room = voted[votes[threadIdx.x]++ % 2];
    room[threadIdx.x] = mine;
    shim_meet("__syncthreads_or");
    for (int i = 0; i < THREADS; i++)
        if (room[i]) return 1;
    return 0;
}

extern "C" void dw_shim_turn_round(int is_backwards)
{
    backwards = is_backwards;
}

extern "C" int dw_shim_launch(const char *kernel, const void *parts, uint32_t n, uint64_t grid)
{
    for (const named &known : kernels) {
        if (strcmp(known.name, kernel)) continue;
        running = {known.kernel, parts, n};
        for (uint64_t i = 0; i < grid; i++) {
            blockIdx.x = (unsigned)(backwards ? grid - 1 - i : i);
            run_block();
        }
        return 1;
    }
    return 0;
}
