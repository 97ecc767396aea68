/* SPDX-License-Identifier: Apache-2.0
 * peer_channel.h - the channel of the link that is fuzzed, and the encoder and decoder with which
 * the fuzzer plays the peer's end of it.
 *
 * Functions named say_... send something in the name of the peer. `numbers` counts messages and
 * tensors; their contents depend on it. */
#ifndef DELTAWIRE_TESTS_FUZZ_PEER_CHANNEL_H
#define DELTAWIRE_TESTS_FUZZ_PEER_CHANNEL_H

#include "channel/channel.h"
#include "fuzz.h"

enum { PEER_CHANNEL = 1 }; /* the id of the channel */

void peer_channel_start(void);
void peer_channel_end(void);
dw_channel *peer_channel(void); /* the channel of the link; NULL: it is not open */

/* Takes a message that the link has sent on the channel, as the peer would. */
void peer_channel_hear(const unsigned char *data, size_t len);

void say_frame(fuzz_input *input, uint32_t *numbers);
/* Sends acknowledgements, requests and everything else that the channel of a peer can send; some of
 * them many times. Returns whether the channel may refuse so many requests. */
bool say_control(fuzz_input *input);

/* Calls of the program on this side. */
void open_channel(dw_link *link, fuzz_input *input);
void send_tensor(const dw_link *link, fuzz_input *input, uint32_t *numbers);
/* A received tensor equals, bit for bit, one that the peer's encoder has made. */
void receive_tensor(fuzz_input *input);
/* Compares the keys of both ends. An error drops none. */
void compare_ends(const dw_link *link, fuzz_input *input);

#endif
