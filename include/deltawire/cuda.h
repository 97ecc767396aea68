/* SPDX-License-Identifier: Apache-2.0
 * cuda.h - encoders and decoders on a CUDA device: tensors, frames and prev lie in memory that the
 * device can reach. The bytes are the same as on the CPU. */
#ifndef DELTAWIRE_CUDA_H
#define DELTAWIRE_CUDA_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif

/* A GPU. The library uses its primary context, as frameworks do, and loads libcuda.so.1 at run
 * time. After dw_cuda_close it lives until its last encoder or decoder is destroyed.
 *
 * Errors of open, with *cuda NULL: ARGUMENT; UNSUPPORTED (no driver library, no such device, a
 * driver that is too old, or a build without kernels; *why says which); NO_MEMORY. Threads: several
 * threads may use a dw_cuda; open and close it from one. */
DW_API dw_status dw_cuda_open(dw_cuda **cuda, int device, dw_why *why);
DW_API void dw_cuda_close(dw_cuda *cuda); /* NULL is allowed */

/* An encoder or decoder whose dw_host has a GPU keeps the device open. prev lies in device memory
 * or in pinned host memory; config.quota_bytes limits either. Functions of deltawire.h behave as on
 * the CPU, except: dw_encode, dw_encoder_resync and dw_decode return UNSUPPORTED (use the functions
 * below); peek returns addresses of the device; export, import and, with prev=8 or 4, peek wait for
 * copies on a stream of their own, which may give IO; norms and busy_ns in the counters stay 0.
 * With host.backing, calls that begin a frame, peek, export and import first move the copies that
 * they need to where prev lies, and others to the backing store. In device memory they wait for
 * this on such a stream, too. Where copies have many lengths and the cache holds few of them,
 * device memory is allocated and freed in between, for which the driver may wait for all streams.
 */

/* Asynchronous calls. A call such as dw_encode_async enqueues work on a stream (CUstream or
 * cudaStream_t) and returns a ticket. dw_..._finish asks, without waiting, whether the work is
 * done, and if so commits the frame and ends the ticket. dw_..._cancel drops the frame and ends the
 * ticket.
 *
 * wide table:
 * | name  | memory                | meaning                                                                                              |
 * | x, y  | the device reaches it | y->data NULL: only advance prev (ARGUMENT if the frame has stateless entries)                         |
 * | frame | the device reaches it | aligned to 16; device memory, or pinned host memory if the network reads it from there                |
 * | head  | host                  | the first bytes of a frame: header and tables. The host writes and reads them. May be frame itself,   |
 * |       |                       | if that is host memory. For dw_decode_async it may be longer than the head. With                      |
 * |       |                       | dw_encoder_whole_frames the device writes the head to frame, too                                      |
 *
 * keys, head and the dw_tensor structs are read during the call. The memory of x, frame and y must
 * remain valid and unchanged until finish or cancel has ended the ticket. Several tickets may be in
 * flight, but each key only in one of them (otherwise ARGUMENT, also for dw_encoder_forget). Keys
 * and shapes that were seen before cause no allocations, but for host.backing. Before an object is
 * destroyed, no stream may be working for it. Threads: as for encoders and decoders in deltawire.h.
 *
 * CUDA graphs. If the stream was capturing, finish does not end the ticket. For every further
 * launch of the graph, first call dw_..._again, which prepares the next frame, of the same shape
 * and in the same memory, without any call to the device but for host.backing; then launch the
 * graph once; then call finish. If a graph contains several frames, again must be called for each;
 * if one fails, call it with another frame, or cancel all. cancel ends the ticket; call it while
 * the graph is not running, and never launch the graph afterwards. A graph that captured a failed
 * call must not be launched either. If the stream fails, finish keeps returning PENDING. */
typedef struct dw_encode_ticket dw_encode_ticket;
typedef struct dw_decode_ticket dw_decode_ticket;
/* A size in bytes that is enough for the head of any frame of n samples. */
DW_API size_t dw_frame_head_bound(uint32_t n);

/* Like dw_encode, but asynchronous, and of one encoder or of several of one dw_cuda: all frames, or
 * none, in one launch. Until their tickets end, only one thread may use these encoders. A frame
 * announces at most n forgotten keys. dw_encode_again prepares the
 * next frame of a captured ticket.
 *
 * Errors: those of dw_encode; UNSUPPORTED; IO (CUDA failed). dw_encoder_why of the encoder that
 * caused the error explains it, or of the first encoder if none did. again: UNSUPPORTED if the
 * entries need other kernels than the captured ones (key entries instead of deltas, for
 * example). */
