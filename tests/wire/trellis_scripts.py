# SPDX-License-Identifier: Apache-2.0
# trellis_scripts.py - makes scripts of frames whose blocks have a trellis, for
# test_spec_decoder.py.
"""A script is a list of frames for one decoder, with the results that docs/format.md demands
(spec_encoder.Script). The scripts here contain valid blocks with a trellis (3.7), and frames that
break each rule for them. Parameters have the names of entropy_scripts.py."""

import random

from entropy_scripts import (
    ONE,
    change,
    delta,
    direct,
    head,
    keyed,
    last_word_of_0,
    no_word,
    one_word_more,
    other_state,
    refuse,
    state,
    stepped,
)
from spec_encoder import (
    BF16,
    DELTA,
    DITHER,
    F16,
    F32,
    INT8,
    KEY,
    KEY_STEP,
    RANS,
    ROW,
    SAMPLE,
    STATELESS,
    STEPS,
    Payloads,
    Script,
)
from spec_rans_encoder import Block, TrellisBlock, possible
from spec_scripts import A, add_entry


def trellis(codes, zs):
    """Returns the usual block with a trellis of these codes."""
    return TrellisBlock(codes).bytes()


def changed(how, **more):
    """Returns a function for the argument `block` of stepped. It makes a block with a trellis, with
    these arguments of TrellisBlock, and changes it by the function `how`."""

    def made(codes, zs):
        block = TrellisBlock(codes, **more)
        how(block)
        return block.bytes()

    return made


