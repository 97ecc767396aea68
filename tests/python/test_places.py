# SPDX-License-Identifier: Apache-2.0
# test_places.py - the places of a forward pass, used for its backward pass, through Python.
import pickle

import numpy
from rig import normal, pair, refused

from deltawire import Places


def test_a_backward_pass_through_the_same_elements():
    encoder, decoder = pair("topk:keep=0.2")
    x, gradient = normal((2, 5, 30)), normal((2, 5, 30), 1)
    frame = encoder.encode(x, [1, 2])
    y = numpy.from_dlpack(decoder.decode(frame).tensor)
    ours, theirs = Places(frame), Places(bytearray(frame))
    assert ours.shape == (2, 5, 30) and ours.count == 30
    for n in range(2):
        assert ours.list(n) == numpy.flatnonzero(y[n]).tolist()
    sender, receiver = pair("direct:bits=8")
    z = theirs.gather(gradient)
    assert z.shape == (2, 1, 30)
    back = ours.scatter(receiver.decode(sender.encode(z)).tensor)
    assert back.shape == (2, 5, 30) and back.dtype == "f32"
    assert numpy.abs(numpy.from_dlpack(back) - numpy.where(y != 0, gradient, 0)).max() < 0.05
    assert ours.scatter(z, "bf16").dtype == "bf16"
    assert repr(ours) == "Places(shape=(2, 5, 30), count=30)"


def test_what_has_no_places_is_refused():
    frame = pair("direct")[0].encode(normal((1, 4, 16)))
    with refused("UNSUPPORTED", "all elements"):
        Places(frame)
    frame = bytearray(pair("randk:keep=0.1")[0].encode(normal((1, 4, 16))))
    places = Places(frame)
    with refused("SHAPE", "7 elements of each sample of a tensor (1, 4, 16)"):
        places.gather(normal((1, 4, 15)))
    with refused("SHAPE", "(1, 1, 6)"):
        places.scatter(normal((1, 1, 6)))
    for sample in (1, -1, "0"):
        with refused("ARGUMENT", "from 0 to 0"):
            places.list(sample)
    with refused("ARGUMENT", "cannot be pickled"):
        pickle.dumps(places)
    frame[-1] ^= 1
    with refused("CORRUPT", "digest"):
        Places(frame)
