/* SPDX-License-Identifier: Apache-2.0
 * deltawire.h - encoders and decoders: tensors to frames and back. No input or output, no threads,
 * no global state. */
#ifndef DELTAWIRE_H
#define DELTAWIRE_H

#include <stddef.h>
#include <stdint.h>

#include "deltawire/version.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Marks the functions that the shared library exports. Define it as empty for tools that read C
 * without compiler extensions, such as cffi and pycparser. */
#ifndef DW_API
#if defined(__GNUC__)
#define DW_API __attribute__((visibility("default")))
#else
#define DW_API
#endif
#endif

/* ---------------------------------------------------------------------------------------------
 * Terms (docs/glossary.md has more).
 *
 *   x      the tensor to send, for example activations or gradients, of shape (N, T, C): N samples
 *          of T tokens with C channels
 *   y      the tensor that a decoder makes of a frame
 *   key    (sample, slice), the name under which both ends keep prev
 *   prev   the last reconstruction of a key, bit for bit the same at both ends
 *   delta  x - prev, the change since the last visit of the key
 *   group  G consecutive channels of one token that share one scale; a value is code * scale
 *   frame  the bytes made of one x; it has N entries, one per sample
 *   entry  a key entry carries x itself and starts the state of its key; a delta entry the change;
 *          a stateless entry x, leaving the state alone; a sync entry prev
 *   reply  the decoder's answer to a frame: an ACK, or a NACK that says what the decoder holds
 *
 * docs/format.md specifies every byte. */

/* What a call returns. Zero is success. Results are returned through pointers only. After any error
 * the object, the caller's tensors and the peer's view of this end are unchanged. */
typedef enum dw_status {
    DW_OK = 0,
    DW_PENDING = 1, /* not done yet: call again later */

    /* -1 and below: the call changed nothing */
    DW_ERR_ARGUMENT = -1,  /* NULL, a zero extent, a key given twice, the wrong kind of handle */
    DW_ERR_CONFIG = -2,    /* the configuration has an unknown word or a value out of range */
    DW_ERR_NO_MEMORY = -3, /* the allocator returned NULL */
    DW_ERR_BUFFER_TOO_SMALL = -4, /* the caller's buffer is too small */
    DW_ERR_UNSUPPORTED = -5,      /* valid, but this build or machine cannot do it */
    DW_ERR_LIMIT = -6,            /* a size exceeds a limit, or cannot be represented */
    DW_ERR_FORMAT = -7,           /* not a frame, cut short, or fields that contradict each other */
    DW_ERR_VERSION = -8,          /* a frame or peer of another format version */
    DW_ERR_CORRUPT = -9,          /* a checksum does not match */
    DW_ERR_SHAPE = -10,           /* the frame's shape is not the tensor's */
    DW_ERR_MISMATCH = -11,        /* the peer has another configuration */
    DW_ERR_IO = -12,              /* a file or the operating system failed */

    /* -20 and below: the two ends are out of step; replies repair this */
    DW_ERR_STALE = -20, /* a duplicate, or older than the frame that was already applied */
    DW_ERR_BASE = -21,  /* the decoder does not hold the base that the delta starts from */
    DW_ERR_STATE = -22, /* the reconstruction's digest differs from the encoder's */

    /* -40 and below: the link has failed */
    DW_ERR_TIMEOUT = -40,   /* the peer did not answer in time */
    DW_ERR_PEER = -41,      /* the peer closed the link or its process ended */
    DW_ERR_ADDRESS = -42,   /* cannot resolve, bind or reach the address */
    DW_ERR_CANCELLED = -43, /* dw_link_cancel was called */
    DW_ERR_PROTOCOL = -44,  /* the peer does not speak our protocol */
    DW_ERR_AUTH = -45       /* authentication failed: not the expected peer, or it rejected ours */
} dw_status;

/* Returns a sentence that explains a status, never NULL; DW_VERSION_STRING of the linked library.
 */
DW_API const char *dw_status_string(dw_status status);
DW_API const char *dw_version(void);

/* Explains an error to people. Every function that takes a dw_why accepts NULL. */
typedef struct dw_why {
    char text[256]; /* one sentence: what is wrong, and what to do about it */
    int offset;     /* dw_config_parse: where in the text the wrong word begins; else -1 */
} dw_why;

/* ---------------------------------------------------------------------------------------------
 * Tensors are views of memory that the caller owns. They may have gaps between samples and between
 * tokens; the channels of a token are contiguous.
 *
 * | name     | unit     | meaning                                              | owner  |
 * | data     |          | element (0, 0, 0), aligned to its dtype              | caller |
 * | n, t, c  |          | extents, each >= 1; n*t*c*4 must fit in PTRDIFF_MAX  |        |
 * | stride_n | elements | from one sample to the next                          |        |
 * | stride_t | elements | from one token to the next, >= c                     |        |
 *
 * A dw_tensor never changes in any version of the library. */
typedef enum dw_dtype { DW_F32 = 1, DW_F16 = 2, DW_BF16 = 3 } dw_dtype;

typedef struct dw_tensor {
    void *data;
    dw_dtype dtype;
    uint32_t n, t, c;
    int64_t stride_n, stride_t;
} dw_tensor;

/* 3d: returns a view of n*t*c elements without gaps. bytes: the size of an element; 0: unknown. */
DW_API dw_tensor dw_tensor_3d(void *data, dw_dtype dtype, uint32_t n, uint32_t t, uint32_t c);
DW_API size_t dw_dtype_bytes(dw_dtype dtype);

/* A DLPack tensor as a view. device_type and device_id are those of DLPack's DLDevice (1: host, 2:
 * CUDA, 3: pinned host memory); stream is the one given by the caller. */
