# SPDX-License-Identifier: Apache-2.0
# entropy_scripts.py - makes scripts of frames with entropy-coded payloads, for
# test_spec_decoder.py.
"""A script is a list of frames for one decoder, with the results that docs/format.md demands
(spec_encoder.Script). The scripts here contain valid frames with random payloads, blocks that meet
the limits of 3.7, and frames that break each rule of 3.7 to 3.9.

Parameters with these names mean the same everywhere: s, a script, to which a function adds frames;
F, the frequencies of a block, and k, how many codes make a symbol, as in 3.7; codes, those of a
sample or block; zs, z of each code (3.9), or None without dither."""

import random
import struct

from spec_encoder import (
    BF16,
    BRIEF,
    CHANNEL,
    DELTA,
    DITHER,
    F16,
    F32,
    KEY,
    KEY_STEP,
    RANS,
    ROW,
    SAMPLE,
    SKIP,
    STATELESS,
    STEPS,
    SYNC,
    Dither,
    Payloads,
    Script,
    folded,
    parts_of,
)
from spec_rans_encoder import Block
from spec_scripts import A, B, add_entry, row, rows

ONE = [0x3F80] * 99  # scales for up to 99 segments: all are 1, in bf16


def direct(shape, seed=1, y=F32, calm=True, **more):
    """Returns an empty script of the codec direct with entropy coding. shape: (T, C); y: the dtype
    of decoded values; calm: whether scales have usual values only; more: parameters of the
    codec."""
    return Script(random.Random(seed), "direct", {**more, "entropy": RANS}, shape, y, calm=calm)


def delta(shape, seed=1, y=F32, calm=True, **more):
    """Returns an empty script of the codec delta with entropy coding. The arguments are as
    above."""
    parameters = {"prev": F32, "audit": 1, "key": 8, **more, "entropy": RANS}
    return Script(random.Random(seed), "delta", parameters, shape, y, calm=calm)


# ------------------------------------------------------------------------------------------------
# Frames that are taken


def every_role(s):
    """Sends entries of every role, for two keys. Returns the script."""
    s.send((KEY, A), (STATELESS, B, BRIEF))
    s.send((DELTA, A))
    s.send((SKIP, A), (KEY, B))
    s.send((DELTA, A), (SYNC, B))
    return s


def random_scripts():
    """Scripts with every form and every number of bits, and with random frequencies, k and parts.
    Yields (name, script)."""
    groups = (32, ROW, 16, 256, 64, 128)
    shapes = ((12, 60), (3, 210), (1, 600), (22, 32))
    for number in range(8):
        more = {
            "bits": number % 8 + 1,
            "group": groups[number % 6],
            "key": (16, 8, 3, 5, 17, 6, 2)[number % 7],
            "prev": (F32, BF16, F16)[number % 3],
            "choose": 1 + (number % 5 == 4),
            "audit": (1, 2, 255)[number % 3],
        }
        calm = number % 3 == 0
        s = delta(shapes[number % 4], number, (BF16, F16, F32)[number % 3], calm, **more)
        yield f"rans_delta_{number}", every_role(s)
    for number in range(9):
        s = direct(shapes[number % 4], number, bits=8 - number % 8, group=groups[number % 6])
        s.send((STATELESS, A), (STATELESS, A), answer=0)
        yield f"rans_direct_{number}", s
    for number in range(6):
        more = {"key": 65 + (number + 3) % 6, "prev": BF16, "choose": 1 + number % 2, "form": 3}
        s = delta(shapes[number % 4], number, BF16, False, element=number + 1, **more)
        yield f"rans_delta_mx_{number}", every_role(s)
        s = Script(random.Random(number), "mx", {"element": number + 1, "entropy": RANS}, (9, 70))
        s.send((STATELESS, A), answer=0)
        yield f"rans_mx_{number}", s
    for number in range(10):
        group = (SAMPLE, 64, ROW, 16, SAMPLE)[number % 5]
        dither = {"rounding": DITHER} if number % 3 else {}
        calm, y = number % 2 == 0, (F32, F16, BF16)[number % 3]
        s = direct(shapes[number % 4], number, y, calm, group=group, form=STEPS, **dither)
        s.seed = number if dither else 0
        s.send((STATELESS, A), (STATELESS, B), answer=0)
        yield f"rans_direct_step_{number}", s
        key = (KEY_STEP, 16, KEY_STEP)[number % 3]
        more = {"group": group, "form": STEPS, "key": key, "prev": BF16, **dither}
        s = delta(shapes[number % 4], number, y, calm, **more)
        yield f"rans_delta_step_{number}", every_role(s)


