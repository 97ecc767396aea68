# SPDX-License-Identifier: Apache-2.0
# spec_scripts.py - what test_spec_decoder.py and entropy_scripts.py share: keys, entries whose
# payload a test has made itself, and changes that make a frame invalid.
"""Written from docs/format.md alone, like spec_encoder.py. Except for add_entry, the functions
return functions that change a frame (spec_encoder.Frame) before its bytes are put together."""

from spec_encoder import DELTA, KEY, STATELESS, Entry, state_digest

A, B, D = (7, 0), (7, 1), (2**64 - 1, 2**32 - 1)  # keys: (sample, slice)


def add_entry(s, frame, role, form, made):
    """Adds an entry of the key A to a frame of the script s. made: the entry's payload with its
    results, (payload, y, prev), as a method of spec_encoder.Payloads returns them. Returns the
    entry."""
    use = {STATELESS: 1, KEY: 1, DELTA: 2}[role]
    e = Entry(A, role, form, use, *made)
    if role == DELTA:
        e.base_chain = s.held[A][-1]
    if role != STATELESS:
        prev, audit = s.parameters["prev"], s.parameters["audit"]
        e.state_digest = state_digest(e.prev, prev, audit, A, frame.sequence)
    frame.entries.append(e)
    return e


def fields(key, value):
    """Sets a field of the frame's header."""
    return lambda frame: setattr(frame, key, value)


def of_entry(field, value):
    """Sets a field of the frame's second entry."""
    return lambda frame: setattr(frame.entries[1], field, value)


def row(place, column, value):
    """Sets one column of the parameter in row `place`. Columns: 0 the parameter's number, 1 its
    zeros, 2 its value."""
    return lambda frame: frame.rows[place].__setitem__(column, value)


def rows(change):
    """Replaces the list of all parameters by what the function `change` makes of it."""
    return lambda frame: frame.rows.__setitem__(slice(None), change(frame.rows))


def both(*changes):
    """Makes several changes, one after the other."""
    return lambda frame: [change(frame) for change in changes]
