"""E1: workers that die together, beyond the budget and not inside a step, take nothing along that had been learnt."""

from __future__ import annotations

import functools
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import Ended, manifest
from signalling import wrap

VEC = "digideep.environment.vec.process:ProcessVecEnv"


def kill_all_in(place: str, *, calls: tuple[int, ...]) -> None:
    """Kill every worker at the beginning of some calls of `module:Class.method`."""
    counter = itertools.count(1)

    def make(original: Any) -> Callable[..., Any]:
        @functools.wraps(original)
        def wrapper(self: Any, *args: Any, **options: Any) -> Any:
            if next(counter) in calls:
                for child in self._workers.children:
                    os.kill(child.pid, signal.SIGKILL)
            return original(self, *args, **options)

        return wrapper

    wrap(place, make)


# Two workers: the first call costs two of the three replacements, the second one the third, and there is no fourth.
@pytest.mark.parametrize(
    ("method", "calls", "saved"),
    [("collect", (3, 4), "checkpoint-3"), ("set_progress", (3, 4), "checkpoint-6"), ("states", (3, 4), "checkpoint-4")],
)
def test_E1_two_workers_lost_between_steps_leave_what_was_learnt(
    digideep: Callable[..., Ended],
    resume: Callable[..., Ended],
    tmp_path: Path,
    method: str,
    calls: tuple[int, ...],
    saved: str,
) -> None:
    every = 1 if method == "states" else 0
    sets = ["num_workers=2", "number_epochs=4", "n_steps=8", "test_activate=false", f"save_interval={every}"]
    argv = ["--params", "digideep.testing.toy_sac", "--session-path", str(tmp_path), "--set", *sets]

    ended = digideep(*argv, before=functools.partial(kill_all_in, f"{VEC}.{method}", calls=calls), expect=7)

    assert "died of signal 9" in ended.err.splitlines()[-1]
    assert "; the first of " in ended.err.splitlines()[-1]
    assert ended.saved[-1] == saved
    assert manifest(ended.session)["exactness"] == "none (environment)"
    assert resume(ended.session).saved[-1] == "checkpoint-8"
