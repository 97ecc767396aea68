# SPDX-License-Identifier: Apache-2.0
# intervals.py - means with 95 % intervals of Student's t distribution.
from __future__ import annotations

import math
import statistics
from typing import Optional, Sequence

# The quantile 0.975 for 1, 2, 3 ... degrees of freedom.
QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def quantile(degrees: int) -> float:
    if degrees <= len(QUANTILES):
        return QUANTILES[degrees - 1]
    # The first terms of the quantile's expansion in 1 / degrees: exact to 0.001 from here on.
    z = 1.959964
    one = (z**3 + z) / 4
    two = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + one / degrees + two / degrees**2


def mean_of(values: Sequence[float]) -> list[Optional[float]]:
    """[mean, half of the width of its 95 % interval]; the latter is None for a single value, and if
    one is not finite."""
    mean = statistics.fmean(values)
    if len(values) < 2 or not math.isfinite(mean):
        return [mean, None]
    off = statistics.stdev(values) / math.sqrt(len(values))
    return [mean, quantile(len(values) - 1) * off]


def told(interval: Sequence[Optional[float]], form: str) -> str:
    """An interval as text. form: of each number, such as "+.2f"."""
    mean, half = interval
    return f"{mean:{form}}" + ("" if half is None else f" ± {half:{form.lstrip('+')}}")
