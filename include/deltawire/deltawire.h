/* SPDX-License-Identifier: Apache-2.0
 * deltawire.h - the pure layer: tensors to frames and back; no I/O, no threads, no globals. */
#ifndef DELTAWIRE_H
#define DELTAWIRE_H

#include <stddef.h>
#include <stdint.h>

#include "deltawire/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what the shared library exports. Define it as nothing for tools that read C without its
 * extensions: cffi, pycparser. */
#ifndef DW_API
#if defined(__GNUC__)
#define DW_API __attribute__((visibility("default")))
#else
#define DW_API
#endif
#endif

/* ---------------------------------------------------------------------------------------------
 * Words. x: the activation, gradient or other tensor to send, (N, T, C): N samples, T tokens, C
 * channels. key: (sample, slice), the name under which both ends keep prev, the last
 * reconstruction. delta = x - prev. group: G consecutive channels of one token that share one
 * scale; value = code * scale. A frame carries N entries; each is a key entry (x itself), a delta
 * entry (the change), or a stateless one. docs/format.md is the specification of every byte. */

/* Status of every call. Zero is success; results arrive through out-parameters only. On any error
 * the object, the caller's tensors and the peer's view of us are as they were before the call. */
typedef enum dw_status {
    DW_OK = 0,
    DW_PENDING = 1, /* not yet: call again later */

    /* -1...: the call did nothing */
    DW_ERR_ARGUMENT = -1,    /* NULL, zero extent, doubled key, a handle of another kind */
    DW_ERR_CONFIG = -2,      /* a config word is unknown or out of range */
    DW_ERR_NO_MEMORY = -3,   /* the allocator returned NULL */
    DW_ERR_NO_ROOM = -4,     /* the caller's buffer is too small */
    DW_ERR_UNSUPPORTED = -5, /* valid, but this build or machine cannot do it */
    DW_ERR_LIMIT = -6,       /* a size past a limit or past what size_t can hold */
    DW_ERR_FORMAT = -7,      /* not a frame, cut short, or fields that contradict each other */
    DW_ERR_VERSION = -8,     /* a frame or peer of another format version */
    DW_ERR_CORRUPT = -9,     /* a checksum does not match */
    DW_ERR_SHAPE = -10,      /* the frame's shape is not the tensor's */
    DW_ERR_MISMATCH = -11,   /* the peer was configured otherwise */
    DW_ERR_IO = -12,         /* a file or the operating system failed */

    /* -20...: the two ends are out of step; feedback heals it */
    DW_ERR_STALE = -20, /* a duplicate or an older frame: already applied */
    DW_ERR_BASE = -21,  /* the delta's base is not what the decoder holds */
    DW_ERR_STATE = -22, /* the reconstruction's digest is not the encoder's */

    /* -40...: the link is dead */
    DW_ERR_TIMEOUT = -40,   /* the peer did not answer in time */
    DW_ERR_PEER = -41,      /* the peer closed the link or died */
    DW_ERR_ADDRESS = -42,   /* cannot resolve, bind or reach the address */
    DW_ERR_CANCELLED = -43, /* dw_link_cancel was called */
    DW_ERR_PROTOCOL = -44,  /* the peer does not speak our protocol */
    DW_ERR_AUTH = -45       /* the peer is not who it must be, or takes us for a stranger */
} dw_status;

/* A sentence for a status; never NULL. */
DW_API const char *dw_status_string(dw_status status);

/* The version that was linked, DW_VERSION_STRING of its build. */
DW_API const char *dw_version(void);

/* Why a call failed, for people. Wherever a function takes one it may be NULL. */
typedef struct dw_why {
    char text[256]; /* one sentence that names the thing and what to do */
    int offset;     /* dw_config_parse: where in the text the offending word starts, else -1 */
} dw_why;

/* ---------------------------------------------------------------------------------------------
 * Tensors: borrowed, strided views; channels are contiguous.
 *
 * | name     | unit     | meaning                                              | owner  |
 * | data     |          | element (0, 0, 0), aligned to its dtype              | caller |
 * | n, t, c  |          | extents, each >= 1; n*t*c*4 must fit in PTRDIFF_MAX  |        |
 * | stride_n | elements | from one sample to the next                          |        |
 * | stride_t | elements | from one token to the next, >= c                     |        |
 */
