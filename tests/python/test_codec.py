# SPDX-License-Identifier: Apache-2.0
# test_codec.py - encoders, decoders, configs and the contents of frames, through Python.
import array

import numpy
import pytest
from rig import bits, normal, pair, refused, refuses, same

import deltawire
from deltawire import Config, Encoder, Tensor, Threads

TEXTS = ["delta:bits=4", "delta:bits=1,prev=bf16", "direct:bits=6", "raw:bf16", "mx:element=e4m3"]
TEXTS += ["topk:keep=0.2,bits=4", "randk:keep=0.5"]
TEXTS += ["cocktail:mask=0.3,seed=4", "chunk:chunk=128,keep=0.1", "chunk"]
TEXTS += ["blocks:block=64", "blocks:codebook=quantile"]
TEXTS += ["delta:bits=3,transform=hadamard,rotate=16", "direct:form=step,transform=hadamard"]
TEXTS += ["lowrank:rank=3", "lowrank:bits=8,width=32", "tah"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float16])
def test_the_decoder_gives_what_the_encoder_expects(text, dtype):
    encoder, decoder = pair(text)
    shape = (3, 5, 64 if "hadamard" in text or text == "tah" else 70)
    for visit in range(3):
        x = normal(shape, visit, dtype)
        made = numpy.empty_like(x)
        frame = encoder.encode(x, [7, 2**64 - 1, 0], reconstruction=made)
        assert type(frame) is bytes and len(frame) <= encoder.bound(x)
        y, ids, reply = decoder.decode(frame)
        assert ids == [7, 2**64 - 1, 0] and y.shape == shape
        assert y.dtype == ("f32" if dtype is numpy.float32 else "f16")
        assert same(y, made)
        assert reply is not None or Config(text).codec != "delta"
        encoder.take_reply(reply)
    held = 3 if Config(text).codec == "delta" else 0
    assert encoder.counters().keys_held == decoder.counters().keys_held == held
    assert encoder.counters().frames == decoder.counters().frames == 3
    assert encoder.counters().acks == decoder.counters().acks


def test_counters_are_named_as_in_the_header():
    encoder, decoder = pair()
    x = normal((2, 4, 64))
    assert encoder.counters().ratio == 0 and encoder.counters().hit_rate == 0
    for _ in range(4):
        frame = encoder.encode(x, [1, 2])
        encoder.take_reply(decoder.decode(frame).reply)
    counters = encoder.counters()
    assert counters.key_entries == 2 and counters.delta_entries == 6
    assert counters.hit_rate == 0.75 and counters.raw_bytes == 4 * x.nbytes
    assert counters.ratio == counters.raw_bytes / counters.encoded_bytes
    assert counters.busy_ns > 0 and "struct_size" not in counters._fields
    assert counters._asdict()["acks"] == 4


def test_threads_change_no_byte():
    x = normal((8, 64, 512))
    frames = []
    with Threads(3) as pool:
        for threads in (0, 1, 2, pool):
            with Encoder("delta:bits=4,incarnation=5", threads=threads) as encoder:
                frames.append([encoder.encode(x * visit, range(8)) for visit in (1, 2)])
                if threads is pool:
                    refuses(pool.close, "ARGUMENT", "close them first")
        assert pool.n == 3
    assert all(frame == frames[0] for frame in frames)
    assert pool.n == 0
    refuses(lambda: Encoder("delta", threads=pool), "ARGUMENT", "closed")
    for wrong in (-1, 2.5, "four", None):
        refuses(lambda: Encoder("delta", threads=wrong), "ARGUMENT", "threads")
    refuses(lambda: Threads(1025), "LIMIT", "1024")
    refuses(lambda: Threads(-1), "ARGUMENT", "threads")


def test_a_failed_constructor_releases_its_pool():
    with Threads(2) as pool:
        refuses(lambda: Encoder("delta:bits=99", threads=pool), "CONFIG")


