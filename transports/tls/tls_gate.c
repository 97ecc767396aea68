/* SPDX-License-Identifier: Apache-2.0
 * tls_gate.c - counts the threads of links that are inside OpenSSL, and lets none in when OpenSSL
 * frees its tables.
 *
 * Where this library is the first in the process to use OpenSSL, it asks it to free nothing at
 * exit, and links work until the process is gone. Where another one was first, that cannot be asked
 * for any more. OpenSSL then calls close_gate before it frees anything. */
#include "tls/tls_gate.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "common/report.h"

/* How long the end of the program waits for other threads, which compute and never wait inside. */
static const int64_t patience_ns = (int64_t)1000 * DW_NS_PER_MS;

/* How long a thread stands before the closed gate once nobody is inside: longer than OpenSSL takes
 * to free its tables. Links end with an error then, and so do threads; and as a thread ends,
 * OpenSSL frees what it has kept for it, which must not happen while it frees everything. */
static const struct timespec pause_length = {.tv_nsec = 100 * DW_NS_PER_MS};

static const struct timespec step = {.tv_nsec = DW_NS_PER_MS / 4};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool is_closed;
static atomic_bool is_freeing;    /* close_gate has ended: OpenSSL frees its tables */
static atomic_int inside;         /* how many threads are */
static _Thread_local int entered; /* how often this thread has entered and not left */
static _Thread_local bool has_paused;

static void close_gate(void)
{
    int64_t until_ns = dw_now_ns() + patience_ns;
    has_paused = true; /* this is the thread that frees the tables */
    atomic_store(&is_closed, true);
    while (atomic_load(&inside) > (entered > 0) && dw_now_ns() < until_ns) nanosleep(&step, NULL);
    atomic_store(&is_freeing, true);
}

/* Where close_gate's thread is gone (in a forked child, say) this ends, too. */
static void stand_before_gate(void)
{
    int64_t until_ns = dw_now_ns() + patience_ns;
    while (!atomic_load(&is_freeing) && dw_now_ns() < until_ns) nanosleep(&step, NULL);
    nanosleep(&pause_length, NULL);
    has_paused = true;
}

/* In a forked child the other threads do not exist. */
static void forget_others(void)
{
    atomic_store(&inside, entered > 0);
}

static void begin(void);

/* Called at exit, before OpenSSL's handler, if there is one, because that was registered earlier.
 * Another thread may be in `begin`, so that OpenSSL does not know close_gate yet. */
static void wait_for_begin(void)
{
    if (entered == 0) pthread_once(&once, begin);
}

/* OpenSSL refuses to begin where it frees its tables already, or has no memory. It calls handlers
 * in the order from the last to the first, so libssl, which has one, begins before. */
static void begin(void)
{
    atexit(wait_for_begin);
    pthread_atfork(NULL, NULL, forget_others);
    if (!OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) || !OPENSSL_atexit(close_gate)) {
        atomic_store(&is_freeing, true);
        atomic_store(&is_closed, true);
    }
}

bool dw_tls_enter(void)
{
    if (entered++ == 0) {
        pthread_once(&once, begin);
        atomic_fetch_add(&inside, 1);
    }
    if (!atomic_load(&is_closed) || (entered > 1 && !has_paused)) return true;
    dw_tls_leave();
    if (!has_paused) stand_before_gate();
    return false;
}

void dw_tls_leave(void)
{
    if (--entered == 0) atomic_fetch_sub(&inside, 1);
}