typedef struct dw_encode_item {
    dw_encoder *encoder;
    const dw_key *keys;
    const dw_tensor *x;
    void *frame;
    size_t cap;
    dw_encode_ticket *ticket; /* the result */
} dw_encode_item;
DW_API dw_status dw_encode_async(dw_encode_item *items, size_t count, void *stream);
DW_API dw_status dw_encode_again(dw_encode_ticket *ticket, const dw_key *keys);
/* Like dw_encoder_resync, but asynchronous: a frame that carries prev itself for n keys of the same
 * shape. No other frame can carry these keys until the ticket ends. Its length follows from shape
 * and config; enough is what dw_encoder_resync says.
 * dw_encode_again returns SHAPE for keys of another shape. */
DW_API dw_status dw_encoder_resync_async(dw_encoder *encoder, const dw_key *keys, uint32_t n,
                                         void *frame, size_t cap, void *stream,
                                         dw_encode_ticket **ticket);
/* Returns PENDING, or OK when the frame is complete: *len is its length in bytes, the first
 * *head_len bytes were written to head, and prev is advanced. head may be NULL with
 * dw_encoder_whole_frames. Errors: ARGUMENT; BUFFER_TOO_SMALL (head_cap is too small; call again
 * with more). */
DW_API dw_status dw_encode_finish(dw_encode_ticket *ticket, void *head, size_t head_cap,
                                  size_t *head_len, size_t *len);
/* Drops the frame and ends the ticket; the encoder is as before the call. Returns PENDING while the
 * device is still working on it, unless it was captured. */
DW_API dw_status dw_encode_cancel(dw_encode_ticket *ticket);

/* whole not 0: for later calls the device completes the head of a frame, too, in the order of the
 * stream. Work that is enqueued after the call, such as ncclSend or cudaMemcpyAsync, then finds the
 * complete frame in memory, the same bytes that finish returns. finish is still needed; it advances
 * prev. This works in graphs, too: if a graph is launched again without dw_encode_again, the frame
 * has a header of 80 zero bytes, which no decoder accepts.
 *
 * Do not cancel a frame that was sent if replies are off: it is repaired like a lost frame, by
 * replies. Errors: ARGUMENT; UNSUPPORTED (an encoder on the CPU). Later calls return UNSUPPORTED if
 * this build lacks the kernel. */
DW_API dw_status dw_encoder_whole_frames(dw_encoder *encoder, int whole);

/* Sets *len to the length of the frame in flight in bytes, as soon as async or again has returned
 * (with entropy coding: the most that it can be). A send enqueued after it must carry it. The
 * frames of one graph may differ in length: let it send cap bytes then. The receiver finds the end
 * of a frame by dw_frame_length. Errors: ARGUMENT (no frame is in flight). */
DW_API dw_status dw_encode_length(const dw_encode_ticket *ticket, size_t *len);

/* Like dw_decode, but asynchronous. Errors of the frame are returned by dw_decode_finish, together
 * with the reply; y is undefined then. (Payloads are verified last, so STALE and BASE come before
 * CORRUPT.) The tickets of a decoder must be finished in the order of the calls, otherwise finish
 * returns ARGUMENT. If dw_decode_again returns an error, do not launch the graph; if it is an error
 * of the frame, finish returns it again, with the reply. */
typedef struct dw_decode_item {
    dw_decoder *decoder;
    const void *head, *frame;
    size_t head_len, len;
    const dw_tensor *y;
    dw_decode_ticket *ticket; /* the result */
} dw_decode_item;
DW_API dw_status dw_decode_async(dw_decode_item *items, size_t count, void *stream);
DW_API dw_status dw_decode_again(dw_decode_ticket *ticket, const void *head, size_t head_len,
                                 size_t len);
DW_API dw_status dw_decode_finish(dw_decode_ticket *ticket, void *reply, size_t reply_cap,
                                  size_t *reply_len);
DW_API dw_status dw_decode_cancel(dw_decode_ticket *ticket);

#ifdef __cplusplus
}
#endif
#endif