def test_ids_of_many_kinds():
    encoder, decoder = pair("direct:bits=8")
    x = normal((3, 2, 32))
    kinds = [
        [4, 5, 6],
        (4, 5, 6),
        range(4, 7),
        numpy.array([4, 5, 6]),
        numpy.array([4, 5, 6], dtype=numpy.uint64),
        numpy.array([4, 5, 6], dtype=numpy.int32),
        array.array("q", [4, 5, 6]),
        memoryview(array.array("Q", [4, 5, 6])),
        [numpy.int64(4), numpy.uint8(5), 6],
        iter([4, 5, 6]),
        {4: "a", 5: "b", 6: "c"},
    ]
    for ids in kinds:
        assert decoder.decode(encoder.encode(x, ids)).ids == [4, 5, 6]
    assert decoder.decode(encoder.encode(x)).ids == [0, 1, 2]
    sliced = [(4, 1), (4, 2**32 - 1), 4]
    assert decoder.decode(encoder.encode(x, sliced)).ids == sliced
    assert decoder.decode(encoder.encode(x, [(4, 0), (5, 1), 6])).ids == [4, (5, 1), 6]


def test_stateless_needs_no_ids_and_leaves_state_alone():
    encoder, decoder = pair()
    x = normal((2, 3, 64))
    encoder.take_reply(decoder.decode(encoder.encode(x, [1, 2])).reply)
    before = bits(encoder.peek(1)).copy()
    frame = encoder.encode(x * 3, stateless=True)
    assert {e.role for e in deltawire.frame_info(frame).entries} == {"stateless"}
    decoder.decode(frame)
    frame = encoder.encode(x * 3, [1, 2], stateless=True)
    assert decoder.decode(frame).ids == [1, 2]
    assert (bits(encoder.peek(1)) == before).all()
    refuses(lambda: encoder.encode(x), "ARGUMENT", "give ids, or stateless=True")


def test_encode_writes_into_out():
    encoder, decoder = pair("direct:bits=4,incarnation=3")
    other = Encoder("direct:bits=4,incarnation=3")
    x = normal((2, 3, 64))
    for room in (bytearray(10000), numpy.zeros(10000, numpy.uint8), memoryview(bytearray(10000))):
        frame = other.encode(x)
        got = encoder.encode(x, out=room)
        assert type(got) is memoryview and bytes(got) == frame
        assert bytes(memoryview(room).cast("B")[: len(frame)]) == frame
        assert decoder.decode(got).tensor.shape == (2, 3, 64)
    refuses(lambda: encoder.encode(x, out=bytearray(100)), "BUFFER_TOO_SMALL")
    assert bytes(encoder.encode(x, out=bytearray(10000))) == other.encode(x)