def long_scripts():
    """Scripts whose rows have several tiles, or whose payloads have several groups, some of which
    end amid a row. Yields (name, script)."""
    for number, (shape, more) in enumerate(
        (
            ((9, 4100), {"group": ROW, "bits": 1}),
            ((9, 4097), {"group": SAMPLE, "form": STEPS, "rounding": DITHER}),
            ((17, 2049), {"group": ROW, "form": STEPS}),
            ((1, 36000), {"group": SAMPLE, "form": STEPS}),
            ((17, 1030), {"group": ROW, "bits": 4}),
            ((550, 61), {"group": 64, "bits": 2}),
        )
    ):
        s = direct(shape, number, BF16, **more)
        s.send((STATELESS, A), answer=0)
        yield f"rans_long_{number}", s


def stepped(s, frame, codes, block=None, role=STATELESS, resize=None):
    """Adds an entry in steps of size 1, for the key A, to a frame. codes: those of its elements, or
    None for random ones; block: a function that makes the block of the entry from its codes and zs,
    or None for the usual one; resize: a function that changes the sizes, or None. Returns the
    entry.
    """
    p = s.parameters
    dither = None
    if "rounding" in p:
        dither = Dither(frame.seed, A, frame.sequence, frame.incarnation)
    make = Payloads(s.random, s.T, s.C, s.y, p.get("prev"), coded=True)
    make.block = block or make.block
    make.resize = resize or make.resize
    make.padding = 128
    base = s.held[A][0] if role == DELTA else None
    made = make.stepped(p["group"], base, role != STATELESS, dither, ONE, codes)
    return add_entry(s, frame, role, 4, made)


def send_codes(s, codes, block):
    """Sends a frame with one stateless entry of these codes; block: as for stepped."""
    frame = s.frame()
    stepped(s, frame, codes, block)
    s.deliver(frame, answer=0)