typedef struct dw_dlpack_view {
    dw_tensor tensor;
    int device_type, device_id;
    void *stream;
} dw_dlpack_view;

/* Makes a view of a DLPack tensor: a DLTensor, a DLManagedTensor (a Python capsule "dltensor"),
 * which begins with one, or a DLManagedTensorVersioned ("dltensor_versioned", DLPack 1.0 and
 * later). The caller keeps it alive while the view is used, and calls its deleter afterwards.
 *
 * | extents      | become      | condition                                                     |
 * | (C)          | (1, 1, C)   |                                                               |
 * | (T, C)       | (1, T, C)   | or (N, C): (N, 1, C), with DW_DLPACK_ROWS_ARE_SAMPLES         |
 * | (N, T, C)    | (N, T, C)   |                                                               |
 * | (N, A, B, C) | (N, A*B, C) | a step along A is as long as B steps along B                  |
 *
 * Errors, with a sentence in *why: ARGUMENT (channels are not contiguous; other extents; read-only
 * although DW_DLPACK_WRITES is given; unknown flags), LIMIT, UNSUPPORTED (other dtypes; a major
 * version of DLPack other than 1). *view is unchanged then. */
enum {
    DW_DLPACK_VERSIONED = 1,       /* dl_tensor is a DLManagedTensorVersioned */
    DW_DLPACK_WRITES = 2,          /* the view will be written to: it is a y, not an x */
    DW_DLPACK_ROWS_ARE_SAMPLES = 4 /* two dimensions mean (N, C), not (T, C) */
};
DW_API dw_status dw_tensor_from_dlpack(dw_dlpack_view *view, const void *dl_tensor, unsigned flags,
                                       void *stream, dw_why *why);

/* Names the state of one sample, or of one slice of it. Never changes in any version. */
typedef struct dw_key {
    uint64_t sample; /* the same number in every epoch */
    uint32_t slice;  /* which part of the sample's tokens; 0 where samples are not divided */
} dw_key;

/* ---------------------------------------------------------------------------------------------
 * Configuration. A config can be written as text: "delta:bits=4,group=64,key=8,prev=bf16",
 * "direct:bits=6", "raw:f32". docs/codecs.md lists all options with their values and defaults; the
 * fields of dw_config have the options' names (raw is the option dtype). Zero means the default in
 * every field.
 *
 * Codecs and options have two tiers. STABLE: they stay. COMPARISON: methods of the literature that
 * lose, or gain nothing, and may change or go: docs/codecs/for_comparison.md. */
typedef enum dw_tier { DW_TIER_STABLE = 1, DW_TIER_COMPARISON = 2 } dw_tier;
typedef enum dw_codec {
    DW_CODEC_DELTA = 1,  /* the change since the sample's last visit (AQ-SGD) */
    DW_CODEC_DIRECT = 2, /* the tensor itself, quantized in groups or in steps */
    DW_CODEC_RAW = 3,    /* floats without quantization */
    DW_CODEC_MX = 4,     /* the tensor itself, in an OCP microscaling (MX) format */
    /* for comparison: */
    DW_CODEC_TOPK = 5,     /* the values of largest magnitude, and where they stand */
    DW_CODEC_RANDK = 6,    /* values at random places, which both ends know */
    DW_CODEC_COCKTAIL = 7, /* of values at random places, those of largest magnitude */
    DW_CODEC_CHUNK = 8,    /* of each chunk of a sample, the values of largest magnitude */
    DW_CODEC_LOWRANK = 9,  /* two thin matrices, whose product is close to the tensor (PowerSGD) */
    DW_CODEC_TAH = 10,     /* tiles of channels, rotated, with 3 or 4 bits for each value */
    DW_CODEC_BLOCKS = 11   /* 8-bit codes with a codebook, and a scale for each block of values */
} dw_codec;
typedef enum dw_scale { DW_SCALE_ABSMAX = 1, DW_SCALE_SIGNED = 2, DW_SCALE_MSE = 3 } dw_scale;
typedef enum dw_rounding {
    DW_ROUNDING_NEAREST = 1,
    DW_ROUNDING_STOCHASTIC = 2,
    DW_ROUNDING_DITHER = 3, /* stochastic, and the decoder subtracts the dither again */
    DW_ROUNDING_TRELLIS = 4 /* many values jointly, to need fewer bits; with entropy coding */
} dw_rounding;
typedef enum dw_choose { DW_CHOOSE_GROUP = 1, DW_CHOOSE_NEVER = 2 } dw_choose;
typedef enum dw_entropy { DW_ENTROPY_NONE = 1, DW_ENTROPY_RANS = 2 } dw_entropy;
typedef enum dw_codebook {
    DW_CODEBOOK_DYNAMIC = 1, /* finer near 0: dynamic tree quantization */
    DW_CODEBOOK_LINEAR = 2,
    DW_CODEBOOK_QUANTILE = 3 /* fitted to the values of each sample, and sent with them */
} dw_codebook;
typedef enum dw_scaling { DW_SCALING_NONE = 1, DW_SCALING_UNBIASED = 2 } dw_scaling;
/* HADAMARD: blocks of channels are rotated, so that large values are spread over a block. It is for
 * comparison. */
typedef enum dw_transform { DW_TRANSFORM_NONE = 1, DW_TRANSFORM_HADAMARD = 2 } dw_transform;
typedef enum dw_replies { DW_REPLIES_ALWAYS = 1, DW_REPLIES_NEVER = 2 } dw_replies;

