"""Statistics of the numbers that describe a run, collected over epochs and given as rows of varlog.jsonl."""

from __future__ import annotations

import logging
import math
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from digideep.errors import ShapeError, one_line

__all__ = ["CLOCK_PREFIXES", "MAX_METRICS", "Monitor", "Moments", "moments_of", "pooled"]

logger = logging.getLogger(__name__)

CLOCK_PREFIXES = ("time/", "machine/")  # names whose values depend on the clock or the machine
MAX_METRICS = 1000  # names that environments may bring into a run
_META = ("epoch", "frame", "episode", "clock")
_LARGEST = sys.float_info.max


class Moments(NamedTuple):
    """What is kept of a set of numbers: how many, mean, sum of squared deviations from it, smallest, largest."""

    num: int = 0
    mean: float = 0.0
    squares: float = 0.0
    smallest: float = math.inf
    largest: float = -math.inf


_NOTHING = Moments()


def _read(saved: Any) -> Moments:
    wrong = len(saved) != len(Moments._fields) or any(type(value) not in (int, float) for value in saved)
    if wrong or type(saved[0]) is not int or saved[0] < 0:
        raise TypeError(f"expected {len(Moments._fields)} numbers, found {one_line(saved, limit=80)}")
    if saved[0] > 0 and not all(-_LARGEST <= value <= _LARGEST for value in saved):
        raise ValueError(f"expected finite numbers, found {one_line(saved, limit=80)}")
    return Moments(*saved)


def _read_counts(saved: Mapping[str, Any]) -> dict[str, int]:
    if any(type(count) is not int for count in saved.values()):
        raise TypeError(f"expected counts, found {one_line(saved, limit=80)}")
    return dict(saved)


class _Series:
    """The numbers of one name: those of the epoch in progress, unrolled for speed, and those of epochs before."""

    __slots__ = ("history", "largest", "mean", "num", "smallest", "squares", "window")

    def __init__(self, window: int) -> None:
        self.window = window
        self.history: deque[Moments] = deque(maxlen=window - 1)
        self.set(_NOTHING)

    def get(self) -> Moments:
        return Moments(self.num, self.mean, self.squares, self.smallest, self.largest)

    def set(self, moments: Moments) -> None:
        self.num, self.mean, self.squares, self.smallest, self.largest = moments