typedef enum dw_dtype { DW_F32 = 1, DW_F16 = 2, DW_BF16 = 3 } dw_dtype;

typedef struct dw_tensor {
    void *data;
    dw_dtype dtype;
    uint32_t n, t, c;
    int64_t stride_n, stride_t;
} dw_tensor;

/* A dense view of n*t*c elements. */
DW_API dw_tensor dw_tensor_3d(void *data, dw_dtype dtype, uint32_t n, uint32_t t, uint32_t c);

/* Bytes of one element; 0 for no dtype of ours. */
DW_API size_t dw_dtype_bytes(dw_dtype dtype);

/* A view of a DLTensor (DLPack; a DLManagedTensor begins with one), with where it lies, as DLDevice
 * says: 1 host, 2 CUDA, 3 pinned host memory; and with the stream that its owner gave with it.
 *
 * | extents      | become      | condition                                                     |
 * | (C)          | (1, 1, C)   |                                                               |
 * | (T, C)       | (1, T, C)   | or (N, C): (N, 1, C), with DW_DLPACK_ROWS_ARE_SAMPLES         |
 * | (N, T, C)    | (N, T, C)   |                                                               |
 * | (N, A, B, C) | (N, A*B, C) | every step along A is as long as B steps along B              |
 *
 * Errors: ARGUMENT (channels with gaps, other extents), LIMIT, UNSUPPORTED (no dtype of ours). */
typedef struct dw_dlpack_view {
    dw_tensor tensor;
    int device_type, device_id;
    void *stream;
} dw_dlpack_view;
DW_API dw_status dw_tensor_from_dlpack(dw_dlpack_view *view, const void *dl_tensor, void *stream);

/* The same for what a capsule of __dlpack__ holds: a DLManagedTensor ("dltensor"), or a
 * DLManagedTensorVersioned ("dltensor_versioned", DLPack 1.0 and later). The caller keeps it alive
 * while the view is used, and calls its deleter afterwards. flags: those below. Errors: those
 * above, *view as it was, and a sentence in *why; also UNSUPPORTED (another major version of
 * DLPack) and ARGUMENT (read only, but DW_DLPACK_WRITES; unknown flags). */
enum {
    DW_DLPACK_VERSIONED = 1,       /* managed is a DLManagedTensorVersioned */
    DW_DLPACK_WRITES = 2,          /* the view will be written: a y, not an x */
    DW_DLPACK_ROWS_ARE_SAMPLES = 4 /* two extents are (N, C), not (T, C) */
};
DW_API dw_status dw_tensor_from_dlpack_managed(dw_dlpack_view *view, const void *managed,
                                               unsigned flags, void *stream, dw_why *why);

/* Frozen, as dw_tensor and dw_allocator: these three are passed in arrays or by value, and never
 * change in any version. */
typedef struct dw_key {
    uint64_t sample; /* stays the same in every epoch */
    uint32_t slice;  /* token slice of the sample, 0 where samples are not cut */
} dw_key;

/* ---------------------------------------------------------------------------------------------
 * Configuration. As text: "delta:bits=4,group=64,key=8,prev=bf16", "direct:bits=6",
 * "raw:f32"; docs/codecs.md has every option with its range and default. Zero
 * means default in every field. */
typedef enum dw_codec {
    DW_CODEC_DELTA = 1,  /* the change since the sample's last visit (AQ-SGD) */
    DW_CODEC_DIRECT = 2, /* the tensor itself, quantized in groups */
    DW_CODEC_RAW = 3,    /* floats as they are */
    DW_CODEC_MX = 4      /* the tensor itself, in an OCP microscaling format */
} dw_codec;
typedef enum dw_scale { DW_SCALE_ABSMAX = 1, DW_SCALE_SIGNED = 2, DW_SCALE_MSE = 3 } dw_scale;
typedef enum dw_rounding { DW_ROUNDING_NEAREST = 1, DW_ROUNDING_STOCHASTIC = 2 } dw_rounding;
typedef enum dw_choose { DW_CHOOSE_GROUP = 1, DW_CHOOSE_NEVER = 2 } dw_choose;
typedef enum dw_replies { DW_REPLIES_ALWAYS = 1, DW_REPLIES_NEVER = 2 } dw_replies;

