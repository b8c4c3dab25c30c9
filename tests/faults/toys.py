"""The toy trainings of every method, and what is compared of two runs that have to be the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import TOY_DIRECTORY, Ended, Program, differences, monitor_rows

import digideep.testing

TOYS = sorted(path.stem for path in Path(digideep.testing.__file__).parent.glob("toy_*.py"))
"""Modules of `digideep.testing`, one a method: `toy_ppo`, ..."""
EVERY_DAY = ("toy_ppo", "toy_q")
"""One method with a memory of its last chunk and one with a replay memory: every test has these. The other methods are
in the everyday run of B1, and where what only they have is saved, tested or damaged; the nightly run has all."""


def toys(*more: str) -> list[Any]:
    """Return all toys as parameters, of which those of every day and `more` are not left to the nightly run."""
    assert set(more) <= set(TOYS), more
    return [parameter(toy, everyday=toy in EVERY_DAY or toy in more) for toy in TOYS]


def parameter(*values: Any, everyday: bool) -> Any:
    """Return a parameter of a test, which may be left to the nightly run."""
    return pytest.param(*values, marks=() if everyday else pytest.mark.nightly)


def arguments(toy: str, directory: Path, name: str, *assignments: str, draws: bool = True) -> list[str]:
    """Return the arguments that train a toy for four epochs of two cycles in a session of that name.

    With `draws` each epoch draws from the global generators, as code of users may, so that these have a part in it.
    """
    params = str(TOY_DIRECTORY / f"acting_{toy}.py")
    sets = ["number_epochs=4", "test_win_size=1", *assignments]
    sets += ["on_epoch=toy_parts:draw"] if draws else []
    return ["--params", params, "--session-path", str(directory), "--session-name", name, "--set", *sets]


def straight_run(toy: str, directory: Path, *, draws: bool = True) -> Path:
    """Return the session of a run that nothing interrupts, in one process."""
    argv = arguments(toy, directory, f"straight_{toy}", "num_workers=0", draws=draws)
    ended = Program(*argv, cwd=directory).end()
    assert ended.code == 0, ended.err
    return ended.session


def same_run(one: Path, other: Path) -> list[str]:
    """Return in what two sessions differ that ought to be the same run, however many workers each has had.

    Episodes go to the file of the worker that played them: they are compared by mode, sorted.
    """
    found = [name for name in differences(one, other) if name != "monitor"]
    first, second = (_episodes(session) for session in (one, other))
    return found + [f"monitor/{mode}" for mode in first if first[mode] != second[mode]]


def _episodes(session: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"train": [], "test": []}
    for path, lines in monitor_rows(session).items():
        found[path.split("/")[1]] += lines[1:]
    return {mode: sorted(lines) for mode, lines in found.items()}


Run = Callable[..., Ended]
