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
    "fence",
    "spin",
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

SLEEP_MS = 20  # the longest sleep: bounds what a wake-up lost between two processors can cost

_lock = threading.Lock()


def fence() -> None:
    """Make what this thread has written visible before it reads on: taking a lock is a memory barrier."""
    with _lock:
        pass


def words(signals: np.ndarray, worker: int) -> memoryview:
    """Return the words of one worker; a memoryview is read and written faster than an array."""
    return memoryview(signals[worker]).cast("B").cast("q")


def spin(view: memoryview, word: int, value: int, *, for_ns: int) -> bool:
    """Wait until a word has reached `value`, giving way to others; False when the time is up."""
    if view[word] >= value:
        return True
    end = perf_counter_ns() + for_ns
    while perf_counter_ns() < end:
        if view[word] >= value:
            return True
        os.sched_yield()
    return view[word] >= value
