/* SPDX-License-Identifier: Apache-2.0
 * cuda.h - encoders and decoders whose tensors, frames and prev lie where a CUDA device reaches
 * them; same bytes as on the CPU. */
#ifndef DELTAWIRE_CUDA_H
#define DELTAWIRE_CUDA_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A device, in the primary context that frameworks use too; libcuda.so.1 is loaded at run time.
 * Once closed it ends with its last encoder or decoder. Errors: UNSUPPORTED (no library, device,
 * new enough driver, or kernels in this build; why says which), NO_MEMORY. */
typedef struct dw_cuda dw_cuda;
DW_API dw_status dw_cuda_open(dw_cuda **cuda, int device, dw_why *why);
DW_API void dw_cuda_close(dw_cuda *cuda); /* NULL is fine */

/* Where prev lies: device memory, or pinned host memory; config.quota_bytes counts either. As
 * dw_encoder_create and dw_decoder_create, and UNSUPPORTED for a codec one of whose forms has no
 * kernels. Of the functions in deltawire.h dw_encode, dw_encoder_resync and dw_decode answer
 * UNSUPPORTED then; peek gives addresses of the device; export and import wait for their copy, on a
 * stream of their own; norms and busy_ns in the counters stay 0. */
typedef enum dw_cuda_place { DW_CUDA_DEVICE = 1, DW_CUDA_PINNED = 2 } dw_cuda_place;
DW_API dw_status dw_encoder_create_cuda(dw_encoder **encoder, const dw_config *config,
                                        dw_cuda *cuda, dw_cuda_place place, dw_why *why);
DW_API dw_status dw_decoder_create_cuda(dw_decoder **decoder, const dw_config *config,
                                        dw_cuda *cuda, dw_cuda_place place, dw_why *why);

/* A call enqueues work on a stream (CUstream, cudaStream_t) and gives a ticket; finish asks for its
 * end without waiting. Keys and shapes seen before allocate nothing. Several tickets may be in
 * flight, each key in one (else ARGUMENT, dw_encoder_forget too). keys, head and views are read at
 * once; x, frame and y stay as they are until finish or cancel, which end the ticket. Destroy only
 * what no stream works for.
 *
 * wide table:
 * | name  | memory                | meaning                                                                                              |
 * | x, y  | the device reaches it | y->data NULL: advance prev only (ARGUMENT where the frame has stateless entries)                     |
 * | frame | the device reaches it | aligned to 16; device memory, or pinned host memory where the network is to read it                  |
 * | head  | host                  | header and tables, the frame's first bytes: the host's part. May be frame itself; decode takes more  |
 * |       |                       | encoders: the device's part, too, after dw_encoder_whole_frames                                      |
 *
 * Where the stream was capturing, the ticket stays after finish: dw_..._again gives its place in
 * the graph the next frame, of the same shape and in the same memory, without a word to the device;
 * then launch the graph once, and finish. A graph of several frames wants again for each: where it
 * fails, again with another frame, or cancel all. The ticket ends with dw_..._cancel, while the
 * graph does not run; after that it must not, nor where a call failed that it captured. If the
 * stream fails, finish stays PENDING. */
typedef struct dw_encode_ticket dw_encode_ticket;
typedef struct dw_decode_ticket dw_decode_ticket;
DW_API size_t dw_frame_head_bound(uint32_t n); /* room enough for a head */

/* As dw_encode; at most n forgotten keys travel in a frame. many: frames of encoders of one dw_cuda
 * in one launch, all or none; one thread's until their tickets end. Errors: those of dw_encode;
 * UNSUPPORTED, IO (CUDA); why is told by the encoder at fault, else by the first. again:
 * UNSUPPORTED for uses of entries (whole, change, exact) that want other kernels than
 * captured. */
DW_API dw_status dw_encode_async(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x,
                                 void *frame, size_t cap, void *stream, dw_encode_ticket **ticket);
typedef struct dw_encode_item {
    dw_encoder *encoder;
    const dw_key *keys;
    const dw_tensor *x;
    void *frame;
    size_t cap;
    dw_encode_ticket *ticket; /* the result */
} dw_encode_item;
DW_API dw_status dw_encode_many_async(dw_encode_item *items, size_t count, void *stream);
DW_API dw_status dw_encode_again(dw_encode_ticket *ticket, const dw_key *keys);
/* As dw_encoder_resync: a frame that carries prev itself for n keys of one shape, which its ticket
 * keeps from other frames meanwhile. Its length follows from shape and config; dw_frame_bound with
 * key = f32 is always enough. again: keys of another shape are SHAPE. */
