/* SPDX-License-Identifier: Apache-2.0
 * mem_wire.h - a backend in memory: the fuzz target fills a queue with what the peer sends, and
 * inspects what the link sends. */
#ifndef DELTAWIRE_TESTS_FUZZ_MEM_WIRE_H
#define DELTAWIRE_TESTS_FUZZ_MEM_WIRE_H

#include "fuzz.h"
#include "link/link.h"

enum { MEM_WIRE_MESSAGES = 32768 };

typedef struct mem_wire {
    /* The peer's messages, header and all. */
    struct mem_wire_message {
        unsigned char *data; /* malloced at its size, so that nobody reads past it */
        size_t len;
        size_t announced; /* 0: as long as it is */
    } queue[MEM_WIRE_MESSAGES];
    unsigned first, n;
    dw_status ends_with;     /* when the queue is empty; DW_OK: it goes on */
    uint64_t received, sent; /* bytes, as poll tells them */
    int is_stuck;            /* takes nothing */
    uint64_t keeps;          /* so many sends are kept behind their answer */
    uint32_t retry_ms;
    /* What the link asked for. */
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
    /* Told of every message that left. */
    void (*on_sent)(const unsigned char *data, size_t len);
} mem_wire;
extern mem_wire wire;
extern const dw_transport mem_wire_transport;

void mem_wire_start(void);
void mem_wire_end(void);
/* len bytes of a message of the peer's, to be filled in; NULL: the queue is full. */
unsigned char *mem_wire_add(size_t len);
void mem_wire_keep(uint64_t keeps); /* from now on */

#endif