/* How values become bytes. */
typedef enum dw_form_name {
    DW_FORM_FLOATS = 1,    /* f32, f16 or bf16 as they are */
    DW_FORM_QUANTIZED = 2, /* 1 to 8 bits, a scale for each group */
    DW_FORM_MX = 3         /* OCP microscaling: blocks of 32 that share a power of two */
} dw_form_name;

/* A word for a form, as docs/codecs.md has it: "floats", "quantized", "mx"; "none" for 0, which is
 * the form of entries without a payload, and "?" for what is no form. Never NULL. */
DW_API const char *dw_form_string(dw_form_name form);

/* The elements of microscaling: OCP Microscaling Formats (MX) Specification 1.0. */
typedef enum dw_element {
    DW_ELEMENT_INT8 = 1, /* MXINT8: two's complement, in units of 2^-6 */
    DW_ELEMENT_E4M3 = 2, /* MXFP8 */
    DW_ELEMENT_E5M2 = 3,
    DW_ELEMENT_E3M2 = 4, /* MXFP6 */
    DW_ELEMENT_E2M3 = 5,
    DW_ELEMENT_E2M1 = 6 /* MXFP4 */
} dw_element;

/* group: all channels of a token share one scale; each channel has one for all tokens */
enum { DW_GROUP_ROW = 0xffff, DW_GROUP_CHANNEL = 0xfffe };

/* How x itself travels where there is no base: 2..8 bits in groups, a float format, or, where
 * changes are microscaled, DW_KEY_ELEMENT + a dw_element. */
enum {
    DW_KEY_ELEMENT = 64,
    DW_KEY_F16 = 16,
    DW_KEY_BF16 = 17,
    DW_KEY_F32 = 32,
    DW_KEY_RAW = 1 /* x's own dtype */
};

/* All callbacks belong to one object and are called from the thread that calls into it. A dw_task
 * may run in any. */
typedef void dw_task(void *task_context, size_t i);
typedef struct dw_allocator {
    void *(*allocate)(void *context, size_t bytes, size_t alignment); /* NULL: no memory */
    void (*release)(void *context, void *memory, size_t bytes);
    void *context;
} dw_allocator;

enum { DW_AUDIT_NEVER = 0xff };

/* A config. Begin with dw_config_init or dw_config_parse: they set struct_size, by which a later
 * version of the library knows how much of the struct this program has; what is missing is default.
 * A struct that is longer than the library's is accepted where all that it has more is zero. */
typedef struct dw_config {
    size_t struct_size;
    dw_codec codec;
    dw_form_name form; /* of changes: DW_FORM_QUANTIZED or DW_FORM_MX */
    dw_element element;
    uint32_t bits;
    uint32_t group;
    dw_scale scale;
    dw_rounding rounding;
    uint64_t seed;
    uint32_t key;
    dw_dtype raw;
    dw_dtype prev;
    dw_choose choose;
    dw_replies replies;
    uint32_t audit;
    uint64_t quota_bytes;
    uint64_t incarnation;
    dw_allocator allocator;            /* all NULL: malloc and free */
    uint64_t (*now_ns)(void *context); /* NULL: the time counters stay 0 */
    void *now_context;
    /* Calls task(task_context, i) once for every i below n, in any order and from any threads, and
     * returns when all have returned. What is computed does not depend on it. NULL: the library
     * uses no threads. Not called for small tensors. */
    void (*parallel_for)(void *context, size_t n, dw_task *task, void *task_context);
    void *parallel_context;
} dw_config;

/* Fills the first struct_size bytes of *config with defaults; struct_size: sizeof(dw_config) as the
 * program was compiled. Errors: ARGUMENT (NULL, or shorter than any version's). */
DW_API dw_status dw_config_init(dw_config *config, size_t struct_size);

/* Sets *config, struct_size bytes of it as dw_config_init, to what text says. Errors: CONFIG, with
 * the offending word, its place and what is allowed in *why; *config is then as it was. */
DW_API dw_status dw_config_parse_sized(dw_config *config, size_t struct_size, const char *text,
                                       dw_why *why);