DW_API dw_status dw_encoder_resync_async(dw_encoder *encoder, const dw_key *keys, uint32_t n,
                                         void *frame, size_t cap, void *stream,
                                         dw_encode_ticket **ticket);
/* PENDING, or OK: the frame is whole, *len bytes, of which head got the first *head_len; prev is
 * advanced. NO_ROOM: head_cap. Of whole frames head may be NULL. */
DW_API dw_status dw_encode_finish(dw_encode_ticket *ticket, void *head, size_t head_cap,
                                  size_t *head_len, size_t *len);
/* As if it had never been; PENDING: still running, unless captured. */
DW_API dw_status dw_encode_cancel(dw_encode_ticket *ticket);

/* Not 0: of later calls the device completes the head as well, in the frame, in the order of the
 * stream. What is enqueued behind the call (ncclSend, cudaMemcpyAsync) finds the whole frame there,
 * the bytes that finish will give; finish still has to come, and advances prev. In graphs too: one
 * that is launched once more without again has 80 bytes of 0 for a header, which no decoder takes.
 * A frame that was sent and is cancelled heals like a lost one, by replies: without them do not
 * cancel it. Errors: ARGUMENT; UNSUPPORTED (an encoder on the CPU); of the later calls, UNSUPPORTED
 * (no such kernel in this build). */
DW_API dw_status dw_encoder_whole_frames(dw_encoder *encoder, int whole);

/* Bytes of the frame in flight, known as soon as async, many or again returned: what a send behind
 * it carries. Frames of one graph differ in length: let it carry cap bytes, what lies behind *len
 * is not the frame's (dw_frame_length). ARGUMENT: none is in flight. */
DW_API dw_status dw_encode_length(const dw_encode_ticket *ticket, size_t *len);

/* As dw_decode. What is wrong with the frame, finish tells, with the reply (STALE and BASE before
 * CORRUPT: payloads are read last); then y is undefined. Tickets of a decoder finish in their
 * order, else ARGUMENT. again: on an error do not launch; where it is the frame's, finish tells it
 * once more, with the reply. */
DW_API dw_status dw_decode_async(dw_decoder *decoder, const void *head, size_t head_len,
                                 const void *frame, size_t len, const dw_tensor *y, void *stream,
                                 dw_decode_ticket **ticket);
typedef struct dw_decode_item {
    dw_decoder *decoder;
    const void *head, *frame;
    size_t head_len, len;
    const dw_tensor *y;
    dw_decode_ticket *ticket; /* the result */
} dw_decode_item;
DW_API dw_status dw_decode_many_async(dw_decode_item *items, size_t count, void *stream);
DW_API dw_status dw_decode_again(dw_decode_ticket *ticket, const void *head, size_t head_len,
                                 size_t len);
DW_API dw_status dw_decode_finish(dw_decode_ticket *ticket, void *reply, size_t reply_cap,
                                  size_t *reply_len);
DW_API dw_status dw_decode_cancel(dw_decode_ticket *ticket);

/* For whoever carries frames through the host, as channels do (transport.h): pinned memory, which
 * the device reaches at the same address; a stream that waits for no other. The device must stay
 * open meanwhile. check: whether a stream (NULL: the default one) can be waited for; wait: until it
 * has done what was enqueued. Errors: ARGUMENT (a stream that is capturing), NO_MEMORY, UNSUPPORTED
 * (no unified addressing), IO (CUDA). Threads: any. */
DW_API dw_status dw_cuda_pin(dw_cuda *cuda, size_t bytes, void **memory, dw_why *why);
DW_API void dw_cuda_unpin(dw_cuda *cuda, void *memory); /* NULL is fine */
DW_API dw_status dw_cuda_stream_create(dw_cuda *cuda, void **stream, dw_why *why);
DW_API void dw_cuda_stream_destroy(dw_cuda *cuda, void *stream); /* NULL is fine */
DW_API dw_status dw_cuda_stream_check(dw_cuda *cuda, void *stream, dw_why *why);
DW_API dw_status dw_cuda_stream_wait(dw_cuda *cuda, void *stream, dw_why *why);
#ifdef __cplusplus
}
#endif
#endif
