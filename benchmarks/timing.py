"""The time of one call. Standard library only: peers use it."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

__all__ = ["best_us"]

_ROUND_S = 0.02
_ROUNDS = 7


def best_us(act: Callable[[], Any]) -> float:
    """Return the microseconds of one call: the least of several rounds, since the machine may be shared."""
    timer = timeit.Timer(act)
    act()
    number, taken = 1, timer.timeit(1)
    while taken < _ROUND_S:
        number = max(2 * number, int(number * _ROUND_S / max(taken, 1e-9)))
        taken = timer.timeit(number)
    return min(taken, *timer.repeat(_ROUNDS - 1, number)) / number * 1e6
