# SPDX-License-Identifier: Apache-2.0
# 01_round_trip.py - an encoder and a decoder in one process: compression and accuracy.
"""The program sends three samples in every epoch. Like activations, they change a little from one
epoch to the next. The codec delta sends the change of each sample with 4 bits per value, so the
error becomes smaller as the changes do. It prints the size of each frame, and the mean error
relative to the mean absolute value:

    epoch 1:   6608 bytes for   24576, relative error 0.0064, roles {'key'}
    epoch 2:   3584 bytes for   24576, relative error 0.0052, roles {'delta'}
    epoch 3:   3584 bytes for   24576, relative error 0.0026, roles {'delta'}
    epoch 4:   3584 bytes for   24576, relative error 0.0013, roles {'delta'}
    after a lost frame: error BASE, repaired by its reply
"""

import numpy

import deltawire

IDS = [17, 4, 99]  # the samples, with the same ids in every epoch
rng = numpy.random.default_rng(1)
x = rng.standard_normal((3, 16, 128), dtype=numpy.float32)  # (N, T, C)

with deltawire.Encoder("delta:bits=4") as encoder, deltawire.Decoder("delta:bits=4") as decoder:
    for epoch in range(1, 5):
        frame = encoder.encode(x, IDS)
        y, ids, reply = decoder.decode(frame)  # in a real program: on another rank
        encoder.take_reply(reply)
        assert ids == IDS and y.shape == x.shape
        error = numpy.abs(numpy.from_dlpack(y) - x).mean() / numpy.abs(x).mean()
        roles = {entry.role for entry in deltawire.frame_info(frame).entries}
        print(
            f"epoch {epoch}: {len(frame):6} bytes for {x.nbytes:7}, "
            f"relative error {error:.4f}, roles {roles}"
        )
        assert error < 0.03 and len(frame) < x.nbytes / 3
        x += rng.standard_normal(x.shape, dtype=numpy.float32) * 0.1 / 2**epoch

    encoder.encode(x, IDS)  # this frame is lost
    encoder.encode(x, IDS)  # this one, too
    try:
        decoder.decode(encoder.encode(x, IDS))
        raise SystemExit("the decoder accepted a frame although it misses the frame before")
    except deltawire.DeltawireError as refused:
        encoder.take_reply(refused.reply)
        y = decoder.decode(encoder.encode(x, IDS)).tensor
        print(f"after a lost frame: error {refused.status.name}, repaired by its reply")
    assert encoder.counters().nacks == 1