/* Error feedback: an encoder adds what it did not send of a key's tensor to the key's next one. */
typedef enum dw_feedback {
    DW_FEEDBACK_NONE = 1,
    DW_FEEDBACK_EF = 2,       /* refused where the residual could grow without bound */
    DW_FEEDBACK_UNSTABLE = 3, /* like EF, but never refused */
    /* Like EF, but the residual of place i of a frame goes to place i of the next frame of the same
     * slice, whatever its samples are: docs/codecs/feedback.md. */
    DW_FEEDBACK_LAZY = 4
} dw_feedback;

/* A form: a way to turn values into bytes. */
typedef enum dw_form_name {
    DW_FORM_FLOATS = 1,    /* plain f32, f16 or bf16 */
    DW_FORM_QUANTIZED = 2, /* 1 to 8 bits per value, and a scale for each group */
    DW_FORM_MX = 3,        /* OCP microscaling: blocks of 32 share a power of two as their scale */
    DW_FORM_STEP = 4,      /* multiples of a step that a group, row or sample shares */
    /* for comparison: */
    DW_FORM_SPARSE = 5,  /* some of the values, and where they stand */
    DW_FORM_LOWRANK = 6, /* a matrix as a product of two thin ones */
    DW_FORM_TAH = 7,     /* rotated tiles, some with 4 bits for each value, others with 3 */
    DW_FORM_BLOCKS = 8   /* 8-bit codes with a codebook */
} dw_form_name;

/* Returns the name of a form as in docs/codecs.md: "floats", "quantized", "mx", "step", "sparse",
 * "lowrank", "tah", "blocks"; "none" for 0, the form of entries without a payload; "?" for others.
 * Never NULL. */
DW_API const char *dw_form_string(dw_form_name form);

/* Element formats of microscaling, as in the OCP Microscaling Formats (MX) Specification 1.0. */
typedef enum dw_element {
    DW_ELEMENT_INT8 = 1, /* MXINT8: two's complement, in units of 2^-6 */
    DW_ELEMENT_E4M3 = 2, /* MXFP8 */
    DW_ELEMENT_E5M2 = 3,
    DW_ELEMENT_E3M2 = 4, /* MXFP6 */
    DW_ELEMENT_E2M3 = 5,
    DW_ELEMENT_E2M1 = 6 /* MXFP4 */
} dw_element;

/* Values of `group`. ROW: all channels of a token share one scale or step. CHANNEL: each channel
 * has one scale for all tokens. SAMPLE: all values of a sample share one step. */
enum { DW_GROUP_ROW = 0xffff, DW_GROUP_CHANNEL = 0xfffe, DW_GROUP_SAMPLE = 0xfffd };

/* Values of `key`, which is how a key entry carries x: 2 to 8 bits in groups; one of these float
 * formats; where changes are microscaled, DW_KEY_ELEMENT + a dw_element; where they are coded with
 * a step, DW_KEY_STEP. */
enum {
    DW_KEY_STEP = 128,
    DW_KEY_ELEMENT = 64,
    DW_KEY_F16 = 16,
    DW_KEY_BF16 = 17,
    DW_KEY_F32 = 32,
    DW_KEY_RAW = 1 /* x's own dtype */
};

enum { DW_AUDIT_NEVER = 0xff };

/* A config. Begin with dw_config_parse, or with {.struct_size = sizeof(dw_config)}. From that a
 * later version of the library knows which fields the program has; missing fields mean the default.
 * A struct that is longer than the library's is accepted if all additional bytes are zero. */
typedef struct dw_config {
    size_t struct_size;
    dw_codec codec;
    dw_form_name form;  /* of changes: not DW_FORM_FLOATS; docs/codecs.md has all options */
    dw_element element; /* of sparse codecs: 0: their values are not microscaled */
    uint32_t bits, group;
    uint32_t step, key_step; /* in thousandths of the root mean square of what is coded */
    uint32_t rate;           /* in thousandths of a bit per element */
    uint32_t deadzone;       /* in thousandths of a step */
    /* Two ways to say how large |x - y| may be, both in units of 10^-12; at most one is set.
     * error: as a part of the norm of x. error_abs: of every single value. */
    uint64_t error, error_abs;
    dw_scale scale;
    dw_rounding rounding;
    uint64_t seed;
    uint32_t key;
    dw_dtype raw;
    uint32_t prev; /* a dw_dtype, or how many bits a value takes: 8 or 4 */
    dw_choose choose;
    dw_entropy entropy; /* of the codes; frames then vary in size */
    uint32_t skip;      /* in thousandths; for comparison */
    dw_replies replies;
    uint32_t audit;
    uint64_t quota_bytes, incarnation;
    dw_feedback feedback;
    uint32_t keep;      /* in millionths of the values of a sample */
    dw_scaling scaling; /* of the values that randk sends */
    uint32_t mask;      /* in millionths of the values of a sample; keep is then a part of these */
    uint32_t chunk;     /* how many values a chunk has */
    uint32_t rank, iterations, restart, width; /* of lowrank */
    dw_codebook codebook;
    uint32_t block; /* consecutive values that share a scale */
    dw_transform transform;
    uint32_t rotate; /* channels of a rotated block */
    uint32_t tile;   /* channels of a tile of tah */
    uint32_t tau;    /* in thousandths: the largest value of a tile is put first if it is more than
                        so many times as large as the second largest */
    uint32_t share;  /* in millionths of the tiles of a sample */
    uint32_t decay;  /* in thousandths: what residuals are multiplied by at each visit */
    uint64_t key_error; /* as error, for key entries */
    /* What both ends know of channels (profile.h), for the form step. It belongs to the program and
     * must exist as long as any object that was made of the config. profile_digest: that of the
     * profile; it is set where objects are made. In texts, the option `profile`. */
    const struct dw_profile *profile;
    uint32_t profile_digest;
} dw_config;

