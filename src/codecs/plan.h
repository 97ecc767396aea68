/* SPDX-License-Identifier: Apache-2.0
 * plan.h - what a config says of tensors of one shape, worked out once and only read after that.
 *
 * dw_params is a config with its defaults filled in, for x of one dtype; dw_plan is how one of its
 * uses (wire/frame.h) writes one sample of a shape; dw_plans is all of it for one shape. An encoder
 * or decoder keeps the last few; who has no object makes one on the stack.
 *
 * Errors: CONFIG, with a sentence that names the option; LIMIT for shapes whose payload passes what
 * a size can hold. State: none. Threads: a dw_plans is read by any. */
#ifndef DW_PLAN_H
#define DW_PLAN_H

#include "codecs/form.h"
#include "wire/frame.h"

/* How one use writes values: the words of the config that matter to its form. */
typedef struct dw_form_params {
    const dw_form *form; /* NULL: the codec has no such use */
    uint32_t bits, group;
    dw_element element; /* of the form mx */
    bool chooses;       /* pieces may be coded as a change or directly */
    dw_dtype dtype;
} dw_form_params;

typedef struct dw_params {
    uint8_t codec; /* its number on the wire */
    bool keeps_prev;
    dw_form_params use[DW_USES];
    dw_dtype prev;  /* 0: none is kept */
    uint32_t audit; /* 0: no state digests */
    bool wants_reply, is_stochastic;
    dw_scale scale; /* encoder only; 0: the best for the entry's bits */
    uint32_t n_parameters;
    /* What both ends must agree on, as a frame has it. */
    uint8_t block[DW_PARAMETERS_MOST * DW_PARAMETER_BYTES];
    uint64_t digest; /* H of the block */
} dw_params;

struct dw_plan {
    const dw_form *form; /* NULL: the codec has no such use */
    dw_form_params params;
    dw_dtype prev;
    uint32_t t, c;
    dw_layout layout;       /* forms quantized and mx; of floats shape, size and stretches */
    uint64_t payload_bytes; /* the size, or, where it varies, the largest one */
    bool size_varies;
    uint64_t chunks;
    uint64_t scratch_bytes;          /* that each chunk needs for the time it is worked on */
    const dw_stage *before, *behind; /* what stands in front of the form, and behind it */
};

typedef struct dw_plans {
    dw_dtype x;
    uint32_t t, c; /* 0: nothing is planned yet */
    dw_params params;
    dw_plan of[DW_USES];
} dw_plans;

/* x: the dtype that "x's own" stands for. why may be NULL. */
dw_status dw_params_resolve(dw_params *params, const dw_config *config, dw_dtype x, dw_why *why);

/* The config whose parameter block this is (step 3 of docs/format.md, 2); false: it is not one that
 * an encoder writes, and *reason says why. */
bool dw_params_read(dw_config *config, uint8_t codec, dw_dtype x, const uint8_t *block,
                    uint32_t n_parameters, const char **reason);

/* UNSUPPORTED, with a sentence: a form that x or prev takes has no kernels on a device. */
dw_status dw_params_on_device(const dw_params *params, dw_why *why);

/* Which option two parameter blocks of valid frames differ in, for people. */
void dw_params_difference(const dw_params *own, uint8_t codec, const uint8_t *block,
                          uint32_t n_parameters, char *text, size_t cap);

dw_status dw_plans_make(dw_plans *plans, const dw_config *config, dw_dtype x, uint32_t t,
                        uint32_t c, dw_why *why);

/* The plans that an encoder or decoder made last, by shape. */
enum { DW_PLANS_KEPT = 4 };
typedef struct dw_plan_cache {
    dw_plans kept[DW_PLANS_KEPT];
    uint32_t oldest;
} dw_plan_cache;

/* NULL: an error, *status. The plans stay until so many others have been asked for. */
const dw_plans *dw_plan_cache_get(dw_plan_cache *cache, const dw_config *config, dw_dtype x,
                                  uint32_t t, uint32_t c, dw_status *status, dw_why *why);

/* Which stretches the state digest of a key's visit goes over (docs/format.md, 4). */
dw_audit dw_audit_of(uint32_t every, dw_key key, uint64_t sequence);

/* What rounding or any other shared randomness of a key's visit begins with: another number for
 * every visit, so that what it adds to one has nothing to do with what it adds to another. */
uint64_t dw_draws_key(uint64_t seed, dw_key key, uint64_t sequence);

/* NULL, or what is wrong with an entry of a frame whose parameters these plans have. */
const char *dw_plans_bad_entry(const dw_plans *plans, const dw_entry *entry);

/* The scale rule of an encoder for entries of so many bits. */
dw_scale dw_params_scale(const dw_params *params, uint32_t bits);

#endif
