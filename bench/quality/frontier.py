#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# frontier.py - who loses least at which rate, from the rows that the program quality wrote.
"""Where any setting between two measured ones is possible ("between", such as steps), the error
between them is interpolated: its logarithm is nearly linear in bits. Elsewhere only what was
measured counts, for its own rate and all greater ones."""

import bisect
import math

RATES = [round(0.5 + 0.05 * i, 2) for i in range(91)]  # 0.5 to 5 bits
FLOAT = 32
# Which rows are compared: those that keep nothing of earlier visits, those that do, or all.
SCOPES = {"alone": {False}, "changes": {True}, "all": {False, True}}


def curves(rows, part="later"):
    """{(family, ...): [(bits, error, codec)]}, of families that have figures, by ascending bits.
    A row of a family without settings in between is a curve of its own."""
    found = {}
    for row in rows:
        bits, error = row[part]["bits"], row[part]["error"]
        if bits is None or not error:
            continue
        name = (row["family"],) if row["between"] else (row["family"], row["codec"])
        found.setdefault(name, []).append((bits, error, row["codec"]))
    return {name: sorted(points) for name, points in found.items()}


def error_at(points, rate):
    """(error, codec) of a curve at a rate, or None below its smallest one."""
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
    """(error, codec) of the best row at a rate, or None."""
    found = [error_at(points, rate) for points in curves(rows, part).values()]
    return min((one for one in found if one), default=None)


def bits_at(rows, error, part="later"):
    """The least bits at which rows lose no more than this, or None."""
    best = []
    for points in curves(rows, part).values():
        for (b0, e0, _), (b1, e1, _) in zip(points, points[1:]):
            if e0 > error >= e1:
                share = (math.log(e0) - math.log(error)) / (math.log(e0) - math.log(e1))
                best.append(b0 + share * (b1 - b0))
        best += [bits for bits, its, _ in points if its <= error]
    return min(best, default=None)


def in_scope(rows, scope):
    return [row for row in rows if row["state"] in SCOPES[scope]]


def ahead(rows, scope):
    """[{rate, baseline, baseline_error, ours, ours_error}] of all RATES at which a baseline loses
    less than every codec of ours."""
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
    """(bits, codec): of the baselines' rows of 0.5 to 5 bits the one that comes closest to ours,
    and how many bits more it takes at its own error. Less than 0: it is ahead. Or None. An error
    that no codec of ours has is counted as needing all bits of a float."""
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
