"""How a worker and its parent wake each other: words in shared memory first, a message only for one that sleeps.

A word costs a microsecond, a message forty. Each side looks at the other's word for a short while and then sleeps on
the socket; before it sleeps it says so in a word, and whoever changes something looks at that word and sends a
message.
"""

from __future__ import annotations

import os
import threading
from time import perf_counter_ns

import numpy as np

__all__ = [
    "ANSWERED",
    "ASKED",
    "FAILED",
    "FAULTED",
    "IN_RESET",
    "IN_STEP",
    "PARENT_SLEEPS",
    "PARENT_SPIN_NS",
    "POSITION",
    "ROW",
    "SLEEP_MS",
    "STARTED",
    "UNREAD",
    "WORKER_SLEEPS",
    "WORKER_SPIN_NS",
    "Patience",
    "fence",
    "words",
]

ASKED = 0  # number of the newest step that was asked for
ROW = 1  # of that step
ANSWERED = 8  # number of the newest step that is done; words of the worker lie in a cache line of their own
FAILED = 9  # number of the step that raised; the message has the error
POSITION = 10  # which of its environments the worker is stepping; the next word says in which call
UNREAD = 12  # episodes that have ended and were not collected
WORKER_SLEEPS = 13
STARTED = 14  # number of the newest step that was begun
FAULTED = 15  # number of the step in which environments failed and were forgiven; a message says which
PARENT_SLEEPS = 2

IN_STEP = 0
IN_RESET = 1

# How long a look lasts. Falling asleep between two steps costs more than the steps of a cheap environment; the parent
# gives way while it looks, so that workers that need every core get them.
PARENT_SPIN_NS = 1_000_000
WORKER_SPIN_NS = 500_000

_LOOK_NS = 20_000  # without giving way: less than falling asleep and being woken costs
_LATE_NS = 200_000  # when giving way took long
_CROWDED = 200  # waits until it is tried again

SLEEP_MS = 20  # the longest sleep: bounds what a wake-up lost between two processors can cost

_lock = threading.Lock()


def fence() -> None:
    """Make what this thread has written visible before it reads on: taking a lock is a memory barrier."""
    with _lock:
        pass


def words(signals: np.ndarray, worker: int) -> memoryview:
    """Return the words of one worker; a memoryview is read and written faster than an array."""
    return memoryview(signals[worker]).cast("B").cast("q")


class Patience:
    """Waits for a word by looking at it, `for_ns` at the longest, and gives way to others meanwhile.

    Who gives way on a core that others want too comes back after a whole turn of theirs, milliseconds later; who sleeps
    and is woken does not wait for that. So where giving way was seen to take long, the next waits are short looks.

    Args:
        for_ns: how long a look lasts on a core that nobody else wants.
    """

    def __init__(self, for_ns: int) -> None:
        self._for_ns = for_ns
        self._crowded = 0  # waits that are short looks only

    def sees(self, view: memoryview, word: int, value: int) -> bool:
        """Wait until a word has reached `value`; False when it has not and it is time to sleep."""
        if view[word] >= value:
            return True
        now = perf_counter_ns()
        looks_until = now + _LOOK_NS
        end = now + self._for_ns
        if self._crowded:
            self._crowded -= 1
            end = looks_until
        while now < end:
            if view[word] >= value:
                return True
            if now < looks_until:
                now = perf_counter_ns()
                continue
            os.sched_yield()
            before, now = now, perf_counter_ns()
            if now - before > _LATE_NS:
                self._crowded = _CROWDED
                break
        return view[word] >= value
