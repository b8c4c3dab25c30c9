"""summary.json: how a session stands, rewritten at each save and at the end."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from digideep.errors import UsageError, one_line
from digideep.pipeline.fsio import publish_json, read_json
from digideep.pipeline.layout import SessionPaths, checkpoint_number

__all__ = ["KILLED", "STATES", "State", "Summary", "scores_from_varlog"]

State = Literal["running", "stopped", "failed", "done"]
STATES = ("running", "stopped", "failed", "done")
_WRITING = threading.Lock()
_GREATEST = 1e300  # beyond it nothing can be computed with; JSON knows integers of any length
KILLED = "ended without a word: killed, or the machine went down"


@dataclasses.dataclass
class Summary:
    """How a session stands; its fields are the keys of the file.

    `last_test` is {"epoch", "frame", "mean_return", "std_return", "n"}, `best_test` {"checkpoint", "mean_return",
    "std_return", "n"} with the name of the checkpoint that was tested, None where that moment was not saved.
    `checkpoints` are {"name", "epoch", "frame", "mean_return"} in the order of their numbers; `mean_return`, the score,
    is that of the latest test, else of training, None before the first episode has ended.
    """

    state: State = "running"
    exit_code: int | None = None
    reason: str = ""
    epoch: int = 0
    frame: int = 0
    episode: int = 0
    wall_s: float = 0.0
    frames_per_s: float = 0.0
    last_test: dict[str, Any] | None = None
    best_test: dict[str, Any] | None = None
    env_errors: int = 0
    restarts: int = 0
    exactness: str = "exact"
    checkpoints: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, paths: SessionPaths) -> Self:
        """Return the summary of a session; a fresh one where there is no file.

        Raises:
            UsageError: the file is malformed, or no regular file.
        """
        try:
            paths.summary.lstat()
        except FileNotFoundError:
            return cls()
        return cls.from_plain(read_json(paths.summary), where=one_line(paths.summary))

    @classmethod
    def from_plain(cls, value: object, *, where: str) -> Self:
        """Return the summary that `to_plain` wrote; keys of later versions are passed over.

        Raises:
            UsageError: a key has a value of another type.
        """
        if not isinstance(value, dict):
            raise UsageError(f"{where}: expected an object, found {type(value).__name__}; restore the file")
        known = {field.name for field in dataclasses.fields(cls)}
        summary = cls(**{name: entry for name, entry in value.items() if name in known})
        for name in known:
            if not _CHECKS[name](getattr(summary, name)):
                found = one_line(repr(getattr(summary, name)), limit=80)
                raise UsageError(f"{where}: expected a {name} as digideep writes it, found {found}; restore the file")
        return summary

    def to_plain(self) -> dict[str, Any]:
        """Return plain data; a number that is not finite becomes None, which is all JSON has for it."""
        plain: dict[str, Any] = _finite(dataclasses.asdict(self))
        return plain

    def write(self, paths: SessionPaths) -> None:
        """Publish the file.

        Raises:
            StorageError: it could not be replaced; the former one stands.
        """
        with _WRITING:  # what is written last is what was known last
            publish_json(paths.summary, self.to_plain())

    def update(self, values: Mapping[str, Any]) -> None:
        """Take over `values` by key; a new `last_test` becomes `best_test` where it is better.

        Raises:
            KeyError: there is no such key.
        """
        for name, value in values.items():
            if name not in _CHECKS:
                raise KeyError(name)
            setattr(self, name, value)
        if "last_test" in values:
            self._compare_with_best(values["last_test"], checkpoint=None)

    def record_checkpoint(self, number: int, *, epoch: int, frame: int, train_return: float | None) -> None:
        """Add a checkpoint that is durable now, or replace the entry of its number.

        Args:
            number: its cycles.
            epoch: epochs completed.
            frame: real transitions.
            train_return: mean return of training; the score before the first test.
        """
        name = f"checkpoint-{number}"
        score = train_return if self.last_test is None else self.last_test["mean_return"]
        others = [entry for entry in self.checkpoints if entry["name"] != name]
        others.append({"name": name, "epoch": epoch, "frame": frame, "mean_return": _finite(score)})
        self.checkpoints = sorted(others, key=lambda entry: checkpoint_number(entry["name"]) or 0)
        if self.last_test is not None and self.last_test["frame"] == frame:
            self._compare_with_best(self.last_test, checkpoint=name)

    def _compare_with_best(self, test: Mapping[str, Any] | None, *, checkpoint: str | None) -> None:
        if test is None or _finite(test["mean_return"]) is None:
            return
        entry = {name: test[name] for name in ("mean_return", "std_return", "n")}
        best = self.best_test
        # Among equals the latest that is saved: `best` ranks checkpoints so too, and retention keeps what it names.
        is_equal = best is not None and entry["mean_return"] == best["mean_return"]
        if best is None or entry["mean_return"] > best["mean_return"] or (is_equal and checkpoint):
            self.best_test = {"checkpoint": checkpoint, **entry}

    def keep_only(self, numbers: Iterable[int]) -> None:
        """Forget checkpoints that are not in `numbers`: retention or a resume from an earlier one removed them."""
        kept = set(numbers)
        self.checkpoints = [entry for entry in self.checkpoints if checkpoint_number(entry["name"]) in kept]
        self._name_only_what_is_left()

    def _name_only_what_is_left(self) -> None:
        best = self.best_test
        if best is not None and all(best["checkpoint"] != entry["name"] for entry in self.checkpoints):
            self.best_test = {**best, "checkpoint": None}

    def best(self) -> list[int]:
        """Return the numbers of the checkpoints by score, the best first; among equals that of `best_test`, then later.

        What retention keeps and what `--checkpoint best` loads are the first of these.
        """
        tested = None if self.best_test is None else self.best_test["checkpoint"]
        scored = [
            (entry["mean_return"], entry["name"] == tested, number)
            for entry in self.checkpoints
            if entry["mean_return"] is not None and (number := checkpoint_number(entry["name"])) is not None
        ]
        return [number for *_, number in sorted(scored, reverse=True)]

    def rebuild_checkpoints(self, found: Sequence[tuple[int, int, int]], rows: Sequence[Mapping[str, Any]]) -> None:
        """Make the list of checkpoints anew from what is on disk.

        Args:
            found: (number, epoch, frame) of each checkpoint, from its manifest.
            rows: of varlog.jsonl.
        """
        scores = scores_from_varlog(rows, [frame for _, _, frame in found])
        self.checkpoints = [
            {"name": f"checkpoint-{number}", "epoch": epoch, "frame": frame, "mean_return": score}
            for (number, epoch, frame), score in sorted(zip(found, scores, strict=True))
        ]
        self._name_only_what_is_left()


def scores_from_varlog(rows: Sequence[Mapping[str, Any]], frames: Sequence[int]) -> list[float | None]:
    """Return the score of a checkpoint at each of `frames`: the latest test up to there, else that of training."""
    latest: dict[str, list[tuple[int, float]]] = {"test/return": [], "train/return": []}
    for row in rows:
        meta, entries = row.get("meta"), row.get("data")
        if not isinstance(meta, Mapping) or not isinstance(entries, Mapping) or not _is_count(meta.get("frame")):
            continue
        for name, series in latest.items():
            entry = entries.get(name)
            mean = entry.get("mean") if isinstance(entry, Mapping) else None
            if mean is not None and _is_number(mean):
                series.append((meta["frame"], float(mean)))
    scores: list[float | None] = []
    for frame in frames:
        known = [[mean for at, mean in series if at <= frame] for series in latest.values()]
        scores.append(next((means[-1] for means in known if means), None))
    return scores


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _GREATEST


def _is_number(value: object) -> bool:
    return (type(value) is float or type(value) is int) and -_GREATEST < value < _GREATEST


def _is_number_or_none(value: object) -> bool:
    return value is None or _is_number(value)


def _is_test(value: object) -> bool:
    keys = ("mean_return", "std_return", "n")
    return value is None or (
        isinstance(value, dict) and all(key in value and _is_number_or_none(value[key]) for key in keys)
    )


def _is_last_test(value: object) -> bool:
    return _is_test(value) and (value is None or _is_count(value.get("frame")))  # type: ignore[attr-defined]


def _is_best_test(value: object) -> bool:
    return _is_test(value) and (value is None or isinstance(value.get("checkpoint", 0), str | None))  # type: ignore[attr-defined]


def _is_checkpoint_list(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and _is_count(entry.get("epoch"))
        and _is_count(entry.get("frame"))
        and _is_number_or_none(entry.get("mean_return"))
        for entry in value
    )


_CHECKS = {
    "state": lambda value: isinstance(value, str) and value in STATES,
    "exit_code": lambda value: value is None or type(value) is int,
    "reason": lambda value: isinstance(value, str),
    "exactness": lambda value: isinstance(value, str),
    **dict.fromkeys(("epoch", "frame", "episode", "env_errors", "restarts"), _is_count),
    **dict.fromkeys(("wall_s", "frames_per_s"), _is_number_or_none),
    "last_test": _is_last_test,
    "best_test": _is_best_test,
    "checkpoints": _is_checkpoint_list,
}