def shared(random_, R, size=4096):
    """Returns R random frequencies that add up to 4096. Some of them are 0, others small; the first
    and the last are not 0."""
    F = [random_.choice((0, 1, 1, 2, 9, 40)) for _ in range(R)]
    F[0] = F[-1] = 1
    F[random_.randrange(R)] = 0 if R > 4 else 1
    F[0], F[-1] = max(1, F[0]), max(1, F[-1])
    F[random_.choice((0, R - 1, R // 2))] += size - sum(F)
    return F


def drawn(random_, F, least, n):
    """Returns n random codes from `least` on, which occur about as often as F says; but codes with
    a large frequency occur less often, so that the others occur, too."""
    return random_.choices(range(least, least + len(F)), [min(f, 300) for f in F], k=n)


def rans_blocks():
    """Blocks with k = 1, 2 and 4, and frequencies with which the weights and slots of 3.7 have to
    be rounded. The step is 1, so that y shows the codes. A row has 960 = 30 * 32 elements, so there
    is no padding.
    """
    s = direct((1, 960), y=BF16, group=SAMPLE, form=STEPS)
    for k, R in ((1, 2), (1, 256), (1, 200), (2, 16), (2, 13), (2, 5), (4, 4), (4, 4), (4, 3),
                 (4, 2), (2, 2), (4, 4), (4, 4), (2, 16)):  # fmt: skip
        F = shared(s.random, R)
        least = s.random.randrange(257 - R)
        if R == 256:
            F = [1] * 256
            F[100] += 4096 - 256
        codes = drawn(s.random, F, least, 960)
        send_codes(s, codes, lambda c, z: Block([c], (k,), [F], [least]).bytes())
    for code in (0, 1, 127, 128, 255):  # blocks in which all codes are equal
        send_codes(s, [code] * 960, None)
    return s


def rans_fill():
    """Blocks in which the last symbol of a part is filled up with other digits than ours. Readers
    must ignore them."""
    s = direct((3, 311), group=SAMPLE, form=STEPS, rounding=DITHER)
    for k, fill in ((4, 0), (4, 1), (4, 2), (2, 0), (2, 2)):
        codes = s.random.choices((127, 128, 129), (1, 6, 1), k=933)
        send_codes(s, codes, lambda c, z: Block(parts_of(c, z), [k] * 4, fill=fill).bytes())
    return s


# For each block of rans_parts: how far the codes of each part may be from 128, and k of each part.
# The last block has no parts, and so one k.
SPREADS = (
    ((0, 1, 2, 5), (1, 2, 2, 1)),
    ((2, 0, 0, 1), (2, 1, 1, 4)),
    ((0, 0, 0, 0), (1, 1, 1, 1)),
    ((3, 3, 0, 3), (1, 1, 1, 2)),
    ((9, 0, 9, 0), (1, 1, 1, 1)),
    ((1, 1, 1, 1), (4,)),
)


def rans_parts():
    """Blocks in which some parts have one code only and others have several, the parts have
    different k, or code 0 occurs; and a block without parts, although its codes are dithered."""
    s = direct((2, 450), group=SAMPLE, form=STEPS, rounding=DITHER)
    for number, (spreads, ks) in enumerate(SPREADS):
        dither, codes = next_dither(s), []
        for i in range(900):
            part = int(8 * abs(dither.z(i)))
            q = s.random.randint(-spreads[part], spreads[part])
            codes.append(0 if number == 3 and part == 1 and i % 7 == 0 else 128 + q)
        cut = (lambda c, z: parts_of(c, z)) if len(ks) == 4 else lambda c, z: [c]
        send_codes(s, codes, lambda c, z: Block(cut(c, z), ks).bytes())
    return s


def next_dither(s):
    """Returns the dither of the key A in the script's next frame."""
    return Dither(s.seed, A, s.sequence + 1, s.incarnation)


def parts_of_one_code():
    """Small blocks in parts, of which each has one code only. They are valid if each part has
    codes, and are refused if a part has none. The seed decides which elements belong to which part,
    so seeds are tried until one has the wanted result."""
    s = direct((1, 25), group=SAMPLE, form=STEPS, rounding=DITHER)
    for C, status in ((25, "OK"), (4, "FORMAT")):
        s.C = C
        for _ in range(3):
            while (filled_parts(s) == 4) != (status == "OK"):
                s.seed += 1
            frame = s.frame()
            stepped(s, frame, [128] * C, lambda c, z: ONE_CODE_IN_PARTS)
            s.deliver(frame, status, 0)
            s.seed += 1
    return s


# A block of four parts, in all of which the only code is 128.
ONE_CODE_IN_PARTS = struct.pack("<BBBBH", 1, 128, 0, 1, 0) + bytes((1, 128, 0)) * 3


def filled_parts(s):
    """Returns how many of the four parts have codes in the next frame. Padding is in part 0."""
    dither = next_dither(s)
    return len({0} | {int(8 * abs(dither.z(i))) for i in range(s.C)})


# ------------------------------------------------------------------------------------------------
# Payloads that break a rule
#
# The following functions return functions that change a Block (spec_rans_encoder.py) before it is
# put together, or are such functions.


def change(**fields):
    """Returns a function that sets these fields of a block."""

    def changed(block):
        for name, value in fields.items():
            setattr(block, name, value)

    return changed


def head(place, value, part=0):
    """Returns a function that sets k (place 0), least (1) or R - 1 (2) in the head of a part."""
    return lambda block: block.heads[part].__setitem__(place, value)


def state(i, value):
    """Returns a function that sets state number i."""
    return lambda block: block.x.__setitem__(i, value)


def no_word(block):
    """Removes the last word."""
    block.words.pop()


def last_word_of_0(block):
    """Removes the last word, which must be 0: a reader that takes 0 for missing words would not
    notice."""
    assert block.words.pop() == 0


def one_word_more(block):
    """Adds a word at the end."""
    block.words.append(0)


def other_state(block):
    """Changes state 31 so that its next symbol remains the same, but not what it ends with."""
    block.x[31] += 4096


# Changes that make a block invalid, if it has k = 1, R = 3 and no parts.
BAD_BLOCKS = [
    head(0, 0),
    head(0, 2),
    head(0, 3),
    head(0, 8),
    head(0, 255),
    head(1, 254),
    head(1, 255),
    head(2, 1),
    head(2, 3),
    head(2, 255),
    change(cut=1),
    change(cut=2),
    change(cut=255),
    change(tail=b"\0"),
    change(tail=b"\0\0"),
    change(W=0),
    change(W=65535),
    change(words=[]),
    *(state(i, value) for i in (0, 31) for value in (0, 65535, 2**16, 2**32 - 1)),
    change(F=[[1, 1, 1]]),
    change(F=[[1, 4096, 1]]),  # 4096 has 13 bits, and a frequency at most 12
    no_word,
    one_word_more,
    other_state,
]


def bad_codes(s):
    """Returns random codes for a sample: three different ones, so that R is 3."""
    return s.random.choices((127, 128, 129), (3, 10, 1), k=s.T * s.C)


def refuse(s, codes, block, role=DELTA, resize=None):
    """Sends a frame that must be refused with FORMAT, and be answered NACK if it has state. The
    other arguments are those of stepped."""
    frame = s.frame()
    stepped(s, frame, codes, block, role, resize)
    s.deliver(frame, "FORMAT", 0 if role == STATELESS else 2)


def changed(ks, how, F=None, least=None):
    """Returns a function for the argument `block` of stepped. It makes a block without parts, with
    the arguments of Block, and changes it by the function `how`."""

    def made(codes, zs):
        block = Block([codes], ks, F, least)
        how(block)
        return block.bytes()

    return made


def keyed(s):
    """Sends a key entry, so that the deltas behind it have a base. Returns the script."""
    frame = s.frame()
    stepped(s, frame, bad_codes(s), role=KEY)
    s.deliver(frame)
    return s


def taken(s):
    """Sends a valid frame, which must be accepted: those before it have not changed the state."""
    frame = s.frame()
    stepped(s, frame, bad_codes(s), role=DELTA)
    s.deliver(frame)


def bad_blocks():
    """Blocks without parts that break each rule of 3.7. A refused frame leaves the state as it was,
    so the valid frame at the end is accepted."""
    s = keyed(delta((1, 320), group=SAMPLE, form=STEPS, key=KEY_STEP, prev=BF16))
    for how in BAD_BLOCKS:
        refuse(s, bad_codes(s), changed((1,), how))
    nothing = change()
    F = [900, 2000, 1196]
    # Frequencies that do not add up to 4096; ones behind the frequencies; F(0) or F(R-1) of 0.
    for own in ([900, 2000, 1195], [900, 2000, 1197], [900, 2000, 4095]):
        refuse(s, bad_codes(s), changed((1,), nothing, [own], [127]))
    refuse(s, bad_codes(s), changed((1,), change(ones=True), [F], [127]))
    refuse(s, bad_codes(s), changed((1,), nothing, [[0, *F]], [126]))
    refuse(s, bad_codes(s), changed((1,), nothing, [[*F, 0]], [127]))
    # A k that is too large for R: pairs of 17 codes, and fours of 5 codes. Then k = 3.
    many = [s.random.randrange(17) + 100 for _ in range(320)]
    refuse(s, many, changed((2,), nothing, [[241] * 16 + [240]], [100]))
    refuse(s, [100 + code % 5 for code in many], changed((4,), nothing, [[900] * 4 + [496]], [100]))
    refuse(s, bad_codes(s), changed((2,), head(0, 3)))
    # The range of codes goes on to 256, although only 254 and 255 occur.
    F = [4000, 50, 46]
    refuse(s, [254 + i % 47 // 46 for i in range(320)], changed((1,), nothing, [F], [254]))
    # A state that begins below 2^16, and one that does not end with 2^16; then a block whose last
    # word, a 0, is missing.
    refuse(s, bad_codes(s), lambda c, z: Block([c], small=True).bytes())
    refuse(s, bad_codes(s), lambda c, z: Block([c], ends=2**16 + 1).bytes())
    codes = [128 + (i % 9 == 0) for i in range(320)]
    codes[-1] = codes[-33] = 127
    refuse(s, codes, changed((1,), last_word_of_0, [[1, 4000, 95]], [127]))
    # Blocks in which all codes are equal may have no other k than 1, no words and no states.
    for how in (head(0, 2), head(0, 0), change(W=1), change(W=1, words=[0]), change(words=[0]),
                change(states=[2**16] * 32), change(tail=b"\0"), change(cut=1)):  # fmt: skip
        refuse(s, [130] * 320, changed((1,), how))
    for cut in range(1, 12):  # the block ends early
        refuse(s, bad_codes(s), lambda c, z: Block([c]).bytes()[: cut * cut])
    taken(s)
    return s


def bad_undithered():
    """A block in parts is refused if the payload is not dithered."""
    s = keyed(delta((1, 320), group=SAMPLE, form=STEPS, key=KEY_STEP, prev=BF16))
    quarters = lambda c, z: Block([c[i : i + 80] for i in range(0, 320, 80)]).bytes()
    refuse(s, bad_codes(s), quarters)
    taken(s)
    return s


def bad_parts():
    """Blocks in parts whose heads, frequencies, states or words break a rule."""
    s = keyed(delta((1, 640), group=SAMPLE, form=STEPS, key=KEY_STEP, prev=BF16, rounding=DITHER))
    part = lambda how: lambda c, z: parts_changed(c, z, how)
    for how in (change(cut=2), change(cut=255), head(0, 3, 1), head(0, 0, 2), head(1, 255, 3),
                head(2, 255, 2), change(ones=True), one_word_more, no_word, other_state,
                state(7, 65535), change(tail=b"\0"), change(cut=0)):  # fmt: skip
        refuse(s, bad_codes(s), part(how))
    frame = s.frame()
    stepped(s, frame, bad_codes(s), part(change()), role=DELTA)
    s.deliver(frame)
    return s


def parts_changed(codes, zs, how):
    """Returns a block in parts that is changed by the function `how`."""
    block = Block(parts_of(codes, zs))
    how(block)
    return block.bytes()


# ------------------------------------------------------------------------------------------------
# Sizes of groups, and what else 3.8 says of payloads; parameters; the order of refusals


def replace_payload(e, payload):
    """Gives an entry another payload, with its length and digest."""
    e.payload, e.payload_bytes, e.payload_digest = payload, len(payload), folded(payload)


def bad_sizes():
    """Payloads whose sizes, or whose lengths, are wrong. They have one group, with 16 bytes of
    scales and 336 bytes of tiles in the plain payload."""
    s = keyed(delta((5, 64), group=64, form=STEPS, key=KEY_STEP, prev=BF16))
    for to in (0, 1, 15, 16, 17, 335, 336, 337, 2**31, 2**32 - 1):
        refuse(s, bad_codes(s), None, resize=lambda sizes: [to])
    for by in (-17, -1, 1, 17):
        refuse(s, bad_codes(s), None, resize=lambda sizes: [sizes[0] + by])
    for how in (
        lambda whole: b"",
        lambda whole: bytes(16),
        lambda whole: whole[:16],
        lambda whole: whole[:-16],
        lambda whole: whole + bytes(16),
        lambda whole: struct.pack("<I12x", 16) + whole[16:32],
    ):
        frame = s.frame()
        e = stepped(s, frame, bad_codes(s), role=DELTA)
        replace_payload(e, how(e.payload))
        s.deliver(frame, "FORMAT", 2)
    # A payload that is longer than the limit of step 3 is refused before its digest is compared, so
    # with FORMAT. The digests of the others are wrong, so they are CORRUPT.
    for size in (336 + 16 + 16, 336 + 16, 16, 0):
        frame = s.frame()
        e = stepped(s, frame, bad_codes(s), role=DELTA)
        replace_payload(e, bytes(size))
        e.payload_digest ^= 2
        s.deliver(frame, "FORMAT" if size > 336 + 16 else "CORRUPT", 2)
    taken(s)
    return s


def bad_long_group():
    """A payload of two groups, of which the second is longer than its tile. The first is so short
    that the payload is not longer than it may be."""
    s = direct((17, 1025), group=ROW, form=STEPS)
    frame = s.frame()

    def block(codes, zs):
        F = [1] * 30
        F[7] = 4096 - 29  # the other codes take 12 bits each
        return Block([codes], F=[F] if len(codes) < 2000 else None, least=[100]).bytes()

    make = Payloads(s.random, s.T, s.C, s.y, coded=True)
    make.block, make.padding, make.too_long = block, 100, True
    codes = [100, 129] + [107] * (16 * 1025 - 2) + s.random.choices(range(100, 130), k=1025)
    made = make.stepped(ROW, None, False, None, ONE, codes)
    sizes = struct.unpack_from("<2I", add_entry(s, frame, STATELESS, 4, made).payload)
    assert sum(sizes) < 17 * 1072 and sizes[1] > 1072
    s.deliver(frame, "FORMAT", 0)
    return s


def bad_wide_codes():
    """Codes of more bits than the form says, among those of elements and those of padding."""
    s = direct((2, 500), group=ROW, bits=3)
    for at, code in ((5, 8), (511, 8), (700, 9), (1023, 31), (1, 15)):
        frame = s.frame()
        make = Payloads(s.random, s.T, s.C, s.y, coded=True)
        make.spread = 0.5

        def wide(codes, zs):
            return Block([codes[:at] + [code] + codes[at + 1 :]]).bytes()

        make.block = wide
        add_entry(s, frame, STATELESS, 2, make.quantized(3, ROW, False, None, False))
        s.deliver(frame, "FORMAT", 0)
    return s


def bad_order():
    """The order of steps 7 and 8: a frame whose first block breaks a rule is refused with BASE if
    its base is wrong, else with CORRUPT if any digest is wrong, and else with FORMAT."""
    s = delta((1, 320), group=SAMPLE, form=STEPS, key=KEY_STEP, prev=BF16)
    keyed(s)
    broken_ = changed((1,), one_word_more)

    def one(status, base=0, digest=0, more=0):
        frame = s.frame()
        e = stepped(s, frame, bad_codes(s), broken_, DELTA)
        frame.entries.append(s.entry(frame, STATELESS, B))
        e.base_chain ^= base
        e.payload_digest ^= digest
        frame.entries[1].payload_digest ^= more
        s.deliver(frame, status, 2)

    one("FORMAT")
    one("BASE", base=1)
    one("CORRUPT", digest=1)
    one("CORRUPT", more=1)
    one("BASE", base=1, more=1)
    taken(s)
    return s


def bad_entropy_fields():
    """Frames whose parameter 18 (entropy) is wrong, doubled, missing, or at another place. The
    parameters of the script are 2, 6, 8, 11, 14 and 18, in rows 0 to 5."""
    s = keyed(delta((1, 320), group=SAMPLE, form=STEPS, key=KEY_STEP, prev=BF16))
    s.send((KEY, B))
    for how, status in (
        *((row(5, 2, value), "FORMAT") for value in (0, 1, 3, 4, 2 + 256, 2 + 2**31)),
        (row(5, 0, 16), "FORMAT"),
        (row(5, 0, 17), "FORMAT"),
        (row(5, 0, 19), "FORMAT"),
        (row(5, 1, 1), "FORMAT"),
        (rows(lambda r: r + [[18, 0, RANS]]), "FORMAT"),
        (rows(lambda r: r[-1:] + r[:-1]), "FORMAT"),
        # Without the parameter, payload_bytes would have to be that of the plain payload.
        (rows(lambda r: r[:-1]), "FORMAT"),
        (row(4, 2, 3), "FORMAT"),
        (row(3, 2, 7), "MISMATCH"),
    ):
        frame = s.frame((KEY, B))
        how(frame)
        s.deliver(frame, status, 2)
    del s.parameters["entropy"]
    s.deliver(s.frame((KEY, B)), "MISMATCH", 2)
    s.parameters["entropy"] = RANS
    s.send((KEY, B))
    taken(s)
    return s


def bad_entropy_channels():
    """Parameter 18 is refused with group = channel, and with the codec raw."""
    s = Script(random.Random(1), "direct", {"bits": 4, "group": CHANNEL}, (2, 40))
    s.send((STATELESS, A), answer=0)
    frame = s.frame((STATELESS, A))
    frame.rows.append([18, 0, RANS])
    s.deliver(frame, "FORMAT", 0)
    s.parameters = {"bits": 4, "group": 32, "entropy": RANS}
    s.deliver(s.frame((STATELESS, A)), "MISMATCH", 0)
    s.codec, s.parameters = "raw", {"dtype": F32}
    frame = s.frame((STATELESS, A))
    frame.rows.append([18, 0, RANS])
    s.deliver(frame, "FORMAT", 0)
    return s


# The functions that make one script each. Their scripts are all written to golden_page/.
ALONE = (
    rans_blocks,
    rans_fill,
    rans_parts,
    parts_of_one_code,
    bad_blocks,
    bad_undithered,
    bad_parts,
    bad_sizes,
    bad_long_group,
    bad_wide_codes,
    bad_order,
    bad_entropy_fields,
    bad_entropy_channels,
)