/* Sets *config to what the text says. struct_size: sizeof(dw_config). Errors: ARGUMENT; CONFIG,
 * with the wrong word, its position and the allowed values in *why. *config is unchanged then. */
DW_API dw_status dw_config_parse_sized(dw_config *config, size_t struct_size, const char *text,
                                       dw_why *why);
#define dw_config_parse(config, text, why)                                                         \
    dw_config_parse_sized(config, sizeof(dw_config), text, why)

/* Sets an option to what a text says, as "name=value" in the text of a config; value NULL: to its
 * default. Errors: as dw_config_parse; *config is unchanged then. */
DW_API dw_status dw_config_set(dw_config *config, const char *name, const char *value, dw_why *why);

/* Writes the canonical text of a config: the codec, then the options that are not default, in a
 * fixed order. Configs with the same meaning have the same text. agreement: only with the options
 * that both ends must agree on; they can work together if these texts are equal. cap: bytes of
 * text. Errors: ARGUMENT, CONFIG, BUFFER_TOO_SMALL; text is then "". */
enum {
    DW_CONFIG_TEXT_BYTES = 320,   /* enough for any config */
    DW_AGREEMENT_TEXT_BYTES = 256 /* enough for any text of dw_config_agreement */
};
DW_API dw_status dw_config_format(const dw_config *config, char *text, size_t cap);
DW_API dw_status dw_config_agreement(const dw_config *config, char *text, size_t cap);

/* What follows from a config, so that a program need not know codecs. Errors: ARGUMENT, CONFIG. */
typedef struct dw_facts {
    size_t struct_size; /* set by the caller: sizeof(dw_facts) */
    const char *codec;  /* its name in texts */
    dw_tier tier;       /* COMPARISON if its codec, or an option that is set, has that tier */
    int keeps_prev, keeps_residual; /* of each key: both ends prev; the encoder a residual */
    int has_fixed_size; /* the length of a frame follows from the shape: dw_frame_bound */
    int runs_on_device; /* GPUs have kernels for all that it needs */
} dw_facts;
DW_API dw_status dw_config_facts(const dw_config *config, dw_facts *facts);

/* Returns a size in bytes that is enough for any frame of x, or 0 where config or x is invalid.
 * Frames have exactly this size where dw_facts.has_fixed_size says so. Others can be shorter: of
 * delta, the bound assumes n entries of the largest kind, and n forgotten keys. Depends only on
 * config and shape. */
DW_API size_t dw_frame_bound(const dw_config *config, const dw_tensor *x);

/* Returns a size in bytes that is enough for any reply to a frame of n samples. */
DW_API size_t dw_reply_bound(uint32_t n);

/* ---------------------------------------------------------------------------------------------
 * Counters, since the object was created. The three sums of squares cover only about one element in
 * 32, so use their ratios: sqrt(delta_square / x_square) is |x - prev| / |x|. */
typedef struct dw_counters {
    size_t struct_size;         /* set by the caller: sizeof(dw_counters) */
    uint64_t frames;            /* encoded, or decoded and accepted */
    uint64_t key_entries;       /* entries that carried x itself and started state */
    uint64_t delta_entries;     /* entries that carried a change */
    uint64_t stateless_entries; /* entries that did not touch state */
    uint64_t skipped_entries;   /* entries without payload: the sample had hardly changed */
    uint64_t raw_bytes;         /* bytes of the tensors */
    uint64_t encoded_bytes;     /* bytes of the frames */
    uint64_t groups;            /* quantized groups ... */
    uint64_t direct_groups;     /* ... of delta entries that were coded directly, not as a change */
    uint64_t zero_groups;       /* ... with no value of 2^-96 or more; blocks of mx: with scale 0 */
    /* ... that contained NaN or Inf; encoder: also each such value in a key entry of floats. */
    uint64_t poisoned_groups;
    uint64_t escaped_values; /* encoder, form step: too large for a code, so sent as they are */
    /* Encoder: finite values of x, with its residual, that the 16-bit floats cannot hold which are
     * sent, or kept as prev. They arrive as infinity or the largest number: take bf16 or f32.
     * Decoder, on the CPU: values of a y of f16 that are infinite or the largest number. */
    uint64_t overflowed_values;
    uint64_t acks, nacks;     /* replies received (encoder) or sent (decoder) */
    uint64_t rebases;         /* NACKs that were answered with a delta from an older copy */
    uint64_t resyncs;         /* sync entries: they carried values as floats, without a base */
    uint64_t rejected_frames; /* decoder: frames that were refused */
    uint64_t keys_held;       /* current number, not a sum */
    uint64_t state_bytes;     /* current: bytes of all copies of prev and their bookkeeping */
    /* Current: bytes allocated beyond state_bytes, for the next copies and for tables. At most the
     * recent maximum of state_bytes plus 2 MiB, apart from free room between copies in use and,
     * with host.backing on a GPU, a buffer for copies on their way. */
    uint64_t slack_bytes;
    uint64_t busy_ns;                            /* time inside encode or decode, by host.now_ns */
    double x_square, delta_square, error_square; /* encoder only */
    /* Encoder, on the CPU, codecs of the tier stable but raw, without feedback: of about one row in
     * 32, how large the error |x - y| is as a part of |x|. Divided by measured_rows, row_error_sum
     * is the mean of it, and bulk_error_sum the mean of the same without the values of the row that
     * are more than 6 times its root mean square. A row is up to 2048 channels of a token if they
     * share a step or scale, otherwise some of them. With a profile, errors are in units of its
     * weights. Rows of zeros, and poisoned ones, are not measured. */
    uint64_t measured_rows;
    double row_error_sum, bulk_error_sum, row_error_largest;
    uint64_t lost_copies; /* copies that could not be read from host.backing */
    /* Encoder: keys that were forgotten for room, as they did not come for more than twice as many
     * samples as lay between any two visits of one key. */
    uint64_t evicted_keys;
    uint64_t dropped_keys; /* of channels: what the other end held of them after a restart differed
                            */
} dw_counters;

