/* SPDX-License-Identifier: Apache-2.0
 * listener.c - opens a link in a thread, and notes its address. */
#include "listener.h"

static void note_address(void *context, const char *uri)
{
    suite_listener *listener = context;
    const char *port = strrchr(uri, ':');
    pthread_mutex_lock(&listener->lock);
    snprintf(listener->at, sizeof listener->at, "%s", uri);
    listener->port = port ? atoi(port + 1) : 0;
    pthread_cond_broadcast(&listener->changed);
    pthread_mutex_unlock(&listener->lock);
}

static void *open_link(void *context)
{
    suite_listener *me = context;
    me->status = dw_link_open(&me->link, me->uri, &me->options, &me->why);
    if (!me->at[0]) note_address(me, "nowhere"); /* or suite_listen would wait for ever */
    return NULL;
}

void suite_listen(suite_listener *listener)
{
    listener->options.struct_size = sizeof listener->options;
    listener->options.role = DW_LINK_LISTEN;
    listener->options.on_listening = note_address;
    listener->options.listening_context = listener;
    listener->options.cancelled = &listener->cancelled;
    pthread_mutex_init(&listener->lock, NULL);
    pthread_cond_init(&listener->changed, NULL);
    assert_int_equal(pthread_create(&listener->thread, NULL, open_link, listener), 0);
    pthread_mutex_lock(&listener->lock);
    while (!listener->at[0]) pthread_cond_wait(&listener->changed, &listener->lock);
    pthread_mutex_unlock(&listener->lock);
}

void suite_listened(suite_listener *listener)
{
    pthread_join(listener->thread, NULL);
    pthread_mutex_destroy(&listener->lock);
    pthread_cond_destroy(&listener->changed);
}
