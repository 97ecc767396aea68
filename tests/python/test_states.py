# SPDX-License-Identifier: Apache-2.0
# test_states.py - checkpoints, state in a file, forgotten ids, resets and resynchronization.
import gc
import pathlib
import re

import numpy
import pytest
from rig import normal, pair, refuses, same

import deltawire
from deltawire import Config, Decoder, DeltawireError, Encoder, Storage

IDS = [5, (7, 3), 2**63]


def trained(text="delta:bits=4"):
    encoder, decoder = pair(text)
    for visit in range(3):
        frame = encoder.encode(normal((3, 4, 64), visit), IDS)
        encoder.take_reply(decoder.decode(frame).reply)
    return encoder, decoder


def test_a_restart_continues_with_the_saved_states():
    encoder, decoder = trained()
    saved = encoder.export_states(), decoder.export_states()
    assert set(saved[0]) == set(saved[1]) == set(IDS)
    assert saved[0][5] == encoder.export_state(5) and type(saved[0][5]) is bytes
    again, beyond = pair()
    again.import_states(saved[0])
    beyond.import_states(list(saved[1].values()))
    x = normal((3, 4, 64), 9)
    frame = encoder.encode(x, IDS)
    made = numpy.empty_like(x)
    ours = again.encode(x, IDS, reconstruction=made)
    assert {e.role for e in deltawire.frame_info(ours).entries} == {"delta"}
    assert deltawire.frame_info(ours).incarnation == deltawire.frame_info(frame).incarnation
    assert same(beyond.decode(ours).tensor, made)
    assert same(decoder.decode(frame).tensor, made)


def test_states_that_are_refused():
    encoder, decoder = trained()
    refuses(lambda: encoder.export_state(99), "ARGUMENT")
    saved = encoder.export_state(5)
    fresh = Encoder("delta:bits=4")
    for given in (saved[:-9] + bytes(9), saved[:40]):
        with pytest.raises(DeltawireError):
            fresh.import_state(given)
    assert fresh.counters().keys_held == 0
    refuses(lambda: fresh.import_state(decoder.export_state(5)), "MISMATCH")
    refuses(lambda: fresh.import_state(None), "ARGUMENT", "holds no bytes")
    fresh.import_state(memoryview(saved))
    assert same(fresh.peek(5), encoder.peek(5)) and fresh.counters().keys_held == 1


def test_peek_is_a_copy():
    encoder, decoder = trained("delta:bits=4,prev=bf16")
    seen = encoder.peek((7, 3))
    assert seen.shape == (1, 4, 64) and seen.dtype == "bf16"
    assert same(seen, decoder.peek((7, 3)))
    before = bytes(seen.memoryview().cast("B"))
    encoder.encode(normal((3, 4, 64), 30), IDS)
    assert bytes(seen.memoryview().cast("B")) == before
    refuses(lambda: encoder.peek(99), "ARGUMENT", "nothing is held for the id 99")
    refuses(lambda: encoder.peek("five"), "ARGUMENT", "not an id")


def test_forget_and_reset():
    encoder, decoder = trained()
    encoder.forget(5)
    encoder.forget(12345)  # an unknown id is no error
    x = normal((1, 4, 64), 4)
    encoder.take_reply(decoder.decode(encoder.encode(x, [2**63])).reply)
    assert encoder.counters().keys_held == decoder.counters().keys_held == 2
    encoder.reset()
    assert encoder.counters().keys_held == 0
    frame = encoder.encode(x, [2**63])
    assert [e.role for e in deltawire.frame_info(frame).entries] == ["key"]
    decoder.decode(frame)
    assert decoder.counters().keys_held == 1
    refuses(lambda: encoder.forget(-1), "ARGUMENT", "not an id")


def test_a_frame_is_given_back_or_undone():
    encoder = Encoder("direct:bits=2,feedback=ef")
    decoder = Decoder("direct:bits=2")
    x = normal((3, 4, 64), 11)

    def residuals():
        return numpy.concatenate([numpy.from_dlpack(encoder.peek(id)) for id in IDS])

    encoder.encode(normal((3, 4, 64), 10), IDS)
    before = residuals()
    frame = encoder.encode(x, IDS)
    sent = numpy.from_dlpack(decoder.decode(frame).tensor)
    assert numpy.allclose(residuals(), before - x + sent, atol=1e-4)
    refuses(lambda: encoder.undo(frame, x[:, :, :32]), "SHAPE", "shape")
    encoder.undo(frame, x)
    assert numpy.allclose(residuals(), before, atol=1e-5)
    refuses(lambda: encoder.undo(frame, x), "ARGUMENT", "each once")
    frame = encoder.encode(x, IDS)
    encoder.give_back(frame)
    refuses(lambda: encoder.give_back(frame), "ARGUMENT", "each once")
    refuses(lambda: encoder.encode(x), "ARGUMENT", "give ids")
    encoder.encode(x, stateless=True)
    refuses(lambda: Encoder("direct:bits=4").give_back(frame), "ARGUMENT", "feedback=ef")


def test_resync_gives_the_tensor_that_was_missed():
    encoder, decoder = trained()
    made = numpy.empty((3, 4, 64), numpy.float32)
    encoder.encode(normal((3, 4, 64), 8), IDS, reconstruction=made)  # lost
    frame = encoder.resync(IDS)
    assert {e.role for e in deltawire.frame_info(frame).entries} == {"sync"}
    assert same(decoder.decode(frame).tensor, made)
    assert encoder.counters().resyncs == 3
    for wrong, words in (([99], "held"), ([5, 99], ""), ([], "no ids"), ([5, 5], "")):
        refuses(lambda: encoder.resync(wrong), "ARGUMENT", words)


