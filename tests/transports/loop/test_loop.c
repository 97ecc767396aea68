/* SPDX-License-Identifier: Apache-2.0
 * test_loop.c - the backend loop notifies each of two waiting requests. */
#include <poll.h>

#include "transports/suite/transport_suite.h"

#include "common/backends.h"

typedef struct loop_end {
    dw_transport_open how;
    dw_why why;
    void *end, *send, *recv;
    dw_status status;
} loop_end;

static void ignore(void *context, const char *uri) {}

static void *open_end(void *context)
{
    loop_end *side = context;
    side->status = dw_transport_loop.open(side->end, &side->how);
    return NULL;
}

/* Both ends of the backend, used directly, without links and their threads. */
static void open_both(loop_end side[2])
{
    static const volatile int never = 0;
    pthread_t other;
    for (int i = 0; i < 2; i++) {
        side[i] = (loop_end){.end = calloc(1, dw_transport_loop.endpoint_bytes),
                             .send = calloc(1, dw_transport_loop.request_bytes),
                             .recv = calloc(1, dw_transport_loop.request_bytes)};
        side[i].how = (dw_transport_open){.struct_size = sizeof(dw_transport_open),
                                          .address = "bare",
                                          .role = i == 0 ? DW_LINK_LISTEN : DW_LINK_CONNECT,
                                          .timeout_ms = SUITE_PATIENCE_MS,
                                          .cancelled = &never,
                                          .on_listening = ignore,
                                          .why = &side[i].why};
    }
    pthread_create(&other, NULL, open_end, &side[0]);
    open_end(&side[1]);
    pthread_join(other, NULL);
    assert_int_equal(side[0].status, DW_OK);
    assert_int_equal(side[1].status, DW_OK);
}

static void free_end(loop_end *side)
{
    free(side->end);
    free(side->send);
    free(side->recv);
}

static dw_status test_of(loop_end *side, void *request)
{
    size_t len;
    return dw_transport_loop.test(side->end, request, &len, &side->why);
}

static int is_worth_testing(const loop_end *side)
{
    dw_transport_state state = {.struct_size = sizeof state, .wait_fd = -1};
    dw_transport_loop.poll(side->end, 0, &state);
    struct pollfd wait = {.fd = state.wait_fd, .events = (short)state.wait_events};
    return poll(&wait, 1, 0) > 0;
}

TEST(loop_wakeup_stays_until_its_request_is_tested)
{
    loop_end side[2];
    char data[8] = "message", room[2][8];
    open_both(side);
    assert_int_equal(dw_transport_loop.recv(side[0].end, side[0].recv, room[0], 8), DW_OK);
    assert_int_equal(dw_transport_loop.send(side[0].end, side[0].send, data, 8), DW_OK);
    assert_int_equal(dw_transport_loop.recv(side[1].end, side[1].recv, room[1], 8), DW_OK);
    assert_int_equal(test_of(&side[0], side[0].send), DW_PENDING);
    assert_true(is_worth_testing(&side[1]));
    assert_int_equal(test_of(&side[1], side[1].recv), DW_OK); /* this completes the send, too ... */
    assert_int_equal(test_of(&side[0], side[0].recv), DW_PENDING);
    /* ... and testing the other request has not consumed the notice. */
    assert_true(is_worth_testing(&side[0]));
    assert_int_equal(test_of(&side[0], side[0].send), DW_OK);
    assert_false(is_worth_testing(&side[0]));
    for (int i = 0; i < 2; i++) {
        dw_transport_loop.close(side[i].end);
        free_end(&side[i]);
    }
}

TEST(loop_message_is_lost_when_its_sender_closes)
{
    loop_end side[2];
    char *data = malloc(8), room[8];
    open_both(side);
    assert_int_equal(dw_transport_loop.send(side[0].end, side[0].send, data, 8), DW_OK);
    dw_transport_loop.close(side[0].end);
    free(data);
    assert_int_equal(dw_transport_loop.recv(side[1].end, side[1].recv, room, 8), DW_OK);
    assert_int_equal(test_of(&side[1], side[1].recv), DW_ERR_PEER);
    dw_transport_loop.close(side[1].end);
    for (int i = 0; i < 2; i++) free_end(&side[i]);
}

RUN_TESTS(NULL, NULL)