#define dw_config_parse(config, text, why)                                                         \
    dw_config_parse_sized(config, sizeof(dw_config), text, why)

/* Writes the canonical text: the codec, and the options that are not default, in one order. Configs
 * that mean the same have the same text. Callbacks and the allocator have no text. Errors: CONFIG,
 * NO_ROOM; text is then "". */
enum { DW_CONFIG_TEXT_BYTES = 256 }; /* enough for any config */
DW_API dw_status dw_config_format(const dw_config *config, char *text, size_t cap);

/* As dw_config_format, with only what both ends of a wire must agree on. */
DW_API dw_status dw_config_agreement(const dw_config *config, char *text, size_t cap);

/* Room that is enough for any frame of x: exact but for delta, for which it holds n entries of
 * the largest kind and n forgotten keys. 0 where config or x is not valid. Pure function of
 * (config, shape). */
DW_API size_t dw_frame_bound(const dw_config *config, const dw_tensor *x);

/* The bytes that a reply to a frame of n samples can take at most. */
DW_API size_t dw_reply_bound(uint32_t n);

/* ---------------------------------------------------------------------------------------------
 * Counters, since creation. Norms are sums over a sample of the elements (one in 32 or so), so only
 * their quotients mean something: sqrt(delta_square / x_square) is |x - prev| / |x|. */
typedef struct dw_counters {
    size_t struct_size;         /* set by the caller: sizeof(dw_counters) */
    uint64_t frames;            /* encoded, or decoded and accepted */
    uint64_t key_entries;       /* entries that carried x itself into state */
    uint64_t delta_entries;     /* entries that carried a change: the hits */
    uint64_t stateless_entries; /* entries that touched no state */
    uint64_t raw_bytes;         /* bytes of the tensors */
    uint64_t encoded_bytes;     /* bytes of the frames */
    uint64_t groups;            /* quantized groups ... */
    uint64_t direct_groups;     /* ... of delta entries, in which direct was the better choice */
    uint64_t zero_groups;       /* ... with nothing above 2^-96; blocks of mx: with scale 0 */
    /* ... that held NaN or Inf; encoder: also each such value of a float key entry. */
    uint64_t poisoned_groups;
    uint64_t acks, nacks;     /* replies: taken (encoder) or given (decoder) */
    uint64_t rebases;         /* NACKs answered with a delta from an older base */
    uint64_t resyncs;         /* entries re-sent from prev */
    uint64_t rejected_frames; /* decoder: frames that changed nothing */
    uint64_t keys_held;       /* now, not since creation */
    uint64_t state_bytes;     /* now: what all copies of prev and their bookkeeping take */
    /* now: taken beside them, free for the next copies, and tables; at most what state_bytes lately
     * was and 2 MiB, but for free room between copies that are held. */
    uint64_t slack_bytes;
    uint64_t busy_ns;                            /* inside encode or decode, by config.now_ns */
    double x_square, delta_square, error_square; /* encoder only */
} dw_counters;

/* ---------------------------------------------------------------------------------------------
 * Encoder. One per direction and tensor of a model; not thread-safe, different ones independent. */
typedef struct dw_encoder dw_encoder;

/* Makes an encoder of a config, or of a config's text ("delta:bits=4"). On an error *encoder is
 * NULL, and why (which may be NULL) says in a sentence what is wrong and what is allowed. Errors:
 * ARGUMENT, CONFIG, NO_MEMORY. */
DW_API dw_status dw_encoder_create(dw_encoder **encoder, const dw_config *config);
DW_API dw_status dw_encoder_create_why(dw_encoder **encoder, const dw_config *config, dw_why *why);
DW_API dw_status dw_encoder_create_text(dw_encoder **encoder, const char *text, dw_why *why);
DW_API void dw_encoder_destroy(dw_encoder *encoder); /* NULL is fine */