/* ---------------------------------------------------------------------------------------------
 * The host: what the program lends to encoders and decoders. Its callbacks are called only from
 * the thread that is calling into an object. Objects that share a host may call it at the same
 * time; those of a channel or a group also from threads of the library. */
/* A dw_allocator never changes in any version. A dw_task of parallel_for may run in any thread. */
typedef void dw_task(void *task_context, size_t i);
typedef struct dw_allocator {
    void *(*allocate)(void *context, size_t bytes, size_t alignment); /* NULL: no memory */
    void (*release)(void *context, void *memory, size_t bytes);
    void *context;
} dw_allocator;

/* Where an object keeps copies of prev, and residuals, that do not fit in memory; storage.h has one
 * ready. It belongs to the program and must outlive the objects that use it, whose calls
 * call it. A record is one copy: any bytes, which are never changed.
 *
 * | name        | meaning                                                                        |
 * | cache_bytes | an object moves copies here that were not used for the longest time, until     |
 * |             | those in memory, with what the call needs, take no more bytes                  |
 * | write       | stores a copy of `bytes` bytes, and returns its number, which is not 0         |
 * | read        | reads a record into memory, and never other bytes, which residuals would not   |
 * |             | show. NO_MEMORY is the error of the call. After any other status but OK the    |
 * |             | object continues as if it had never held the copy, and counts it               |
 * | prefetch    | the record will soon be read; may do nothing                                   |
 * | release     | the record is not needed any more; cannot fail                                 |
 * | context     | is passed to all of them                                                       |
 *
 * If write fails, the call returns IO, with the sentence in *why, or NO_MEMORY, and nothing has
 * changed. */
typedef struct dw_backing {
    uint64_t cache_bytes;
    dw_status (*write)(void *context, const void *copy, uint64_t bytes, uint64_t *record,
                       dw_why *why);
    dw_status (*read)(void *context, uint64_t record, void *copy, uint64_t bytes, dw_why *why);
    void (*prefetch)(void *context, uint64_t record);
    void (*release)(void *context, uint64_t record);
    void *context;
} dw_backing;

typedef struct dw_cuda dw_cuda; /* a GPU (cuda.h) */
typedef enum dw_cuda_place { DW_CUDA_DEVICE = 1, DW_CUDA_PINNED = 2 } dw_cuda_place;

/* What an object uses of the program. Zero means the default, and so does NULL for all of it. The
 * struct is copied; what it points to, but for the GPU, must outlive the object. parallel_for calls
 * task(task_context, i) once for every i < n, in any order and in any threads, and returns when all
 * calls have returned; it cannot fail: what no thread takes, it calls itself. Results do not depend
 * on it. It is not called for small tensors. */
typedef struct dw_host {
    size_t struct_size;                /* sizeof(dw_host) */
    dw_allocator allocator;            /* of main memory; functions NULL: malloc and free */
    uint64_t (*now_ns)(void *context); /* a clock; NULL: counters of time stay 0 */
    void *now_context;
    void (*parallel_for)(void *context, size_t n, dw_task *task, void *task_context);
    void *parallel_context;
    const dw_backing *backing; /* NULL: all copies lie in main memory, or on the device */
    dw_cuda *cuda;             /* on which tensors and prev lie; NULL: in main memory */
    dw_cuda_place place;       /* where on it prev lies; 0: in its own memory */
} dw_host;

/* ---------------------------------------------------------------------------------------------
 * Encoder. Use one per direction and tensor of a model. Threads: an encoder may be used by one
 * thread at a time; different encoders are independent. */
typedef struct dw_encoder dw_encoder;

/* Creates an encoder, which the caller destroys. On an error *encoder is NULL, and *why says what
 * is wrong and what is allowed. host may be NULL. Errors: ARGUMENT, CONFIG, NO_MEMORY; UNSUPPORTED
 * (a GPU has no kernels for the codec). */
DW_API dw_status dw_encoder_create(dw_encoder **encoder, const dw_config *config,
                                   const dw_host *host, dw_why *why);
DW_API void dw_encoder_destroy(dw_encoder *encoder); /* NULL is allowed */

/* Options of dw_encode. Zero means the default in every field.
 *
 * | name           | meaning                                                                     |
 * | struct_size    | sizeof(dw_encode_options)                                                   |
 * | stateless      | not 0: all entries are stateless; keys may be NULL                          |
 * | limit          | not 0: most bytes of the frame. Key entries that do not fit are stateless,  |
 * |                | and as short as a delta; announcing forgotten keys can wait                 |
 * | reconstruction | NULL, or a tensor of x's shape that receives what the decoder will decode   |
 * | places         | not 0: randk and cocktail draw places by this number and the keys alone, so |
 * |                | encoders with the same one draw alike. Give each frame of a key another one |
 * | bypass_caches  | not 0: for speed, a prev or residual that will not be needed soon is stored |
 * |                | past the caches where that is possible, as those of 32 MiB and more are     |
 */
typedef struct dw_encode_options {
    size_t struct_size;
    int stateless;
    size_t limit;
    const dw_tensor *reconstruction;
    uint64_t places;
    int bypass_caches;
} dw_encode_options;