def test_a_limit_is_kept():
    encoder, decoder = pair("delta:bits=2,key=8")
    x = normal((4, 8, 128))
    whole = encoder.encode(x, [1, 2, 3, 4])
    encoder.reset()
    short = encoder.encode(x, [1, 2, 3, 4], limit=len(whole) // 2)
    assert len(short) <= len(whole) // 2
    assert "stateless" in {e.role for e in deltawire.frame_info(short).entries}
    refuses(lambda: encoder.encode(x, [1, 2, 3, 4], limit=100), "BUFFER_TOO_SMALL")
    for wrong in (-1, 2.5, "many", 2**64):
        refuses(lambda: encoder.encode(x, [1, 2, 3, 4], limit=wrong), "ARGUMENT", "limit")
    expected = decoder.expect([1, 2, 3, 4], (4, 8, 128), "f32")
    assert expected == decoder.expect([1, 2, 3, 4], x) and len(short) <= expected
    refuses(lambda: decoder.expect([1, 2, 3], x), "ARGUMENT", "3 ids for 4 samples")


def test_encoders_with_equal_places_send_the_same_places():
    x = normal((2, 8, 64))
    sent = []
    for places in (7, 7, 8):
        encoder, decoder = pair("randk:keep=0.1")
        frame = encoder.encode(x, [1, 2], places=places)
        assert deltawire.frame_info(frame).draws_alike
        sent.append(numpy.from_dlpack(decoder.decode(frame).tensor) != 0)
        assert not deltawire.frame_info(encoder.encode(x, [1, 2])).draws_alike
    assert numpy.array_equal(sent[0], sent[1])
    assert not numpy.array_equal(sent[0], sent[2])
    for wrong in (-1, 2**64, "7"):
        with refused("ARGUMENT", "places must be an int"):
            encoder.encode(x, [1, 2], places=wrong)


def test_decode_writes_into_out():
    encoder, decoder = pair("direct:bits=8")
    x = normal((2, 3, 64))
    y = decoder.decode(encoder.encode(x)).tensor
    out = numpy.full((2, 3, 64), 7, numpy.float32)
    got = decoder.decode(encoder.encode(x), out)
    assert got.tensor is out and same(out, y)
    wide = numpy.zeros((2, 3, 100), numpy.float32)
    decoder.decode(encoder.encode(x), wide[:, :, 10:74])
    assert same(wide[:, :, 10:74].copy(), y) and wide[:, :, :10].sum() == 0
    assert wide[:, :, 74:].sum() == 0
    four = numpy.zeros((2, 3, 1, 64), numpy.float32)
    decoder.decode(encoder.encode(x), four)
    assert same(four.reshape(2, 3, 64), y)
    for dtype in ("f32", "f16", "bf16"):
        assert decoder.decode(encoder.encode(x), dtype=dtype).tensor.dtype == dtype
    with refused("ARGUMENT", '"f32", "f16" or "bf16"'):
        decoder.decode(encoder.encode(x), dtype="f64")


def test_decode_adds():
    encoder, decoder = pair("raw:f32")
    x = normal((2, 3, 64))
    out = normal((2, 3, 64), 9)
    want = out + numpy.float32(0.25) * x
    decoder.decode(encoder.encode(x), out, add=0.25)
    assert same(out, want)
    refuses(lambda: decoder.decode(encoder.encode(x), add=1), "ARGUMENT", "give out")
    refuses(lambda: decoder.decode(encoder.encode(x), out, add="half"), "ARGUMENT", "factor")
    assert same(out, want)


def test_rows_are_tokens_or_samples():
    encoder, decoder = pair("raw:f32")
    x = normal((4, 32))
    assert decoder.decode(encoder.encode(x)).tensor.shape == (1, 4, 32)
    frame = encoder.encode(x, [3, 1, 4, 5], rows_are_samples=True)
    assert decoder.decode(frame).tensor.shape == (4, 1, 32)
    out = numpy.empty_like(x)
    frame = encoder.encode(x, [3, 1, 4, 5], rows_are_samples=True)
    assert decoder.decode(frame, out, rows_are_samples=True).ids == [3, 1, 4, 5]
    assert same(out, x)
    assert encoder.bound(x, rows_are_samples=True) == encoder.bound((4, 1, 32), "f32")
    refuses(lambda: decoder.decode(encoder.encode(x, rows_are_samples=True), out), "SHAPE")


def test_check_says_what_decode_will_do():
    encoder, decoder = pair("delta:bits=4")
    frame = encoder.encode(normal((1, 2, 64)), [5], bypass_caches=True)
    decoder.check(frame)
    for bad, status in ((frame[:-1], "FORMAT"), (frame[:-1] + bytes([frame[-1] ^ 1]), "CORRUPT")):
        refuses(lambda: decoder.check(bad), status)
    assert decoder.counters().frames == 0
    assert decoder.decode(frame, bypass_caches=True).ids == [5]


def test_a_decode_keeps_no_option_of_the_call_before():
    encoder, decoder = pair("direct:bits=4")
    x = normal((2, 3, 64))
    frame = encoder.encode(x, stateless=True)
    want, out = decoder.decode(frame).tensor, numpy.zeros_like(x)
    decoder.decode(frame, out, add=1)
    decoder.check(frame)
    assert same(out, want)
    decoder.decode(frame, out, bypass_caches=True)
    assert same(out, want)


def test_advance_gives_no_tensor():
    encoder, decoder = pair()
    x = normal((2, 3, 64))
    made = numpy.empty_like(x)
    got = decoder.advance(encoder.encode(x, [8, 9], reconstruction=made))
    assert got.tensor is None and got.ids == [8, 9] and got.reply
    assert same(decoder.peek(9), made[1:])
    refuses(lambda: decoder.advance(b"nothing"), "FORMAT")


def test_configs_are_canonical_and_compare():
    config = Config("delta:group=64,bits=3")
    assert config.text == str(config) == "delta:bits=3" and config.codec == "delta"
    assert repr(config) == "Config('delta:bits=3')"
    assert config.tier == "stable" and Config("topk").tier == "for comparison"
    assert config == Config("delta:bits=3") == Config(config) and config != "delta:bits=3"
    assert hash(config) == hash(Config("delta:bits=3"))
    assert Config("delta:scale=mse").agreement == Config("delta").agreement
    refuses(lambda: Config("delta:bits=3,grop=64"), "CONFIG", "character")
    for wrong in (None, 4, b"delta", ["delta"]):
        refuses(lambda: Config(wrong), "ARGUMENT", "a config is a text")
    refuses(lambda: Config("delta\0:bits=4"), "ARGUMENT", "zero byte")


def test_bounds_of_frames_and_replies():
    encoder = Encoder("delta:bits=4")
    x = normal((2, 3, 64))
    assert encoder.bound(x) == encoder.bound((2, 3, 64), "f32") == deltawire.bound("delta", x)
    assert encoder.bound((2, 3, 64)) == encoder.bound(x)
    assert encoder.bound(Tensor((2, 3, 64))) == encoder.bound(x)
    assert deltawire.reply_bound(4) > deltawire.reply_bound(1) > 0
    refuses(lambda: encoder.bound((2**31, 2**31, 2**31)), "ARGUMENT", "too large")
    for wrong in ((), (1, 2, 3, 4, 5), (0, 3, 4), (2**32, 1, 1), ("a",), (-1, 2)):
        refuses(lambda: encoder.bound(wrong), "ARGUMENT", "one to four dimensions")
    refuses(lambda: encoder.bound((1, 2**20, 2**20, 1)), "ARGUMENT", "2**32")
    refuses(lambda: deltawire.reply_bound(-1), "ARGUMENT")


def test_frames_can_be_read():
    encoder, decoder = pair("delta:bits=4,audit=2")
    x = normal((2, 3, 64), dtype=numpy.float16)
    encoder.take_reply(decoder.decode(encoder.encode(x, [1, (2, 5)])).reply)
    encoder.forget(77)
    encoder.forget(1)
    frame = encoder.encode(x, [3, (2, 5)])
    info = deltawire.frame_info(frame)
    assert info.shape == (2, 3, 64) and info.dtype == "f16" and info.sequence == 2
    assert info.ids == [3, (2, 5)] and [e.role for e in info.entries] == ["key", "delta"]
    assert info.length == len(frame) and info.wants_reply and info.config.codec == "delta"
    assert 1 in info.forgotten and info.entries[0].form == "quantized"
    assert info.entries[1].payload_offset + info.entries[1].payload_bytes <= len(frame)
    assert deltawire.frame_length(frame[:80]) == (True, len(frame))
    assert deltawire.frame_length(frame[:5]) == (False, 80)
    assert deltawire.frame_info(frame + b"more").length == len(frame)
    said = deltawire.reply_info(decoder.decode(frame).reply)
    assert said.accepted and not said.replaced and said.incarnation == info.incarnation
    assert {e.id for e in said.entries} >= {3, (2, 5)} and said.sequence == 2
    for wrong in (b"", b"x" * 200, frame[:-1]):
        refuses(lambda: deltawire.frame_info(wrong), "FORMAT")
    refuses(lambda: deltawire.reply_info(b"x" * 100), "FORMAT")


def test_everything_has_help():
    for name in deltawire.__all__:
        thing = getattr(deltawire, name)
        if name == "__version__":
            continue
        assert thing.__doc__ and len(thing.__doc__) > 20, name
        for part, value in vars(thing).items() if isinstance(thing, type) else ():
            if not part.startswith("_") and callable(value) and not isinstance(value, type):
                assert value.__doc__, f"{name}.{part}"
