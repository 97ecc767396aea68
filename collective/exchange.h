/* SPDX-License-Identifier: Apache-2.0
 * exchange.h - operations on their way: what they share, and the files that each do a part of them.
 * All of it is the progress owner's alone.
 *
 * | file             | its part                                                                |
 * | operation.c      | what an operation expects from the other ranks, and when it is finished |
 * | reduce_scatter.c | hop 1: contributions are encoded, sent, received and added              |
 * | one_shot.c       | an all-reduce in one hop: a contribution goes to all, who add it        |
 * | all_gather.c     | hop 2: results are encoded, sent, received and decoded                  |
 * | fan_out.c        | messages with the same body to all other ranks                          |
 * | verifying.c      | each two ranks compare digests of their results                         |
 * | rollback.c       | what an operation that fails gives back: y, and residuals               |
 * | frame.c          | what frames carry, how long they may be, and their messages             |
 * | device.c         | buffers on a GPU: copies to and from main memory                        |
 *
 * A function that returns false because of an error has recorded it in `failure`; nobody ends an
 * operation for that but the progress step. */
#ifndef DW_GROUP_EXCHANGE_H
#define DW_GROUP_EXCHANGE_H

#include "slot.h"

/* The GPU of all jobs that have one, and a stream of the group's own there; set once. */
typedef struct dw_device {
    pthread_mutex_t lock;
    dw_cuda *cuda;
    void *stream;
} dw_device;

typedef struct dw_exchange {
    dw_settings settings;
    dw_failure failure;
    dw_received_pool pool;
    dw_peer *peers; /* (ranks) */
    dw_coding coding;
    dw_device device;
    dw_slot_list running;    /* operations in progress */
    uint64_t early_bytes;    /* of messages of operations that have not begun here, and of slots */
    dw_group_counters count; /* what the progress owner counts */
} dw_exchange;

/* operation.c. begin: begins an operation that a caller has started. take: handles a message of an
 * operation, which belongs to the function; is_new: the slot was made for it. push: sends one frame
 * if there is one and a queue has room; returns whether it did anything. deliver: copies what is
 * not in y yet to y. end: after it the slot holds no messages, and x and y belong to the caller
 * again. fail: the same after an error; returns whether the operation has ended well all the same,
 * because y has been changed already, and is not kept. */
void dw_operation_begin(dw_exchange *exchange, dw_group_slot *slot);
void dw_operation_take(dw_exchange *exchange, dw_group_slot *slot, bool is_new,
                       dw_received *received);
bool dw_operation_push(dw_exchange *exchange, dw_group_slot *slot);
bool dw_operation_is_finished(const dw_group_slot *slot);
void dw_operation_deliver(dw_exchange *exchange, dw_group_slot *slot);
void dw_operation_end(dw_exchange *exchange, dw_group_slot *slot);
bool dw_operation_fail(dw_exchange *exchange, dw_group_slot *slot);

/* frame.c. The header of a message about an operation. to_self: a message of this rank to itself,
 * which has no number and no digest. NULL: no memory. */
dw_message dw_frame_header(const dw_group_slot *slot, int hop, uint32_t part, uint32_t piece);
dw_received *dw_frame_to_self(dw_exchange *exchange, const dw_message *head,
                              const dw_frame_room *frame);
/* The most bytes of the frame of a piece of a contribution, and of a result. */
size_t dw_frame_contribution_bound(dw_exchange *exchange, const dw_group_slot *slot, dw_piece at);
size_t dw_frame_result_bound(dw_exchange *exchange, const dw_group_slot *slot, dw_piece at);
/* What is contributed: a piece of the caller's x. And what is gathered: the sums of a piece, or a
 * piece of the caller's own part. */
dw_tensor dw_frame_contribution(const dw_group_slot *slot, dw_piece at);
dw_tensor dw_frame_result(const dw_group_slot *slot, dw_piece at);

/* reduce_scatter.c. begin: nothing has been added. contribute: sends the next contribution, and
 * returns whether it did. add: adds contributions that wait, to one piece; returns whether there
 * were any. take: handles a contribution, which belongs to the function. */
void dw_reduce_scatter_begin(dw_exchange *exchange, dw_group_slot *slot);
bool dw_reduce_scatter_contribute(dw_exchange *exchange, dw_group_slot *slot);
bool dw_reduce_scatter_add(dw_exchange *exchange, dw_group_slot *slot);
void dw_reduce_scatter_take(dw_exchange *exchange, dw_group_slot *slot, dw_received *received);
/* encode: this rank's contribution to one piece of a part. put: stores a contribution to a piece,
 * of any rank, until its turn comes; then adds all contributions whose turn has come, or leaves
 * that to dw_reduce_scatter_add. drop: frees all that wait. */
bool dw_reduce_scatter_encode(dw_exchange *exchange, dw_group_slot *slot, uint32_t part,
                              uint32_t piece, dw_frame_room *frame);
