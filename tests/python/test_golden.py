# SPDX-License-Identifier: Apache-2.0
# test_golden.py - the golden frames decode to the same bits through Python as in C.
import json
import pathlib

import pytest

import deltawire

GOLDEN = pathlib.Path(__file__).parents[1] / "wire" / "golden"
FILES = sorted(GOLDEN.glob("*.json"))


def told(data):
    """What a golden file tells of these bytes: themselves, or a digest (tests/wire/golden.h)."""
    if len(data) <= 256:
        return data.hex()
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"#{digest:016x}"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_golden(path):
    golden = json.loads(path.read_text())
    decoder = deltawire.Decoder(golden["encoder"])
    compared = 0
    for step in golden["steps"]:
        frame = bytes.fromhex(step["frame"])
        want = bytes.fromhex(step["reply"]) if step.get("reply") else None
        if step["status"] == "OK":
            y, ids, reply = decoder.decode(frame, dtype=step["y_dtype"])
            assert y.shape == (step["n"], step["t"], step["c"]) and len(ids) == step["n"]
            assert told(bytes(y.memoryview().cast("B"))) == step["y"]
            compared += 1
        else:
            with pytest.raises(deltawire.DeltawireError) as caught:
                decoder.decode(frame, deltawire.Tensor((step["n"], step["t"], step["c"])))
            assert caught.value.status.name == step["status"]
            reply = caught.value.reply
        assert reply == want
    assert compared


def test_there_are_golden_frames():
    assert len(FILES) > 40
