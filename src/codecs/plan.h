/* SPDX-License-Identifier: Apache-2.0
 * plan.h - plans: everything that depends only on config and shape, computed once.
 *
 * dw_params is a config with its defaults filled in, for one dtype of x. dw_plan says how one use
 * (wire/frame.h) writes one sample of a shape. dw_plans is all of it for one shape. An encoder or
 * decoder keeps the last few; callers without such an object make one on the stack.
 *
 * Errors: CONFIG, with a sentence that names the option; LIMIT for shapes whose payload would be
 * too large. State: none. Threads: any may read a dw_plans. */
#ifndef DW_PLAN_H
#define DW_PLAN_H

#include "codecs/form.h"
#include "wire/frame.h"

/* How one use writes values: the options that matter to its form. */
struct dw_form_params {
    const dw_form *form; /* NULL: the codec has no such use */
    uint32_t bits, group;
    dw_element element; /* for the form mx */
    /* For the form step. step: in thousandths of the root mean square of what is coded. error: the
     * largest norm of x - y, as a part of the norm of x; 0: not limited. bound: the largest error
     * of any value; 0: not limited. dithers: whether codes have subtractive dither. */
    uint32_t step;
    double error, bound;
    bool dithers;
    /* For the form sparse. keep, mask: in millionths. is_random: which values are sent follows from
     * random numbers that both ends know; otherwise the largest are. unbiased: values are
     * multiplied so that the mean of y is x. mask: only so many values, at random places, may be
     * sent; 0: all may. chunk: the largest values of each chunk of so many are sent; 0: of all. */
    uint32_t keep, mask, chunk;
    bool is_random, unbiased;
    /* For the form blocks. block: elements that share a scale; not used with quantile. */
    dw_codebook codebook;
    uint32_t block;
    /* For the form tah. tau: in thousandths. share: of tiles with 4 bits, in millionths. */
    uint32_t tile, tau, share;
    const dw_stage *behind;           /* NULL: no stage behind the form */
    uint32_t rotates;                 /* channels of a rotated block; 0: no rotation */
    const struct dw_profile *profile; /* NULL: none */
    bool weighs;                      /* the form step, with a profile, which need not be known */
    bool chooses;                     /* pieces may be coded as a change or directly */
    dw_dtype dtype;
    /* For the form lowrank: the options of these names; width and restart 0: not set. */
    uint32_t rank, iterations, restart, width;
};

typedef struct dw_params {
    uint8_t codec; /* its number in frames */
    bool keeps_prev;
    bool keeps_residual; /* encoders only, and never together with keeps_prev */
    uint32_t decay;      /* in thousandths: what residuals are multiplied by at each visit */
    dw_form_params use[DW_USES];
    /* kept: how copies of prev are kept: as floats of a dtype, or compact (common/compact.h); 0:
     * prev is not kept. prev: the dtype in which it is read and made. */
    dw_dtype kept, prev;
    uint32_t audit; /* stride of the state digest; 0: none */
    bool wants_reply, is_stochastic, is_trellis;
    double bound; /* the largest error of any value; 0: not limited */
    /* For encoders only. skip, deadzone and rate: the options of these names, in thousandths; 0:
     * not set. step_most: the largest step that may be taken to reach the rate, in thousandths of
     * the root mean square. scale: 0: the best rule for the entry's bits. */
    uint32_t skip, deadzone, rate, step_most;
    dw_scale scale;
    uint32_t n_parameters;
    /* The parameter block: the options that both ends must agree on, as a frame holds them. */
    uint8_t block[DW_PARAMETERS_MOST * DW_PARAMETER_BYTES];
    uint64_t digest; /* H of the block */
} dw_params;

struct dw_plan {
    const dw_form *form; /* NULL: the codec has no such use */
    dw_form_params params;
    dw_dtype kept, prev; /* as in dw_params; kept 0: entries of this use have no state */
    uint32_t t, c;
    dw_layout layout;       /* for floats only shape, size and number of stretches are set */
    uint64_t payload_bytes; /* the exact size, or where it varies, the largest */
    bool size_varies;
    uint64_t chunks;
    /* Decoding needs random numbers that both ends generate alike, so the seed is part of the
     * frame. */
    bool draws;
    bool measures;                       /* measure and choose_scale must be called */
    const dw_stage *behind;              /* NULL: the form's payload is that of the frame */
    uint64_t plain_bytes, scratch_bytes; /* with a stage: of the form's payload; of its memory */
    uint64_t room_bytes;                 /* of memory that the form itself needs */
    /* Memory of a key in which an encoder with feedback keeps what the form wants to find at the
     * key's next visit, beside the residual; a multiple of 4. */
    uint64_t kept_bytes;
};

