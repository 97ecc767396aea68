# SPDX-License-Identifier: Apache-2.0
# 01_round_trip.py - an encoder and a decoder in one process: what it saves, and what it loses.
"""Three samples are sent in every epoch, and change a little from one to the next, as activations
do. The codec delta sends each one's change in 4 bits a value; what it loses shrinks with the
change. It prints:

    epoch 1:   6608 bytes for   24576, error 0.0064 of a value's size, roles {'key'}
    epoch 2:   3584 bytes for   24576, error 0.0052 of a value's size, roles {'delta'}
    epoch 3:   3584 bytes for   24576, error 0.0026 of a value's size, roles {'delta'}
    epoch 4:   3584 bytes for   24576, error 0.0013 of a value's size, roles {'delta'}
    a lost frame: BASE, healed by its reply
"""

import numpy

import deltawire

IDS = [17, 4, 99]  # names of the samples, the same in every epoch
rng = numpy.random.default_rng(1)
x = rng.standard_normal((3, 16, 128), dtype=numpy.float32)  # (N, T, C)

with deltawire.Encoder("delta:bits=4") as encoder, deltawire.Decoder("delta:bits=4") as decoder:
    for epoch in range(1, 5):
        frame = encoder.encode(x, IDS)
        y, ids, reply = decoder.decode(frame)  # the other rank has the frame, and nothing else
        encoder.feedback(reply)
        assert ids == IDS and y.shape == x.shape
        error = numpy.abs(numpy.from_dlpack(y) - x).mean() / numpy.abs(x).mean()
        roles = {entry.role for entry in deltawire.frame_info(frame).entries}
        print(
            f"epoch {epoch}: {len(frame):6} bytes for {x.nbytes:7}, "
            f"error {error:.4f} of a value's size, roles {roles}"
        )
        assert error < 0.03 and len(frame) < x.nbytes / 3
        x += rng.standard_normal(x.shape, dtype=numpy.float32) * 0.1 / 2**epoch

    encoder.encode(x, IDS)  # lost on its way
    encoder.encode(x, IDS)  # this one, too
    try:
        decoder.decode(encoder.encode(x, IDS))
        raise SystemExit("a frame whose base is not held was taken")
    except deltawire.DeltawireError as refused:
        encoder.feedback(refused.reply)
        y = decoder.decode(encoder.encode(x, IDS)).tensor
        print(f"a lost frame: {refused.status.name}, healed by its reply")
    assert encoder.counters().nacks == 1