class Monitor:
    """Collects named numbers; `dump` gives one row of statistics an epoch.

    Each name has a window: how many of the latest epochs (from one dump to the next) its statistics pool. With
    window 1 a row tells of one epoch; an epoch without a value counts too, and a name that had none in its whole window
    is not in the row. The standard deviation is that of the values themselves (divided by num, not num - 1).

    NaN and infinity are left out of the statistics and counted in `nonfinite` (a warning tells of the first of each
    name). Not for several threads at once.
    """

    def __init__(self) -> None:
        self.meta: dict[str, int | float] = dict.fromkeys(_META, 0)
        self.nonfinite: dict[str, int] = {}
        self._series: dict[str, _Series] = {}
        self._admitted: dict[str, None] = {}
        self._has_refused = False

    def admits(self, name: str) -> bool:
        """Whether there is room for the metric `name` of an environment; a warning tells of the first without."""
        if name in self._admitted:
            return True
        if len(self._admitted) < MAX_METRICS:
            self._admitted[name] = None
            return True
        if not self._has_refused:
            logger.warning("%s: left out, as are others: %d metrics are kept of a run", one_line(name), MAX_METRICS)
        self._has_refused = True
        return False

    def set_meta(self, **values: int | float) -> None:
        """Set epoch, frame, episode or clock (seconds), which stand in the next row."""
        for key, value in values.items():
            if key not in _META:
                raise ShapeError(f"monitor: expected meta data {', '.join(_META)}, found {key!r}")
            self.meta[key] = float(value) if key == "clock" else int(value)

    def monitor(self, name: str, value: Any, window: int = 1) -> None:
        """Add a number, or all elements of an array, to `name`.

        Args:
            name: as in docs/metrics.md.
            value: a number, numpy scalar or array, or what numpy makes a numeric array of.
            window: how many of the latest epochs are pooled; the value given last counts.

        Raises:
            ShapeError: `value` is no number, or `window` is below 1.
        """
        series = self._series.get(name)
        if series is None or series.window != window:
            series = self._open(name, window)
        if type(value) is not float:
            number = _number_of(value)
            if number is None:
                self._add(name, series, _array_of(name, value))
                return
            value = number
        if value - value != 0.0:  # true for NaN and infinity only
            self._count_nonfinite(name, 1)
            return
        num = series.num = series.num + 1
        before = series.mean
        delta = value - before
        if num == 1:
            series.mean = value
        else:
            mean = series.mean = before + delta / num
            series.squares += delta * (value - mean)
            if not 0.0 <= series.squares <= _LARGEST:
                # Squared deviations are beyond what a float holds; the mean is kept right.
                series.mean = before * ((num - 1) / num) + value / num
                series.squares = _LARGEST
        if value < series.smallest:
            series.smallest = value
        if value > series.largest:
            series.largest = value

    def extend(self, name: str, values: Any, window: int = 1) -> None:
        """Add all elements of an array (or sequence of numbers) to `name`."""
        series = self._series.get(name)
        if series is None or series.window != window:
            series = self._open(name, window)
        self._add(name, series, _array_of(name, values))

    def peek(self, name: str) -> dict[str, int | float] | None:
        """Return the statistics of `name` over its window up to now; None if it has no value there."""
        series = self._series.get(name)
        return _entry(_window_of(series)) if series is not None else None

    def dump(self) -> dict[str, dict[str, Any]]:
        """Return the row {"meta", "data": {name: {"num", "mean", "std", "min", "max"}}} and begin a new epoch."""
        data = {}
        for name, series in list(self._series.items()):
            entry = _entry(_window_of(series))
            if entry is not None:
                data[name] = entry
            series.history.append(series.get())
            series.set(_NOTHING)
            if not any(moments.num for moments in series.history):
                del self._series[name]
        return {"meta": dict(self.meta), "data": data}

    def state_dict(self) -> dict[str, Any]:
        """Return all windows and meta data as plain data.

        What depends on the clock (time/, machine/, the clock itself) stands below the key `clocks`, which may be kept
        apart from the rest: `load_state_dict` wants it back in its place.
        """
        steady = {key: value for key, value in self.meta.items() if key != "clock"}
        admitted = {"admitted": list(self._admitted)} if self._admitted else {}
        return {
            "meta": steady,
            **admitted,
            **self._state_of(clock_like=False),
            "clocks": {"clock": self.meta["clock"], **self._state_of(clock_like=True)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; without its key `clocks` clock-like windows start empty."""
        clocks = state.get("clocks", {"clock": 0.0, "series": {}, "nonfinite": {}})
        self.meta = {**dict.fromkeys(_META, 0), **state["meta"], "clock": float(clocks["clock"])}
        self.nonfinite = _read_counts({**state["nonfinite"], **clocks["nonfinite"]})
        self._admitted = dict.fromkeys(str(name) for name in list(state.get("admitted", ()))[:MAX_METRICS])
        self._series = {}
        for name, saved in {**state["series"], **clocks["series"]}.items():
            series = self._series[name] = _Series(int(saved["window"]))
            series.history.extend(_read(moments) for moments in saved["history"])
            series.set(_read(saved["current"]))

    def _state_of(self, *, clock_like: bool) -> dict[str, Any]:
        # Sorted, since the order in which names first appear may differ between runs that are otherwise equal.
        series = {
            name: {
                "window": item.window,
                "history": [list(moments) for moments in item.history],
                "current": list(item.get()),
            }
            for name, item in sorted(self._series.items())
            if name.startswith(CLOCK_PREFIXES) is clock_like
        }
        nonfinite = {
            name: count
            for name, count in sorted(self.nonfinite.items())
            if name.startswith(CLOCK_PREFIXES) is clock_like
        }
        return {"series": series, "nonfinite": nonfinite}

    def _open(self, name: str, window: int) -> _Series:
        if not isinstance(window, int) or window < 1:
            raise ShapeError(f"monitor {one_line(name)!r}: expected a window of at least 1 epoch, found {window!r}")
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = _Series(window)
        else:
            series.window = window
            series.history = deque(series.history, maxlen=window - 1)
        return series

    def _add(self, name: str, series: _Series, values: Any) -> None:
        added, nonfinite = moments_of(values)
        if nonfinite:
            self._count_nonfinite(name, nonfinite)
        series.set(pooled(series.get(), added))

    def _count_nonfinite(self, name: str, count: int) -> None:
        if name not in self.nonfinite:
            logger.warning("%s: a value is NaN or infinite; such values are counted, not averaged", one_line(name))
        self.nonfinite[name] = self.nonfinite.get(name, 0) + count


def moments_of(values: Any) -> tuple[Moments, int]:
    """Return the moments of a numeric array, and how many of its elements were left out as not finite."""
    import numpy as np

    flat = np.asarray(values, dtype=np.float64).ravel()
    finite = flat[np.isfinite(flat)]
    left_out = flat.size - finite.size
    if finite.size == 0:
        return _NOTHING, left_out
    smallest, largest = float(finite.min()), float(finite.max())
    if smallest == largest:  # a sum divided by a count need not give the value back
        return Moments(finite.size, smallest, 0.0, smallest, largest), left_out
    with np.errstate(over="ignore"):
        mean = float(finite.mean())
        if not math.isfinite(mean):
            mean = float((finite / finite.size).sum())
        squares = float(np.square(finite - mean).sum())
    return Moments(finite.size, mean, min(squares, _LARGEST), smallest, largest), left_out


def pooled(first: Moments, second: Moments) -> Moments:
    """Return the moments of two sets together.

    Source: Chan, Golub and LeVeque 1979, Updating formulae and a pairwise algorithm for computing sample variances.
    """
    if first.num == 0 or second.num == 0:
        return second if first.num == 0 else first
    num = first.num + second.num
    share = second.num / num
    delta = second.mean - first.mean
    mean = first.mean + delta * share
    if not math.isfinite(mean):
        mean = first.mean * (first.num / num) + second.mean * share
    squares = first.squares + second.squares + delta * delta * first.num * share
    smallest, largest = min(first.smallest, second.smallest), max(first.largest, second.largest)
    return Moments(num, mean, min(squares, _LARGEST), smallest, largest)


def _window_of(series: _Series) -> Moments:
    result = _NOTHING
    for moments in series.history:
        result = pooled(result, moments)
    return pooled(result, series.get())


def _entry(moments: Moments) -> dict[str, int | float] | None:
    if moments.num == 0:
        return None
    std = math.sqrt(max(0.0, moments.squares) / moments.num)
    return {
        "num": moments.num,
        "mean": moments.mean,
        "std": std,
        "min": moments.smallest,
        "max": moments.largest,
    }


def _number_of(value: Any) -> float | None:
    """Return a number or numeric scalar as a float; None for anything else, arrays included."""
    if getattr(value, "ndim", None) == 0:  # numpy scalars; their own item() is quicker than an array
        value = value.item()
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _array_of(name: str, value: Any) -> Any:
    """Return `value` as a numeric array. Raises ShapeError if it is none."""
    import numpy as np

    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"monitor {one_line(name)!r}: expected a number or an array, found {one_line(error)}"
        ) from error
    if array.dtype.kind not in "biuf":
        shown = one_line(repr(value), limit=80)
        raise ShapeError(
            f"monitor {one_line(name)!r}: expected a number or an array of numbers, "
            f"found {type(value).__name__} {shown}; leave it out or convert it"
        )
    return array