/* Encodes x into one frame, and advances prev of its keys exactly as the decoder will (AQ-SGD,
 * Algorithm 1). options: NULL for none.
 *
 * | name  | shape     | unit  | meaning                                  | owner  |
 * | keys  | (x->n)    |       | one per sample, all different            | caller |
 * | x     | (N, T, C) |       | any dtype and strides                    | caller |
 * | frame | (cap)     | bytes | output, not in x; see dw_frame_bound     | caller |
 * | *len  |           | bytes | output: length of the frame              |        |
 *
 * The first visit of a key gives a key entry, as do a changed shape and a lost frame; otherwise the
 * entry is a delta. Two cases are not errors: a sample that does not fit config.quota_bytes is sent
 * as a stateless entry, and a key that seems to come no more is forgotten; and a group in which x
 * or x - prev has NaN or Inf is "poisoned": y has NaN there, prev keeps its value, and a counter is
 * increased.
 *
 * With feedback, which codecs without prev have, the encoder keeps a residual of each key instead,
 * in f32: what it was given and has not sent. It codes x plus the residual. The residual is 0 for a
 * tensor of another shape than the last one of its key, and nothing is kept of a sample for which
 * config.quota_bytes leaves no room. Poisoned groups keep their residual. With decay=d, all
 * residuals of the frame's keys are then multiplied by d.
 *
 * Errors: ARGUMENT, BUFFER_TOO_SMALL (also: no frame can be as short as the limit), NO_MEMORY,
 * LIMIT (also: no encoding of x keeps to error=abs), SHAPE (of the reconstruction), UNSUPPORTED (an
 * encoder on a GPU), those of host.backing. An error leaves the state unchanged. Source:
 * arXiv:2206.01299, Algorithm 1; docs/format.md, Exactness. */
DW_API dw_status dw_encode(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x,
                           const dw_encode_options *options, void *frame, size_t cap, size_t *len);

/* Processes a reply of the decoder. An ACK frees older copies of prev. After a NACK the next entry
 * of its keys starts from what the decoder holds, or is a key entry. If the reply says "replaced",
 * the encoder takes a new incarnation. Replies may be lost, repeated or out of order. Errors:
 * ARGUMENT, FORMAT, VERSION, CORRUPT; nothing is changed then. */
DW_API dw_status dw_encoder_take_reply(dw_encoder *encoder, const void *reply, size_t reply_len);

/* Makes a frame that carries prev itself, exactly, for n keys of the same shape. A decoder that
 * missed frames gets from it the last tensor of each key, and x is not needed; poisoned groups
 * arrive as prev, and with prev=8 or prev=4 all values as rounded to these bits. cap: enough is
 * dw_frame_bound for the same config with key = DW_KEY_F32, and key_error and rate 0. Errors:
 * ARGUMENT (a key that is not held), BUFFER_TOO_SMALL, NO_MEMORY, UNSUPPORTED (on a GPU). */
DW_API dw_status dw_encoder_resync(dw_encoder *encoder, const dw_key *keys, uint32_t n, void *frame,
                                   size_t cap, size_t *len);

/* With feedback: a frame was not delivered, and never will be. Where that is unknown, do not call
 * this, or a gradient may count twice. frame: the bytes that dw_encode made, which may have been
 * sent or not, but not with the option stateless.
 *
 * x NULL: adds what the frame carried to the residuals of its keys, so that their next frames carry
 * it. With decay=d, it is multiplied by d once, even if there were more visits since. Frames of the
 * same key must be given back in the order in which they were made.
 *
 * x: what the frame was made of, in its dtype, and what will be given again; with an encoder on a
 * GPU in its memory, and written by nobody any more. The residuals become what they were before the
 * frame was made, up to rounding. A residual of another shape, which the frame replaced, stays
 * lost; earlier frames of the keys can no longer be given back.
 *
 * Errors: ARGUMENT (also: no feedback; a key in a frame in flight; residuals that do not contain
 * this frame; with x, a later frame of a key), SHAPE, LIMIT, NO_MEMORY, and those of dw_decode;
 * nothing is changed then. */
DW_API dw_status dw_encoder_give_back(dw_encoder *encoder, const void *frame, size_t len,
                                      const dw_tensor *x);

/* Drops the copies of a key and announces this to the decoder in the next frames that have room
 * (dw_frame_bound leaves some). It is announced again until the decoder has answered; until then
 * the key still counts in the quota. An unknown key is no error. Errors: ARGUMENT (the key is in a
 * frame in flight). */
DW_API dw_status dw_encoder_forget(dw_encoder *encoder, dw_key key);

/* Begins to read what host.backing holds of n keys, so that a later call with them need not wait
 * for it. Does nothing for keys whose copies are in memory, or of which nothing is held. Errors:
 * ARGUMENT. */
DW_API dw_status dw_encoder_prefetch(dw_encoder *encoder, const dw_key *keys, size_t n);

/* Drops all keys and takes a new incarnation: the next entry of every key is a key entry, and the
 * decoder drops the copies of the old incarnation. Errors: ARGUMENT (a frame is in flight). */
DW_API dw_status dw_encoder_reset(dw_encoder *encoder);

/* Sets *prev to a view of shape (1, T, C) of the key's prev or, with feedback, of its residual with
 * the opposite sign: how far the sum of all y is ahead of the sum of all x. (With feedback=lazy,
 * key.sample is here, and in dw_encoder_forget, the place in a frame.) It is read-only and
 * valid until the next call on the encoder. Errors: ARGUMENT (the key is not held), NO_MEMORY,
 * those of host.backing. */
DW_API dw_status dw_encoder_peek(const dw_encoder *encoder, dw_key key, dw_tensor *prev);

