/* SPDX-License-Identifier: Apache-2.0
 * listener.h - a link that listens in a thread of its own, so that the test can be its peer. */
#ifndef DW_TESTS_LISTENER_H
#define DW_TESTS_LISTENER_H

#include "transport_suite.h"

typedef struct suite_listener {
    dw_link_options options; /* role, on_listening and cancelled are set by suite_listen */
    const char *uri;         /* on which it shall listen */
    char at[128];            /* where it listens, and the port of that */
    int port;
    volatile int cancelled;
    dw_link *link;
    dw_status status; /* of dw_link_open; valid after suite_listened */
    dw_why why;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} suite_listener;

/* Returns when others can connect. Its options and uri are set; all else is zero. */
void suite_listen(suite_listener *listener);

/* Waits until dw_link_open has returned. */
void suite_listened(suite_listener *listener);

#endif