typedef struct dw_plans {
    dw_dtype x;
    uint32_t t, c; /* 0: nothing is planned yet */
    const struct dw_profile *profile;
    dw_params params;
    dw_plan of[DW_USES];
} dw_plans;

/* x: the dtype that "x's own" stands for. why may be NULL. */
dw_status dw_params_resolve(dw_params *params, const dw_config *config, dw_dtype x, dw_why *why);

/* Reconstructs the config from a parameter block (step 3 of docs/format.md, 2). Returns false where
 * no encoder would write this block; *reason says why. */
bool dw_params_read(dw_config *config, uint8_t codec, dw_dtype x, const uint8_t *block,
                    uint32_t n_parameters, const char **reason);

/* UNSUPPORTED, with a sentence, where a form that the config uses has no kernels on a device. */
dw_status dw_params_on_device(const dw_params *params, dw_why *why);

/* Writes a text for an error sentence: which option differs between our parameters and the
 * parameter block of a valid frame. */
void dw_params_difference(const dw_params *own, uint8_t codec, const uint8_t *block,
                          uint32_t n_parameters, char *text, size_t cap);

dw_status dw_plans_make(dw_plans *plans, const dw_config *config, dw_dtype x, uint32_t t,
                        uint32_t c, dw_why *why);

/* Returns LIMIT, with a sentence: for plan functions of forms and stages. most: how many values a
 * sample may have; 0: only the address space limits it. */
dw_status dw_plan_too_large(const dw_plan *plan, uint64_t most, dw_why *why);

/* The plans of the last few shapes. */
enum { DW_PLANS_KEPT = 4 };
typedef struct dw_plan_cache {
    dw_plans kept[DW_PLANS_KEPT];
    uint32_t oldest;
} dw_plan_cache;

/* Returns the plans, or NULL with an error in *status. They stay valid until DW_PLANS_KEPT other
 * shapes or profiles have been asked for. All configs given to a cache are the same but for their
 * profiles, which must exist as long as the cache does, or until it is cleared. */
const dw_plans *dw_plan_cache_get(dw_plan_cache *cache, const dw_config *config, dw_dtype x,
                                  uint32_t t, uint32_t c, dw_status *status, dw_why *why);

/* Which stretches the state digest covers at this visit of a key (docs/format.md, 4). */
dw_audit dw_audit_of(uint32_t every, dw_key key, uint64_t sequence);

/* A seed for the random numbers of one visit of a key. It differs for every visit, so that the
 * roundings of different visits are independent. */
uint64_t dw_draws_key(uint64_t seed, dw_key key, uint64_t sequence);

/* A seed for the random numbers that both ends share (docs/format.md, 3.6). The incarnation sees to
 * it that two encoders do not share them, whatever their seeds, unless the header says that they
 * draw places alike. */
uint64_t dw_shared_draws_key(const dw_header *header, dw_key key);

/* A seed for the stochastic rounding of a key's values. seed: that of the config. Encoders that
 * draw places alike round the same values, so there the incarnation is part of it: with the same
 * random numbers, their errors would add up. */
uint64_t dw_rounding_key(const dw_header *header, uint64_t seed, dw_key key);

/* Whether the form draws places, and not dither. */
bool dw_plan_draws_places(const dw_plan *plan);

/* Checks an entry of a frame against the plans for its parameters. Returns NULL, or what is
 * wrong. */
const char *dw_plans_bad_entry(const dw_plans *plans, const dw_entry *entry);

/* How an encoder finds the scale (absmax, signed or mse) in entries with so many bits: as
 * configured, or else the best rule for that number of bits. */
dw_scale dw_params_scale(const dw_params *params, uint32_t bits);

#endif