/* Fills *counters; the caller sets counters->struct_size first. Errors: ARGUMENT. */
DW_API dw_status dw_encoder_count(const dw_encoder *encoder, dw_counters *counters);
/* Whether counters of encoders, with this config, say that the codec does not fit the tensors:
 * activations that lose more than 0.15 of the norm of their rows, with or without the largest
 * values; gradients that lose 1.3 times what their steps imply; more than 1 in 100 values that
 * escaped; values that overflowed. Returns 1 and writes one sentence with a remedy to *why, or
 * returns 0; so it does, too, if the counters have no errors of rows (those of a GPU), or the
 * config is not valid. Ask after the first steps, while there is time to change the codec. State:
 * none. Threads: any. Source of the limits: docs/codecs.md. */
typedef enum dw_tensor_kind { DW_ACTIVATIONS = 1, DW_GRADIENTS = 2 } dw_tensor_kind;
DW_API int dw_counters_misfit(const dw_counters *counters, const dw_config *config,
                              dw_tensor_kind kind, dw_why *why);
/* Returns a sentence about the last error, "" before the first. Valid until the next call. */
DW_API const char *dw_encoder_why(const dw_encoder *encoder);

/* ---------------------------------------------------------------------------------------------
 * Decoder. Threads: as for the encoder. Some options must have the same value in its config as in
 * the encoder's: the table in docs/codecs.md says which, in its last column. To compare two
 * configs, compare the texts that dw_config_agreement writes of them. */
typedef struct dw_decoder dw_decoder;

/* Creates a decoder; like dw_encoder_create. */
DW_API dw_status dw_decoder_create(dw_decoder **decoder, const dw_config *config,
                                   const dw_host *host, dw_why *why);
DW_API void dw_decoder_destroy(dw_decoder *decoder); /* NULL is allowed */

/* Options of dw_decode. adds: not 0: y[i] += factor * value, computed as RN(y + RN(factor *
 * value)) in binary32 and rounded once more to y's dtype (docs/format.md, 5). NaN and infinities of
 * y and of poisoned groups follow IEEE 754. bypass_caches: not 0: for speed, a y that will not be
 * read soon is stored past the caches where that is possible, as one of half the last cache is.
 * only_checks: not 0: returns what a decode would, but changes neither state nor y, and writes no
 * reply. After DW_OK the decoder has all memory for the frame, so to decode a stateless one cannot
 * fail. */
typedef struct dw_decode_options {
    size_t struct_size; /* sizeof(dw_decode_options) */
    int adds;
    float factor;
    int bypass_caches;
    int only_checks;
} dw_decode_options;

/* Decodes a frame into y, and advances prev of its keys bit for bit as the encoder did. options:
 * NULL for none.
 *
 * | name       | shape     | unit  | meaning                                           | owner  |
 * | frame      | (len)     | bytes | input; may be any bytes, but not in y             | caller |
 * | y          | (N, T, C) |       | output; its shape must equal the frame's. data    | caller |
 * |            |           |       | NULL: only advance prev (see dw_decoder_peek)     |        |
 * | reply      | reply_cap | bytes | output; dw_reply_bound(N) is enough. NULL: none   | caller |
 * | *reply_len |           | bytes | output: length of the reply; 0: nothing to send   |        |
 *
 * Send the reply to the encoder, which passes it to dw_encoder_take_reply, also after an error.
 *
 * Errors: ARGUMENT, FORMAT, VERSION, CORRUPT, SHAPE, MISMATCH, LIMIT, BUFFER_TOO_SMALL, NO_MEMORY,
 * STALE, BASE, STATE, UNSUPPORTED (a decoder on a GPU). A refused frame changes neither state nor
 * y, with one exception: a copy whose digest no longer matches is dropped. If the keys of a refused
 * frame could be read, the reply is a NACK that says what the decoder holds of them, or an ACK if
 * the frame is a duplicate of one that was accepted. */
DW_API dw_status dw_decode(dw_decoder *decoder, const void *frame, size_t len, const dw_tensor *y,
                           const dw_decode_options *options, void *reply, size_t reply_cap,
                           size_t *reply_len);

/* Sets *len to the largest length that the next frame for these keys can have, as far as the
 * decoder can know it, and with room for a forgotten key per sample. It is meant for transports
 * that must post a receive of a known size. shape: n, t, c and dtype of the tensor that the other
 * end will encode; its data is not used. The decoder does not know what the encoder has forgotten,
 * must send again or has no quota for. So pass the same limit to the encoder
 * (dw_encode_options.limit), which can always keep it if both ends have seen the same frames.
 * Errors: ARGUMENT, LIMIT. */
DW_API dw_status dw_decoder_expect(dw_decoder *decoder, const dw_key *keys, const dw_tensor *shape,
                                   size_t *len);

/* Like the functions of the encoder. */
DW_API dw_status dw_decoder_prefetch(dw_decoder *decoder, const dw_key *keys, size_t n);
DW_API dw_status dw_decoder_peek(const dw_decoder *decoder, dw_key key, dw_tensor *prev);
DW_API dw_status dw_decoder_count(const dw_decoder *decoder, dw_counters *counters);
DW_API const char *dw_decoder_why(const dw_decoder *decoder);