def test_an_import_of_many_stops_at_the_first_bad_one():
    encoder, _ = trained()
    states = list(encoder.export_states().values())
    fresh = Encoder("delta:bits=4")
    refuses(lambda: fresh.import_states([states[0], b"nonsense", states[1]]), "FORMAT")
    assert fresh.counters().keys_held == 1
    assert isinstance(Decoder("delta:bits=4").export_states(), dict)


def test_frames_are_the_same_with_state_in_a_file(tmp_path):
    text = "delta:bits=4,incarnation=7"
    plain, (_, decoder) = Encoder(text), pair(text)
    with Storage(f"file:{tmp_path}/prev,cache=0") as storage:
        stored, receiver = Encoder(text, state=storage), Decoder(text, state=storage)
        for visit in range(30):
            ids, x = [visit % 5, 10 + visit % 7], normal((2, 4, 64), visit)
            stored.prefetch(ids)
            receiver.prefetch(ids)
            frame = plain.encode(x, ids)
            assert stored.encode(x, ids) == frame
            ours, theirs = receiver.decode(frame), decoder.decode(frame)
            assert same(ours.tensor, theirs.tensor) and ours.reply == theirs.reply
            plain.take_reply(ours.reply)
            stored.take_reply(ours.reply)
        assert same(stored.peek(3), plain.peek(3))
        counters = storage.counters()
        assert counters.reads > 50 and counters.records >= 20 and counters.failed_reads == 0
        assert stored.counters().state_bytes < plain.counters().state_bytes
        assert stored.counters().lost_copies == 0
        refuses(storage.close, "ARGUMENT", "still use this storage")
        refuses(lambda: Encoder("delta:bits=4", state=f"file:{tmp_path}/prev"), "IO", "in use")
        stored.close()
        receiver.close()
    assert not list(tmp_path.iterdir())


def test_a_snapshot_outlives_its_storage(tmp_path):
    text = f"file:{tmp_path}/kept"
    with Storage(text) as storage:
        names = [storage.keep(bytes([i]) * 5000) for i in range(3)]
        first = storage.save()
        assert storage.keep(bytes([1]) * 5000) == names[1]
        last = storage.save(keeps=first)
        assert storage.counters().writes == 3
    with Storage(text) as storage:
        counters = storage.counters()
        assert (counters.snapshot, counters.snapshot_before, counters.pinned) == (last, first, 3)
        for i, name in enumerate(names):
            assert storage.fetch(first, name, 5000) == bytes([i]) * 5000
        refuses(lambda: storage.fetch(last, names[0], 5000), "MISMATCH", "does not have this copy")
        refuses(lambda: storage.fetch(last, b"short", 5000), "ARGUMENT", "16 bytes")
        refuses(lambda: storage.fetch(last, "x" * 16, 5000), "ARGUMENT", "holds no bytes")
        refuses(lambda: storage.fetch(last, names[0], -1), "ARGUMENT", "size must be an int")
        refuses(lambda: storage.fetch(-1, names[0], 1), "ARGUMENT", "snapshot must be an int")
        for size in (2**50, 2**63):
            refuses(lambda: storage.fetch(last, names[0], size), "NO_MEMORY", "no memory for")
        refuses(lambda: storage.save(keeps=-1), "ARGUMENT", "keeps must be an int")
        floats = normal((3, 50), 1)
        floats_name = storage.keep(floats)
        assert storage.fetch(storage.save(), floats_name, 600) == floats.tobytes()
        storage.keep(b"other")
        assert storage.counters().pinned == 2
        storage.let_go()
        assert storage.counters().pinned == 1


def test_an_encoder_closes_the_storage_that_it_made(tmp_path):
    with Encoder("delta:bits=4", state=f"file:{tmp_path}/prev"):
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_storage_is_collected_together_with_its_encoder(tmp_path):
    """The collector may take the storage first; the encoder gives its copies back to it."""
    circle = []
    storage = Storage(f"file:{tmp_path}/prev,cache=0")
    circle += [storage, Encoder("delta:bits=4", state=storage), circle]
    for visit in range(3):
        circle[1].encode(normal((3, 4, 64), visit), IDS)
    del circle, storage
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_was_not_made_gives_back_what_it_borrowed(tmp_path):
    pool, closed = deltawire.Threads(2), Storage(f"file:{tmp_path}/closed")
    closed.close()
    refuses(lambda: Encoder("delta:bits=4", threads=pool, state=closed), "ARGUMENT", "closed")
    pool.close()


def test_storages_that_are_refused(tmp_path):
    refuses(lambda: Encoder("delta:bits=4", state="prev"), "CONFIG", "begin with file:")
    refuses(lambda: Storage(f"file:{tmp_path}/prev,cash=3"), "CONFIG", "cash")
    refuses(lambda: Storage(Config("delta:bits=4")), "ARGUMENT", "must be a text")
    refuses(lambda: Storage(f"file:{tmp_path}/none/prev"), "IO", "No such file")
    refuses(lambda: Storage(f"file:{tmp_path}/prev\0rest"), "CONFIG", "zero byte")
    refuses(lambda: Storage(f"file:{tmp_path}/\ud800"), "CONFIG", "no path")
    assert not list(tmp_path.iterdir())


def test_the_program_of_the_page_about_state_runs(tmp_path, monkeypatch, capsys):
    page = pathlib.Path(__file__).parents[2] / "docs" / "state.md"
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", page.read_text(), re.S)[1], {})
    assert capsys.readouterr().out.endswith("copies read, 0 lost\n")
