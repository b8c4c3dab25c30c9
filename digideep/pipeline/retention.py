"""Which checkpoints stay, and how the others leave: renamed first, so that a crash never leaves half of one behind.

Names in `checkpoints/` besides `checkpoint-<n>`:

    .tmp-<n>-<run>          a save that has not been committed
    .trash-<n>-<run>        on its way out
    .superseded-<n>-<run>   later than the checkpoint that a resume went on from
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from digideep.pipeline.fsio import FileSystem

__all__ = ["SUPERSEDED", "TRASH", "kept_numbers", "move_aside", "passed_by", "stale_names"]

TRASH = ".trash"
SUPERSEDED = ".superseded"
_STALE = re.compile(r"\.(tmp|trash)-.*", re.DOTALL)
_SUPERSEDED = re.compile(r"\.superseded-(0|[1-9][0-9]*)-.*", re.DOTALL)


def kept_numbers(
    numbers: Sequence[int], *, keep_last: int, keep_best: int | None, keep_every: int, best: Sequence[int]
) -> set[int]:
    """Return which of `numbers` stay.

    Args:
        numbers: all there are, ascending.
        keep_last: how many of the newest; the newest one stays in any case.
        keep_best: how many of `best`; None: all of them.
        keep_every: numbers that this divides stay for ever; 0: none do.
        best: numbers by score, the best first.
    """
    there = set(numbers)
    kept = set(numbers[-max(keep_last, 1) :])
    kept.update([number for number in best if number in there][:keep_best])
    if keep_every > 0:
        kept.update(number for number in numbers if number % keep_every == 0)
    return kept


def stale_names(names: Iterable[str]) -> list[str]:
    """Return the names that only a process that was killed can have left, for one who holds the session's lock."""
    return [name for name in names if _STALE.fullmatch(name)]


def passed_by(names: Iterable[str], *, newest: int) -> list[str]:
    """Return the superseded checkpoints whose place in training the present line has reached, so that they can go."""
    matches = ((name, _SUPERSEDED.fullmatch(name)) for name in names)
    return [name for name, match in matches if match and int(match.group(1)) <= newest]


def move_aside(path: Path, kind: str, *, number: int, run_id: str, fs: FileSystem) -> Path:
    """Rename a checkpoint to a name of `kind` that nothing has yet, and return it; nothing is synchronised."""
    names = set(fs.listdir(path.parent))
    name, count = f"{kind}-{number}-{run_id}", 1
    while name in names:
        count += 1
        name = f"{kind}-{number}-{run_id}-{count}"
    target = path.with_name(name)
    fs.rename(path, target)
    return target