/* ---------------------------------------------------------------------------------------------
 * Saving the state of keys, for checkpoints. docs/format.md, 7, specifies the bytes, which are the
 * same on all machines, on CPU and GPU. Save both ends between the same two frames. Restore into a
 * new encoder and decoder of the same configs that have seen no frame: the first import sets the
 * saved incarnation, and training continues where it was. A key that only one end has is repaired
 * like a lost frame.
 *
 * export: calls visit with the state of a key; key NULL: of one key after the other, those included
 * that the decoder has still to forget, and then, with rate or where numbers are drawn and no key
 * was visited, with what the encoder goes on with (key {~0, ~0}; only this call saves it). If visit
 * returns another status than DW_OK, so does export. visit must not call the object. import:
 * replaces what is held of the key.
 *
 * Errors: ARGUMENT (the key, or with NULL any key, is in a frame in flight; it is not held),
 * NO_MEMORY, FORMAT, VERSION, CORRUPT, MISMATCH (saved by the other kind of end, or under
 * another incarnation), LIMIT (quota_bytes), IO (a copy from or to a GPU failed), those of
 * host.backing. Nothing is changed then. */
typedef dw_status dw_saved_visit(void *context, dw_key key, const void *saved, size_t len);
DW_API dw_status dw_encoder_export(dw_encoder *encoder, const dw_key *key, dw_saved_visit *visit,
                                   void *context);
DW_API dw_status dw_encoder_import(dw_encoder *encoder, const void *saved, size_t len);
DW_API dw_status dw_decoder_export(dw_decoder *decoder, const dw_key *key, dw_saved_visit *visit,
                                   void *context);
DW_API dw_status dw_decoder_import(dw_decoder *decoder, const void *saved, size_t len);

/* ---------------------------------------------------------------------------------------------
 * Inspecting frames and replies without decoding them, for tools and for programs that route
 * frames. Threads: these functions have no state. */
/* What an entry does to the state of its key, at both ends. */
typedef enum dw_role {
    DW_ROLE_STATELESS = 1, /* nothing */
    DW_ROLE_KEY = 2,       /* prev becomes x as reconstructed by the form */
    DW_ROLE_DELTA = 3,     /* prev becomes prev + the change as reconstructed by the form */
    DW_ROLE_SKIP = 4,      /* prev keeps its value, under a new version and chain; no payload */
    DW_ROLE_SYNC = 5       /* prev becomes the encoder's prev, exactly */
} dw_role;

typedef struct dw_frame_info {
    size_t struct_size; /* set by the caller: sizeof(dw_frame_info) */
    uint8_t version_major, version_minor;
    uint64_t incarnation, sequence, seed;
    uint64_t length; /* bytes of the frame; bytes behind it do not belong to it */
    uint32_t n, t, c;
    dw_dtype x;
    int wants_reply, draws_alike; /* draws_alike: its places follow from seed and keys alone */
    uint32_t n_forgotten;         /* keys that the decoder is told to drop */
    dw_config config;             /* the options that both ends must agree on, defaults filled in */
} dw_frame_info;

typedef struct dw_entry_info {
    dw_key key;
    dw_role role;
    dw_form_name form; /* 0: no payload */
    uint64_t base_chain, payload_digest, state_digest;
    uint64_t payload_offset, payload_bytes; /* within the frame */
} dw_entry_info;

typedef struct dw_reply_info {
    size_t struct_size; /* set by the caller: sizeof(dw_reply_info) */
    int accepted;       /* 1: ACK; 0: NACK */
    /* A NACK after which the encoder must take a new incarnation: the decoder has seen a later one,
     * or its quota has no room for the frame's keys, although that of the encoder has. */
    int replaced;
    uint64_t incarnation, sequence;
    uint32_t n;
} dw_reply_info;

typedef struct dw_reply_entry {
    dw_key key;
    int held; /* 0: the decoder holds nothing of this key */
    /* version: sequence of the frame that made the held copy. If held is 0: the decoder refuses key
     * entries of this key in frames up to this sequence; 0: none. chain: 0 if no delta fits it. */
    uint64_t incarnation, version, chain;
} dw_reply_entry;

/* Sets *len to the length in bytes of the frame that begins at `frame`, given its first `have`
 * bytes. So a reader of a stream knows how much to wait for and where the next frame begins. The
 * length is bounded by the shape in the header, whose digest is verified. PENDING: fewer than the
 * 80 bytes of a header are there; *len is then 80. Errors: ARGUMENT, FORMAT, VERSION, CORRUPT. */
DW_API dw_status dw_frame_length(const void *frame, size_t have, uint64_t *len);

/* Reads header and tables of a frame into *info, whose struct_size the caller has set. Payloads are
 * not read. Errors: ARGUMENT, FORMAT, VERSION, CORRUPT, with a sentence in *why. */
DW_API dw_status dw_frame_read(const void *frame, size_t len, dw_frame_info *info, dw_why *why);
/* dw_frame_entries reads entries [first, first + n). dw_frame_keys reads the keys of all entries; n
 * must be the frame's. dw_frame_forgotten reads the i-th key that the frame announces as forgotten.
 * Each call checks the tables again, so read many entries per call. Errors: as dw_frame_read;
 * ARGUMENT (there is no such entry or key); SHAPE (n is not the frame's). */
DW_API dw_status dw_frame_entries(const void *frame, size_t len, uint32_t first, uint32_t n,
                                  dw_entry_info *entries);
DW_API dw_status dw_frame_keys(const void *frame, size_t len, uint32_t n, dw_key *keys);
DW_API dw_status dw_frame_forgotten(const void *frame, size_t len, uint32_t i, dw_key *key);
/* Read a reply into *info, whose struct_size the caller has set, and its i-th entry into *entry.
 * Errors: ARGUMENT, FORMAT, VERSION, CORRUPT. */
DW_API dw_status dw_reply_read(const void *reply, size_t len, dw_reply_info *info, dw_why *why);
DW_API dw_status dw_reply_entry_read(const void *reply, size_t len, uint32_t i,
                                     dw_reply_entry *entry);
#ifdef __cplusplus
}
#endif
#endif
