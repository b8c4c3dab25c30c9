"""Threads of numpy's products of matrices: how many its OpenBLAS takes, where it can be told while it runs."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

__all__ = ["ProductThreads", "SpreadWhileItPays", "set_product_threads"]

_NAMES = tuple(
    (f"{prefix}openblas_get_num_threads{suffix}", f"{prefix}openblas_set_num_threads{suffix}")
    for prefix in ("scipy_", "")
    for suffix in ("64_", "")
)  # what they are called in the OpenBLAS of numpy's wheels, and in others

_ALONE = 16  # blocks in one thread at the beginning: the first are slow
_LATE, _MUCH = 4, 4.0  # blocks in a row that several threads may lose; times as long as in one is too much at once
_PAUSE, _LONGEST_PAUSE = 64, 32768  # blocks in one thread before several are tried again
_GOOD = 1024  # blocks after which what several threads have lost is forgotten


class _Library(NamedTuple):
    get: Callable[[], int]
    set: Callable[[int], Any]


class ProductThreads:
    """While it is entered, products take at least so many threads; then as many as before. Small ones still take one.

    Attributes:
        count: how many; 1 where numpy has no OpenBLAS that can be told.

    Args:
        wanted: how many.
    """

    def __init__(self, wanted: int) -> None:
        self._libraries = _loaded() if wanted > 1 else []
        self.count = wanted if self._libraries else 1
        self._before: list[int] = []

    def __enter__(self) -> ProductThreads:
        self._before = [library.get() for library in self._libraries]
        for library, before in zip(self._libraries, self._before, strict=True):
            library.set(max(before, self.count))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for library, before in zip(self._libraries, self._before, strict=True):
            library.set(before)


class SpreadWhileItPays:
    """Blocks of equal work of which each takes several threads of `ProductThreads`, or one where that is quicker.

    Threads of OpenBLAS wait for each other awake. On cores that other programs want too a block may take several times
    as long as in one thread, and so each is timed, and what has lost is not tried again for a while. Use it only where
    the number of threads changes no bit.

    Args:
        threads: what is entered for a block.
        clock: seconds.
    """

    def __init__(self, threads: ProductThreads, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._threads = threads
        self._clock = clock
        self._alone = math.inf  # the least time of a block in one thread, of those since several were tried last
        self._left, self._pause = (_ALONE if threads.count > 1 else -1), _PAUSE
        self._late = self._good = 0
        self._begun = 0.0

    @property
    def is_spread(self) -> bool:
        """Whether the next block takes several threads, or this one does."""
        return self._left == 0

    def __enter__(self) -> SpreadWhileItPays:
        if self.is_spread:
            self._threads.__enter__()
        self._begun = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took = self._clock() - self._begun
        if self.is_spread:
            self._threads.__exit__(kind, error, trace)
            self._judge(took)
        elif self._left > 0:
            self._alone = min(self._alone, took)
            self._left -= 1

    def _judge(self, took: float) -> None:
        self._good += 1
        if self._good == _GOOD:
            self._pause = _PAUSE
        self._late = self._late + 1 if took > self._alone else 0
        if self._late == _LATE or took > _MUCH * self._alone:
            self._alone, self._late, self._good, self._left = math.inf, 0, 0, self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def set_product_threads(count: int) -> bool:
    """Have the OpenBLAS that numpy has loaded take `count` threads; return whether there is one that can be told."""
    libraries = _loaded()
    for library in libraries:
        library.set(count)
    return bool(libraries)


def _loaded() -> list[_Library]:
    """Return what this process has loaded of OpenBLAS; nothing where the system does not tell."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            paths = {line.split(maxsplit=5)[-1].strip() for line in file if "openblas" in line}
        libraries = [ctypes.CDLL(path) for path in sorted(paths)]
    except OSError:  # no such system, or a library that was replaced meanwhile
        return []
    pairs = [[getattr(library, name, None) for name in names] for library in libraries for names in _NAMES]
    return [_Library(get, set_) for get, set_ in pairs if get is not None and set_ is not None]
