/* SPDX-License-Identifier: Apache-2.0
 * mem_wire.h - a backend in memory: the fuzz target fills a queue with what the peer sends, and
 * inspects what the link sends. */
#ifndef DELTAWIRE_TESTS_FUZZ_MEM_WIRE_H
#define DELTAWIRE_TESTS_FUZZ_MEM_WIRE_H

#include "fuzz.h"
#include "link/link.h"

enum { MEM_WIRE_MESSAGES = 32768 };

typedef struct mem_wire {
    /* The messages of the peer, with their headers. */
    struct mem_wire_message {
        unsigned char *data; /* allocated with its exact size, to detect reads past the end */
        size_t len;
        size_t announced; /* the length that the link is told; 0: the real one */
    } queue[MEM_WIRE_MESSAGES];
    unsigned first, n;
    dw_status ends_with;     /* the result when the queue is empty; DW_OK: nothing happens */
    uint64_t received, sent; /* bytes, as poll reports them */
    int is_stuck;            /* accepts no bytes */
    uint64_t keeps;          /* how many sends are kept after they were completed */
    uint32_t retry_ms;
    /* The request of the link. */
    unsigned char *room;
    size_t cap;
    const unsigned char *data;
    size_t len;
    struct mem_wire_kept {
        const unsigned char *data;
        size_t len;
        unsigned char first_byte, last_byte;
    } kept[64];
    unsigned n_kept;
    uint64_t n_sent;
    /* Is called with every message that the link sent. */
    void (*on_sent)(const unsigned char *data, size_t len);
} mem_wire;
extern mem_wire wire;
extern const dw_transport mem_wire_transport;

void mem_wire_start(void);
void mem_wire_end(void);
/* Adds a message of len bytes from the peer, which the caller fills in. NULL: the queue is full. */
unsigned char *mem_wire_add(size_t len);
void mem_wire_keep(uint64_t keeps); /* how many sends are kept from now on */

#endif