/* Turns x into one frame and advances prev of its keys, as the decoder will (AQ-SGD, Algorithm 1).
 *
 * | name  | shape     | unit  | meaning                                  | owner  |
 * | keys  | (x->n)    |       | one per sample, all different            | caller |
 * | x     | (N, T, C) |       | any dtype, strided                       | caller |
 * | frame | (cap)     | bytes | room; dw_frame_bound is enough           | caller |
 * | *len  |           | bytes | of the frame                             |        |
 *
 * Errors: ARGUMENT, NO_ROOM, NO_MEMORY, LIMIT, each with state as it was. NaN and Inf, in x or in x
 * - prev, are no error: their group is poisoned (the peer sees NaN there, prev stays) and counted.
 * A full quota is no error: the sample travels stateless. State: a key's first visit, a changed
 * shape and a lost frame give a key entry, all others delta. Source: arXiv:2206.01299, Algorithm 1;
 * docs/format.md, Exactness. */
DW_API dw_status dw_encode(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x, void *frame,
                           size_t cap, size_t *len);

/* What dw_encode_with may be told. Zero means default in every field.
 *
 * | name           | meaning                                                                     |
 * | struct_size    | sizeof(dw_encode_options)                                                   |
 * | stateless      | not 0: no entry touches state; keys may be NULL                             |
 * | limit          | not 0: the frame takes at most so many bytes. What does not fit as a key    |
 * |                | entry travels stateless, as short as a change; forgotten keys wait          |
 * | reconstruction | a tensor of x's shape that gets what the decoder will make of the frame, or |
 * |                | NULL                                                                        |
 */
typedef struct dw_encode_options {
    size_t struct_size;
    int stateless;
    size_t limit;
    const dw_tensor *reconstruction;
} dw_encode_options;

/* As dw_encode, with options (NULL: none). Errors: those of dw_encode; NO_ROOM too where nothing
 * can be made as short as the limit; SHAPE: of the reconstruction. */
DW_API dw_status dw_encode_with(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x,
                                const dw_encode_options *options, void *frame, size_t cap,
                                size_t *len);

/* Takes the peer's reply. An ACK frees the undo copies, a NACK makes the next entry of its keys
 * start from what the peer holds; one that says replaced makes the encoder take a new incarnation.
 * Errors: FORMAT, VERSION, CORRUPT (nothing changed). */
DW_API dw_status dw_encoder_feedback(dw_encoder *encoder, const void *reply, size_t reply_len);

/* Makes a frame that carries prev itself, exactly, for n keys of one shape that were encoded
 * before: what a decoder that missed frames needs to give the tensor it missed, without x. Poisoned
 * groups arrive as prev. Errors: ARGUMENT (a key that is not held), NO_ROOM, NO_MEMORY. A cap of
 * dw_frame_bound of the same config with key = DW_KEY_F32 is enough. */
DW_API dw_status dw_encoder_resync(dw_encoder *encoder, const dw_key *keys, uint32_t n, void *frame,
                                   size_t cap, size_t *len);

/* Forgets a key here and, told in the next frames as far as their room goes (dw_frame_bound has
 * some for it), at the decoder; told again until the decoder has answered, and counted in the quota
 * as long. Unknown keys are fine. */
DW_API dw_status dw_encoder_forget(dw_encoder *encoder, dw_key key);

/* Forgets everything and takes a new incarnation: the next entry of every key is a key entry, and
 * the decoder drops what it held of this encoder's earlier life. Errors: ARGUMENT (a frame is in
 * flight). */
DW_API dw_status dw_encoder_reset(dw_encoder *encoder);

/* A read-only view (1, T, C) of prev, valid until the next call. ARGUMENT: the key is not held. */
DW_API dw_status dw_encoder_peek(const dw_encoder *encoder, dw_key key, dw_tensor *prev);

/* Fills *counters, whose struct_size the caller has set. Errors: ARGUMENT. */
DW_API dw_status dw_encoder_counters(const dw_encoder *encoder, dw_counters *counters);
DW_API const char *dw_encoder_why(const dw_encoder *encoder); /* the last error, in a sentence */

/* ---------------------------------------------------------------------------------------------
 * Decoder. Same rules. Its config must name the same codec, bits, group, key, prev, choose, audit
 * and quota. */
typedef struct dw_decoder dw_decoder;

/* As those of the encoder. */
DW_API dw_status dw_decoder_create(dw_decoder **decoder, const dw_config *config);
DW_API dw_status dw_decoder_create_why(dw_decoder **decoder, const dw_config *config, dw_why *why);
DW_API dw_status dw_decoder_create_text(dw_decoder **decoder, const char *text, dw_why *why);
DW_API void dw_decoder_destroy(dw_decoder *decoder); /* NULL is fine */

