#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# frontier.py - finds which codec or baseline has the least error at each rate, and compares the two
# kinds, from the rows that the program quality wrote.
"""Compares rate and error of the rows that the program quality wrote. A row is one codec or
baseline with one setting. Its rate is the number of bits per element, and its error |y - x| / |x|.

A family whose rows are marked "between", such as those with steps, may have any setting between two
measured ones. Its error between two rates is interpolated: the logarithm of the error is nearly
linear in the bits. Any other row counts by itself, as available at its own rate and at all greater
ones."""

import bisect
import math

RATES = [round(0.5 + 0.05 * i, 2) for i in range(91)]  # the rates that are compared: 0.5 to 5 bits
FLOAT = 32  # the bits of an uncompressed value
# Rows are compared within a scope. It is a set of values of their field "state", which is False for
# tensors that are sent alone, and True for changes since a sample's last visit.
SCOPES = {"alone": {False}, "changes": {True}, "all": {False, True}}


def curves(rows, part="later"):
    """Groups rows into curves. Returns {name: [(bits, error, codec), ...]}, each list by ascending
    bits. All rows of a family that is marked "between" are one curve; any other row is a curve of
    its own. Rows without an error above 0 are left out. part is "first" or "later": the visits
    whose figures are taken."""
    found = {}
    for row in rows:
        bits, error = row[part]["bits"], row[part]["error"]
        if bits is None or not error:
            continue
        name = (row["family"],) if row["between"] else (row["family"], row["codec"])
        found.setdefault(name, []).append((bits, error, row["codec"]))
    return {name: sorted(points) for name, points in found.items()}


def error_at(points, rate):
    """Returns (error, codec) of a curve (a list from curves) at a rate: its least error with at
    most so many bits. Returns None if the whole curve takes more bits."""
    at = bisect.bisect_right([bits for bits, _, _ in points], rate)
    if at == 0:
        return None
    error, codec = min((error, codec) for _, error, codec in points[:at])
    if at < len(points):
        (b0, e0, _), (b1, e1, _) = points[at - 1 : at + 1]
        share = (rate - b0) / (b1 - b0)
        between = math.exp(math.log(e0) + share * (math.log(e1) - math.log(e0)))
        error = min(error, between)
    return error, codec


def least(rows, rate, part="later"):
    """Returns the (error, codec) with the least error that rows have at a rate, or None if all of
    them take more bits."""
    found = [error_at(points, rate) for points in curves(rows, part).values()]
    return min((one for one in found if one), default=None)


def bits_at(rows, error, part="later"):
    """Returns the smallest number of bits with which one of the rows has at most this error, or
    None if all of them have larger ones."""
    best = []
    for points in curves(rows, part).values():
        for (b0, e0, _), (b1, e1, _) in zip(points, points[1:]):
            if e0 > error >= e1:
                share = (math.log(e0) - math.log(error)) / (math.log(e0) - math.log(e1))
                best.append(b0 + share * (b1 - b0))
        best += [bits for bits, its, _ in points if its <= error]
    return min(best, default=None)


def in_scope(rows, scope):
    """Returns those of the rows that belong to a scope, which is a key of SCOPES."""
    return [row for row in rows if row["state"] in SCOPES[scope]]


def ahead(rows, scope):
    """Returns one {rate, baseline, baseline_error, ours, ours_error} for each of RATES at which a
    baseline has a smaller error than every codec of deltawire. baseline and ours are the best of
    each kind; ours is None if every codec of deltawire takes more bits."""
    rows = in_scope(rows, scope)
    ours, others = ([row for row in rows if row["ours"] is mine] for mine in (True, False))
    found = []
    for rate in RATES:
        best, peer = least(ours, rate), least(others, rate)
        if peer and (not best or peer[0] < best[0]):
            found.append(
                {
                    "rate": rate,
                    "baseline": peer[1],
                    "baseline_error": peer[0],
                    "ours": best and best[1],
                    "ours_error": best and best[0],
                }
            )
    return found


def closest(rows, scope):
    """Finds which baseline comes closest to deltawire. For each baseline of 0.5 to 5 bits, the
    bits that it takes are compared with those that deltawire takes for the same error. Returns
    (difference, codec) of the baseline with the smallest difference, or None without baselines. A
    difference below 0 means that the baseline is ahead. If no codec of deltawire has so small an
    error, deltawire is counted as taking the 32 bits of a float."""
    rows = in_scope(rows, scope)
    ours = [row for row in rows if row["ours"]]
    found = []
    for row in rows:
        bits = row["later"]["bits"]
        if row["ours"] or not RATES[0] <= bits <= RATES[-1]:
            continue
        needed = bits_at(ours, row["later"]["error"])
        found.append((bits - (FLOAT if needed is None else needed), row["codec"]))
    return min(found, default=None)
