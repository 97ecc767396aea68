/* SPDX-License-Identifier: Apache-2.0
 * transport_suite.h - what every backend must pass, and pairs of links for other tests. */
#ifndef DW_TRANSPORT_SUITE_H
#define DW_TRANSPORT_SUITE_H

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "deltawire/transport.h"
#include "support/test.h"

typedef struct suite_backend {
    const char *name;
    const char *uri; /* to listen on; "%d" is replaced by a new number every time */
    const dw_transport *const *transports; /* in addition to those built in; NULL: none */
    int one_process;                       /* both ends must be in the same process */
    const dw_transport_context *contexts;  /* as in dw_link_options */
    const dw_tls_options *tls[2];          /* of the listener and the connector; NULL: none */
} suite_backend;

/* Runs the suite; returns the number of failed tests. */
int run_transport_suite(const suite_backend *backend);
/* The half of it about how links begin and end, which runs first. */
int run_transport_suite_ends(const suite_backend *backend);

/* A timeout that a busy machine does not reach, but after which a hang becomes a failure. */
enum { SUITE_PATIENCE_MS = 60000 };

/* For tests of what happens when a time limit has passed. Something else has to happen first, and a
 * busy machine may take longer for it than a short limit allows. So such a test begins with a short
 * limit, and where that was too short for what has to come first, it repeats with four times as
 * much, up to this. */
enum { SUITE_LONGEST_LIMIT_MS = 20000 };

/* ---- Two ends in one process ----------------------------------------------------------------- */

enum { SUITE_LISTENER = 0, SUITE_CONNECTOR = 1 };

typedef struct suite_pair {
    const suite_backend *backend;
    dw_link_options options[2]; /* may be changed before suite_open */
    const char *prefix[2];      /* put in front of the URI at that end, as "faulty:"; or NULL */
    dw_link *link[2];
    dw_status status[2];
    dw_why why[2];
    char uri[512];
    pthread_mutex_t lock;
    pthread_cond_t listening;
    int is_listening;
} suite_pair;

void suite_prepare(suite_pair *pair, const suite_backend *backend);
/* Opens both ends, which may fail: see `status`. */
void suite_try_open(suite_pair *pair);
/* The same, but the test fails unless both are open. */
void suite_open(suite_pair *pair);
void suite_start(suite_pair *pair, const suite_backend *backend); /* suite_prepare, suite_open */
void suite_close(suite_pair *pair); /* both ends at the same time, as two processes would */

/* Byte i of message number n. */
unsigned char suite_byte(uint64_t n, size_t i);
void suite_fill(unsigned char *data, size_t len, uint64_t n);
/* Whether data is message n. */
int suite_is(const void *data, size_t len, uint64_t n, size_t expected_len);

/* Sends message n, waiting for room in the queue. suite_expect receives and checks it. */
void suite_send(dw_link *link, uint32_t tag, uint64_t n, size_t len);
void suite_expect(dw_link *link, uint32_t tag, uint64_t n, size_t len);
/* Sends message n from this end, and receives it at the other one. */
void suite_pass(dw_link *const links[2], uint64_t from, uint32_t tag, uint64_t n, size_t len);
/* Receives a message and drops it. Returns what dw_link_recv returns. */
dw_status suite_receive(dw_link *link, uint32_t tag, int timeout_ms);
/* Sends messages that nobody receives, until the receiver has reached its limit and nothing has
 * moved for a second. Returns how many were accepted. */
uint64_t suite_send_until_full(dw_link *link, uint32_t tag, size_t len);

int64_t suite_now_ns(void);
void suite_sleep_ms(int ms);

/* How often the library has called malloc, calloc, realloc or aligned_alloc, by -Wl,--wrap. */
long suite_allocations(void);

/* ---- A backend that changes what another one sends ------------------------------------------- */

/* It is "spoiled:" in front of any URI. Before a message is sent, `spoil` is called with it. */
typedef enum suite_verdict { SUITE_PASS, SUITE_DROP, SUITE_TWICE } suite_verdict;
typedef struct suite_spoiler {
    /* May change the bytes and reduce *len. n: how many messages were sent before. */
    suite_verdict (*spoil)(void *context, unsigned char *message, size_t *len, uint64_t n);
    void *context;
} suite_spoiler;

/* Sets the spoiler of all endpoints that are opened from now on. */
void suite_set_spoiler(const suite_spoiler *spoiler);
extern const dw_transport suite_spoiled;

#endif