/* Turns a frame into y and advances prev of its keys, bit for bit as the encoder did.
 *
 * | name       | shape     | unit  | meaning                                           | owner  |
 * | frame      | (len)     | bytes | any bytes at all                                  | caller |
 * | y          | (N, T, C) |       | shape must equal the frame's; data NULL: advance  | caller |
 * |            |           |       | prev only (read it with dw_decoder_peek)          |        |
 * | reply      | reply_cap | bytes | room for dw_reply_bound(N), or NULL: no reply     | caller |
 * | *reply_len |           | bytes | 0: there is nothing to send back                  |        |
 *
 * Errors: FORMAT, VERSION, CORRUPT, SHAPE, MISMATCH, LIMIT, NO_ROOM, NO_MEMORY, STALE, BASE, STATE.
 * A rejected frame changes neither state nor y, but that a copy found rotten is given up (STATE,
 * and before a NACK names it); where its keys could be read, reply is a NACK that names what is
 * held (an ACK for a duplicate of what is held). */
DW_API dw_status dw_decode(dw_decoder *decoder, const void *frame, size_t len, const dw_tensor *y,
                           void *reply, size_t reply_cap, size_t *reply_len);

/* What dw_decode_with may be told. adds: not 0: y[i] += factor * value, computed as RN(y +
 * RN(factor * value)) in binary32, rounded once more to y's dtype (docs/format.md, 5); NaN and
 * infinities of y and of poisoned groups follow IEEE 754. */
typedef struct dw_decode_options {
    size_t struct_size; /* sizeof(dw_decode_options) */
    int adds;
    float factor;
} dw_decode_options;

/* As dw_decode, with options (NULL: none). */
DW_API dw_status dw_decode_with(dw_decoder *decoder, const void *frame, size_t len,
                                const dw_tensor *y, const dw_decode_options *options, void *reply,
                                size_t reply_cap, size_t *reply_len);

/* How long the next frame for these keys will be at most, as far as the decoder can know: room to
 * post a receive with, where a transport must know before. shape: n, t, c and dtype of the tensor
 * that the other end encodes; its data is not looked at. What the encoder has forgotten, rebases or
 * has no quota for is known to it alone: let it encode with this limit (dw_encode_options), which
 * it can always keep where both ends have seen the same frames. Errors: ARGUMENT, LIMIT. */
DW_API dw_status dw_decoder_expect(dw_decoder *decoder, const dw_key *keys, const dw_tensor *shape,
                                   size_t *len);

DW_API dw_status dw_decoder_peek(const dw_decoder *decoder, dw_key key, dw_tensor *prev);
DW_API dw_status dw_decoder_counters(const dw_decoder *decoder, dw_counters *counters);
DW_API const char *dw_decoder_why(const dw_decoder *decoder);

/* ---------------------------------------------------------------------------------------------
 * Saving what is held of a key, for checkpoints: docs/format.md, 7 has the bytes, which are the
 * same on every machine. Save both ends between the same two frames; restore into an encoder and a
 * decoder of the same configs that have seen no frame: the first import gives them the saved
 * incarnation, and what comes next goes on where they were. A key that only one end has is healed
 * like a lost frame.
 *
 * export: the state of one key into room of cap bytes; *len bytes, also where room is NULL, which
 * only asks. export_all: one key after the other, to a function that ends it by another status than
 * DW_OK and must not call the object. import: takes the place of what is held of the key.
 *
 * Errors: ARGUMENT (the key is not held, or a frame that carries it is in flight; export_all: any
 * frame that carries keys), NO_ROOM, NO_MEMORY, FORMAT, VERSION, CORRUPT, MISMATCH (saved by the
 * other end, or under another incarnation), LIMIT (quota_bytes), IO (prev lies on a GPU: CUDA);
 * nothing is changed then. What one end on a GPU saves, one on the CPU takes, and the other way
 * round. */
typedef dw_status dw_saved_visit(void *context, dw_key key, const void *saved, size_t len);
DW_API dw_status dw_encoder_export(dw_encoder *encoder, dw_key key, void *room, size_t cap,
                                   size_t *len);