void dw_reduce_scatter_put(dw_exchange *exchange, dw_group_slot *slot, uint32_t piece,
                           dw_received *received);
void dw_reduce_scatter_drop(dw_exchange *exchange, dw_group_slot *slot);

/* one_shot.c. Encodes the next piece for all, and takes it itself, or sends one that was kept;
 * returns whether it did either. */
bool dw_one_shot_contribute(dw_exchange *exchange, dw_group_slot *slot);

/* all_gather.c. begin: nothing has come. is_ready: an own piece can be sent. share: encodes one
 * piece for all, and returns whether it did. take: handles a result, which belongs to the function.
 * accept: decodes a result that waits; returns whether there was one. finish: decodes all that
 * wait, in an operation that is safe; returns whether the operation is finished. drop: frees all
 * that wait. */
void dw_all_gather_begin(dw_exchange *exchange, dw_group_slot *slot);
void dw_all_gather_is_ready(dw_group_slot *slot, uint32_t piece);
bool dw_all_gather_share(dw_exchange *exchange, dw_group_slot *slot);
void dw_all_gather_take(dw_exchange *exchange, dw_group_slot *slot, dw_received *received);
bool dw_all_gather_accept(dw_exchange *exchange, dw_group_slot *slot);
bool dw_all_gather_finish(dw_exchange *exchange, dw_group_slot *slot);
void dw_all_gather_drop(dw_exchange *exchange, dw_group_slot *slot);

/* fan_out.c. start: nothing was made. begin: finds room for a frame of frame->cap bytes in the
 * links to ranks that have all earlier messages: bodies[r] is for rank r, or NULL, and the frame is
 * in the first of them. Returns false if there is room in none, or a rank is too far behind. end:
 * sends the frame to the ranks that have a body, and keeps it for the others; head: without a
 * number. Returns false if the group has failed. drop: returns the room. send: sends one message
 * that was kept to one rank; returns whether it did. free: frees all that are kept. */
void dw_fan_out_start(const dw_exchange *exchange, dw_group_slot *slot);
bool dw_fan_out_begin(dw_exchange *exchange, const dw_group_slot *slot, dw_frame_room *frame,
                      unsigned char *bodies[DW_GROUP_MOST_RANKS]);
bool dw_fan_out_end(dw_exchange *exchange, dw_group_slot *slot,
                    unsigned char *bodies[DW_GROUP_MOST_RANKS], const dw_message *head,
                    const dw_frame_room *frame);
void dw_fan_out_drop(dw_exchange *exchange, unsigned char *bodies[DW_GROUP_MOST_RANKS]);
bool dw_fan_out_send(dw_exchange *exchange, dw_group_slot *slot);
void dw_fan_out_free(dw_exchange *exchange, dw_group_slot *slot);

/* verifying.c. is_due: whether an operation compares digests. begin: nothing was sent. compare:
 * when all else is done, sends what can be sent, and compares what has come; returns whether it did
 * anything. take: handles a digest, which belongs to the function. */
bool dw_verifying_is_due(const dw_settings *settings, const dw_group_job *job);
void dw_verifying_begin(const dw_exchange *exchange, dw_group_slot *slot);
bool dw_verifying_compare(dw_exchange *exchange, dw_group_slot *slot);
void dw_verifying_take(dw_exchange *exchange, dw_group_slot *slot, dw_received *received);

/* rollback.c. y: where a piece lies in y. room: where to decode the result of a piece to; if that
 * is y, copies what is there first, and notes this in *taken. output: copies that back to y. keep:
 * with error feedback, keeps a copy of a frame that was just made, under the header `head`; returns
 * false if that failed the group. residuals: when an operation has ended, frees the copies of its
 * frames; undoes: restores the residuals first, which needs x and the sums. */
unsigned char *dw_rollback_y(const dw_group_slot *slot, dw_piece at);
unsigned char *dw_rollback_room(dw_group_slot *slot, unsigned char *taken, dw_piece at);
void dw_rollback_output(const dw_settings *settings, dw_group_slot *slot);
bool dw_rollback_keep(dw_exchange *exchange, dw_group_slot *slot, const dw_message *head,
                      const dw_frame_room *frame);
void dw_rollback_residuals(dw_exchange *exchange, dw_group_slot *slot, bool undoes);

/* device.c. begin: there is none. adopt: this GPU becomes the group's; ARGUMENT if it has another
 * one. fetch: waits for the stream of the job, and copies x to `staged`, which the job has as x
 * then. store: copies so many bytes to y, or the group fails; called by the progress owner. end:
 * frees what adopt made. adopt and fetch are called by those who start operations. */
void dw_device_begin(dw_device *device);
dw_status dw_device_adopt(dw_device *device, dw_cuda *cuda, dw_why *why);
dw_status dw_device_fetch(dw_group_slot *slot, dw_why *why);
void dw_device_store(dw_exchange *exchange, const dw_group_slot *slot, const void *from,
                     size_t bytes);
void dw_device_end(dw_device *device);

#endif