def width_of(s):
    """Returns the number of codes of a row, padding included. (3.2)"""
    group = s.parameters["group"]
    multiple = 32 if group in (ROW, SAMPLE) else group
    return -(-s.C // multiple) * multiple


def codes_for(s, spread, begins=()):
    """Returns random codes of the elements of the next sample of a script, such that blocks with a
    trellis can hold them and the padding. The arguments are those of possible."""
    width = width_of(s)
    padded = possible(s.random, s.T * width, spread, lambda i: i % width >= s.C, begins)
    return [padded[t * width + c] for t in range(s.T) for c in range(s.C)]


def entry(s, frame, role, spread, block=trellis):
    """Adds an entry with a trellis to a frame of the script; the steps have random sizes."""
    p = s.parameters
    make = Payloads(s.random, s.T, s.C, s.y, p.get("prev"), calm=s.calm, coded=True)
    make.block, make.padding, make.too_long = block, 128, False
    base = s.held[A][0] if role == DELTA else None
    codes = codes_for(s, spread)
    made = make.stepped(p["group"], base, role != STATELESS, None, None, codes)
    return add_entry(s, frame, role, 4, made)


def trellis_scripts():
    """Scripts with every group and dtype, and few or many different codes. Yields (name,
    script)."""
    shapes = ((12, 60), (3, 210), (1, 700), (22, 32), (15, 40))
    groups = (SAMPLE, 16, ROW, 64, SAMPLE, 32)
    for number in range(8):
        group, spread = groups[number % 6], (0.3, 1, 0, 3)[number % 4]
        y, calm = (BF16, F32, F16)[number % 3], number % 3 == 0
        shape = shapes[number % 5]
        s = direct(shape, number, y, calm, group=group, form=STEPS)
        for _ in range(2):
            frame = s.frame()
            entry(s, frame, STATELESS, spread)
            s.deliver(frame, answer=0)
        yield f"trellis_direct_{number}", s
        prev = (F32, BF16, F16)[number % 3]
        s = delta(shape, number, y, calm, group=group, form=STEPS, key=KEY_STEP, prev=prev)
        for role in (KEY, DELTA, DELTA):
            frame = s.frame()
            entry(s, frame, role, spread)
            s.deliver(frame)
        yield f"trellis_delta_{number}", s
    s = direct((17, 1030), 3, BF16, group=ROW, form=STEPS)
    frame = s.frame()
    make = Payloads(s.random, s.T, s.C, s.y, coded=True)
    make.block, make.padding = trellis, 128
    codes = codes_for(s, 0.4, {16 * width_of(s)})
    add_entry(s, frame, STATELESS, 4, make.stepped(ROW, None, False, None, ONE, codes))
    s.deliver(frame, answer=0)
    yield "trellis_long", s


# ------------------------------------------------------------------------------------------------
# Valid blocks


def send(s, codes, block=trellis):
    """Sends a frame with one stateless entry of these codes."""
    frame = s.frame()
    stepped(s, frame, codes, block)
    s.deliver(frame, answer=0)


def trellis_blocks():
    """Blocks with the smallest and the largest tables, tables with codes that never occur, and one
    of which every code is 0. The step is 1, so that y shows the codes."""
    s = direct((1, 960), y=BF16, group=SAMPLE, form=STEPS)
    for spread in (0, 0.2, 0.6, 2, 6):
        send(s, possible(s.random, 960, spread))
    # All indices from -63 to 63, some of which occur; and the largest levels of both tables.
    codes = possible(s.random, 960, 0.5)
    F = [1] * 127
    F[63] = 4096 - 126
    wide = lambda c, z: TrellisBlock(c, [F, F], [65, 65]).bytes()
    send(s, codes, wide)
    send(s, ends_of_tables(codes), wide)
    # Tables of other codes than those that occur, and with codes that cannot occur.
    sevenths = [0 if i % 7 else 1 for i in range(960)]
    send(s, [128] * 960, lambda c, z: TrellisBlock(c, [[4095, 1], [1, 4095]], [128, 80]).bytes())
    send(s, [128] * 960, lambda c, z: TrellisBlock(c, [[1, 4095], [9, 4087]], [127, 190]).bytes())
    F = [1, 0, 0, 2000, 2094, 0, 0, 1]
    send(s, along(sevenths), lambda c, z: TrellisBlock(c, [F, F[::-1]], [125, 125]).bytes())
    return s


def along(indices):
    """Returns the codes of a block with these indices."""
    given = iter(indices)
    return possible(NextIndex(given), len(indices), 0)


class NextIndex:
    """Gives indices in a row to `possible`, which asks for random ones."""

    def __init__(self, given):
        self.given = given

    def gauss(self, mean, spread):
        """Returns the next index."""
        return next(self.given)


def ends_of_tables(codes):
    """Returns codes with the largest levels of both tables among them, and otherwise few."""
    rows = len(codes) // 32
    indices = [[0, 1, 63, -63, 0, -1, 63, -63][row % 8] for row in range(16)]
    lanes = [[indices[row] if row < 16 and lane == 5 else row % 2 * (lane % 3 == 1)
              for lane in range(32)] for row in range(rows)]  # fmt: skip
    return along([m for row in lanes for m in row])


# ------------------------------------------------------------------------------------------------
# Blocks that break a rule


def few(s):
    """Returns random codes for a sample without padding, with indices of -1, 0 and 1 in both
    tables."""
    n = s.T * s.C
    return along([-1, 1] * 32 + s.random.choices((-1, 0, 1), (3, 10, 3), k=n - 64))


# Changes that make a block of such codes invalid.
BAD_BLOCKS = [
    *(head(0, k, table) for k in (0, 2, 3, 4, 255) for table in (0, 1)),
    *(head(1, least, table) for least in (0, 64, 190, 255) for table in (0, 1)),
    *(head(2, value, table) for value in (0, 1, 3, 127, 255) for table in (0, 1)),
    *(change(cut=cut) for cut in (0, 1, 3, 255)),
    *(state(i, value) for i in (0, 31) for value in (0, 65535, 2**16, 2**32 - 1)),
    change(ones=True),
    change(tail=b"\0"),
    change(tail=b"\0\0"),
    change(W=0),
    change(W=65535),
    change(words=[]),
    change(states=[]),
    no_word,
    one_word_more,
    other_state,
]


def bad_trellis():
    """Blocks with a trellis that break each rule of 3.7. A refused frame leaves the state as it
    was, so the valid frame at the end is accepted."""
    s = keyed(delta((1, 320), group=SAMPLE, form=STEPS, key=KEY_STEP, prev=BF16))
    nothing = change()
    for how in BAD_BLOCKS:
        refuse(s, few(s), changed(how))
    for F in bad_frequencies():
        refuse(s, few(s), changed(nothing, F=F, least=[127, 127]))
    # F(0) or F(R-1) of 0; then indices of -64 and 64, which do not occur.
    usual = [1000, 2096, 1000]
    for F, least in (
        ([0, *usual], 126),
        ([*usual, 0], 127),
        ([1, *[0] * 62, 999, 2096, 1000], 64),
        ([1000, 2096, 999, *[0] * 62, 1], 127),
    ):
        refuse(s, few(s), changed(nothing, F=[F, usual], least=[least, 127]))
        refuse(s, few(s), changed(nothing, F=[usual, F], least=[127, least]))
    # One code in table 0, in table 1, or in both, of codes that need no other.
    zeros, one, two = [128] * 320, [4096], [4095, 1]
    for F in ([one, two], [two, one], [one, one]):
        refuse(s, zeros, changed(nothing, F=F, least=[128, 128]))
        refuse(s, zeros, changed(change(states=[]), F=F, least=[128, 128]))
    refuse(s, few(s), changed(nothing, small=True))
    refuse(s, few(s), changed(nothing, ends=2**16 + 1))
    for cut in range(1, 12):  # the block ends early
        refuse(s, few(s), lambda c, z: TrellisBlock(c).bytes()[: cut * cut])
    frame = s.frame()
    stepped(s, frame, few(s), trellis, DELTA)
    s.deliver(frame)
    return s


def bad_frequencies():
    """Returns frequencies of both tables, of which those of one do not add up to 4096."""
    good = [1000, 2096, 1000]
    bad = ([1000, 2096, 999], [1000, 2096, 1001], [1000, 4095, 1000])
    return [F for own in bad for F in ([own, good], [good, own])]


def bad_trellis_words():
    """Blocks of which the last word, a 0, is missing. A reader that takes 0 for missing words would
    not notice."""
    s = keyed(delta((1, 320), group=SAMPLE, form=STEPS, key=KEY_STEP, prev=BF16))
    indices = [i % 9 == 0 for i in range(320)]
    indices[-1] = indices[-33] = -2
    F = [1, 1, 4000, 94]
    codes = along(indices)
    refuse(s, codes, changed(last_word_of_0, F=[F, F], least=[126, 126]))
    return s


def bad_trellis_dithered():
    """A block with a trellis is refused in a payload with dither, with whatever role."""
    s = keyed(delta((1, 640), group=SAMPLE, form=STEPS, key=KEY_STEP, prev=BF16, rounding=DITHER))
    refuse(s, few(s), trellis)
    refuse(s, few(s), trellis, KEY)
    refuse(s, [128] * 640, trellis)
    frame = s.frame()
    stepped(s, frame, few(s), lambda c, z: Block([c]).bytes(), DELTA)
    s.deliver(frame)
    return s


def quantized_with_trellis(s, role):
    """Sends a frame that must be refused, because the block of its quantized entry has a trellis.
    Returns the script."""
    frame = s.frame()
    make = Payloads(s.random, s.T, s.C, s.y, s.parameters.get("prev"), calm=True, coded=True)
    make.block, make.spread = trellis, 0  # all codes are 128
    made = make.quantized(8, ROW, False, None, role != STATELESS)
    add_entry(s, frame, role, 2, made)
    s.deliver(frame, "FORMAT", 2 if role != STATELESS else 0)
    return s


def bad_trellis_quantized():
    """A block with a trellis is refused in a quantized payload."""
    return quantized_with_trellis(direct((4, 256), group=ROW, bits=8), STATELESS)


def bad_trellis_key():
    """A block with a trellis is refused in a quantized key entry of the codec delta."""
    return quantized_with_trellis(delta((4, 256), group=ROW, bits=8, key=8, choose=2), KEY)


def bad_trellis_mx():
    """A block with a trellis is refused in a microscaled payload."""
    s = Script(random.Random(1), "mx", {"element": INT8, "entropy": RANS}, (4, 256))
    frame = s.frame()
    make = Payloads(s.random, 4, 256, F32, coded=True)
    make.block = trellis
    made = make.microscaled(INT8, False, None, False, None, [128] * 1024)
    add_entry(s, frame, STATELESS, 3, made)
    s.deliver(frame, "FORMAT", 0)
    return s


# The functions that make one script each. Their scripts are all written to golden_page/.
ALONE = (
    trellis_blocks,
    bad_trellis,
    bad_trellis_words,
    bad_trellis_dithered,
    bad_trellis_quantized,
    bad_trellis_key,
    bad_trellis_mx,
)