DW_API dw_status dw_encoder_export_all(dw_encoder *encoder, dw_saved_visit *visit, void *context);
DW_API dw_status dw_encoder_import(dw_encoder *encoder, const void *saved, size_t len);
DW_API dw_status dw_decoder_export(dw_decoder *decoder, dw_key key, void *room, size_t cap,
                                   size_t *len);
DW_API dw_status dw_decoder_export_all(dw_decoder *decoder, dw_saved_visit *visit, void *context);
DW_API dw_status dw_decoder_import(dw_decoder *decoder, const void *saved, size_t len);

/* ---------------------------------------------------------------------------------------------
 * Reading a frame or a reply without decoding it: for inspectors and for whoever routes frames. */
/* What an entry does to the state of its key at both ends. */
typedef enum dw_role {
    DW_ROLE_STATELESS = 1, /* nothing */
    DW_ROLE_KEY = 2,       /* prev becomes x, as the form gives it back */
    DW_ROLE_DELTA = 3,     /* prev becomes prev plus what the form gives back */
    DW_ROLE_SKIP = 4,      /* prev stays; version and chain advance; there is no payload */
    DW_ROLE_SYNC = 5       /* prev becomes the encoder's prev, exactly */
} dw_role;

typedef struct dw_frame_info {
    size_t struct_size; /* set by the caller: sizeof(dw_frame_info) */
    uint8_t version_major, version_minor;
    uint64_t incarnation, sequence, seed;
    uint64_t length; /* bytes of the frame; what lies behind them does not belong to it */
    uint32_t n, t, c;
    dw_dtype x;
    int wants_reply;
    uint32_t n_forgotten; /* keys the decoder is told to forget */
    dw_config config;     /* what both ends must agree on, defaults filled in */
} dw_frame_info;

typedef struct dw_entry_info {
    dw_key key;
    dw_role role;
    dw_form_name form; /* 0: there is no payload */
    uint64_t base_chain, payload_digest, state_digest;
    uint64_t payload_offset, payload_bytes; /* within the frame */
} dw_entry_info;

typedef struct dw_reply_info {
    size_t struct_size; /* set by the caller: sizeof(dw_reply_info) */
    int accepted;       /* ACK, else NACK */
    /* NACK because the decoder has met a later life of the encoder: take a new incarnation. */
    int replaced;
    uint64_t incarnation, sequence;
    uint32_t n;
} dw_reply_info;

typedef struct dw_reply_entry {
    dw_key key;
    int held; /* 0: the decoder holds nothing of this key */
    /* version: sequence of the frame that made what is held; with held 0: up to which it takes no
     * key frame, or 0. */
    uint64_t incarnation, version, chain;
} dw_reply_entry;

/* Bytes of the frame that begins at `frame`, of which the first `have` bytes are there: what a
 * reader of a stream must wait for, and where the next frame begins. The length is bounded by the
 * shape in the header, whose digest was checked. PENDING: fewer than a header's 80 bytes, *len is
 * how many are needed to know. Errors: ARGUMENT, FORMAT, VERSION, CORRUPT. */
DW_API dw_status dw_frame_length(const void *frame, size_t have, uint64_t *len);

/* Errors: ARGUMENT, FORMAT, VERSION, CORRUPT (header and tables; payloads are not read), SHAPE (n
 * is not N). */
DW_API dw_status dw_frame_read(const void *frame, size_t len, dw_frame_info *info, dw_why *why);
/* Entries [first, first + n), and all N keys; each call reads the tables anew, so ask for many at
 * once. */
DW_API dw_status dw_frame_entries(const void *frame, size_t len, uint32_t first, uint32_t n,
                                  dw_entry_info *entries);
DW_API dw_status dw_frame_keys(const void *frame, size_t len, uint32_t n, dw_key *keys);
DW_API dw_status dw_frame_forgotten(const void *frame, size_t len, uint32_t i, dw_key *key);
DW_API dw_status dw_reply_read(const void *reply, size_t len, dw_reply_info *info, dw_why *why);
DW_API dw_status dw_reply_entry_read(const void *reply, size_t len, uint32_t i,
                                     dw_reply_entry *entry);

#ifdef __cplusplus
}
#endif
#endif
