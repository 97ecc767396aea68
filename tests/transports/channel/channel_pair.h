/* SPDX-License-Identifier: Apache-2.0
 * channel_pair.h - two channels over a backend that treats each message as a plan says. Every
 * function fails the test on an unexpected error. */
#ifndef DW_TEST_CHANNEL_PAIR_H
#define DW_TEST_CHANNEL_PAIR_H

#include "transports/suite/transport_suite.h"

#include "channel/channel.h"
#include "support/tool.h"
#include "whereabouts.h"

enum { N = 2, T = 5, C = 96, ID = 3, KEYS = 6, PATIENCE_MS = 60000 };
enum { TENSOR_BYTES = N * T * C * 4 };

/* Offsets in a message as a backend gets it. */
enum { AT_ENVELOPE = DW_LINK_HEADER_BYTES, AT_FRAME = AT_ENVELOPE + DW_ENVELOPE_BYTES };

typedef struct test_plan {
    uint32_t which;  /* DW_TAG_... */
    int first, last; /* numbers of messages with this tag, from 0, of both ends together */
    suite_verdict verdict;
    int flip_at; /* the byte to change; < 0: counted from the end; NO_FLIP: none */
} test_plan;

enum { NO_FLIP = 0x7fffffff };

/* Plans for the messages first to last of a tag. */
#define DAMAGE(which, first, last, at)                                                             \
    {                                                                                              \
        DW_TAG_##which, first, last, SUITE_PASS, at                                                \
    }
#define LOSE(which, first, last)                                                                   \
    {                                                                                              \
        DW_TAG_##which, first, last, SUITE_DROP, NO_FLIP                                           \
    }
#define DOUBLE(which, first, last)                                                                 \
    {                                                                                              \
        DW_TAG_##which, first, last, SUITE_TWICE, NO_FLIP                                          \
    }

typedef struct test_wire {
    pthread_mutex_t lock;
    test_plan plans[4];
    int count[3];
    int spoiled;
} test_wire;

typedef struct test_channels {
    suite_pair links;
    dw_channel *end[2]; /* end 0 sends */
    dw_channel_config config[2];
    dw_config codec[2];
    dw_status status[2];
    dw_why why[2];
    test_wire wire;
} test_channels;

extern const suite_backend channels_backends[3]; /* loop, tcp, shaped */

void channels_prepare(test_channels *channels, const suite_backend *backend, const char *sends,
                      const char *receives);
void channels_try_open(test_channels *channels); /* may fail: see `status` */
void channels_must_open(test_channels *channels);
void channels_open(test_channels *channels, const suite_backend *backend, const char *config);
void channels_close(test_channels *channels);

/* The counters of the encoder of a channel, and of its decoder. */
dw_counters channels_sent(dw_channel *channel);
dw_counters channels_received(dw_channel *channel);

/* Replaces the receiver's decoder by a new one, as after a crash. */
void channels_lose_state(test_channels *channels);

/* Fills x and keys with tensor number i of a training with KEYS samples, N at a time. The values of
 * a sample drift from epoch to epoch. */
dw_tensor channels_make_tensor(int i, dw_key keys[N], float x[N * T * C]);
void channels_send(test_channels *channels, int i);
dw_status channels_receive(test_channels *channels, int timeout_ms, dw_key keys[N],
                           float y[N * T * C]);
dw_status channels_take(test_channels *channels);   /* receives a tensor, and drops it */
void channels_pass(test_channels *channels, int i); /* sends tensor i and takes it */

/* What must arrive: the same tensors, encoded and decoded without a link. */
typedef struct test_reference {
    test_pair pair;
    int next;
} test_reference;

void channels_expect(test_channels *channels, test_reference *reference, int i);

enum { CHANNELS_CONFIGS = 4 };
extern const char *const channels_configs[CHANNELS_CONFIGS];

/* Sends and receives so many tensors, at most `ahead` of them in flight, under these plans. */
void channels_carry(const suite_backend *backend, const char *config, int tensors, int ahead,
                    const test_plan *plans, size_t n_plans);

#endif
