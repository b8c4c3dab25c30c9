"""B5: the same seed gives the same result, whatever the workers' timing."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Ended
from toys import arguments, same_run, straight_run, toys

Run = Callable[..., Ended]


@pytest.mark.parametrize("toy", toys())
def test_B5_random_pauses_in_the_steps_of_environments_change_nothing(digideep: Run, tmp_path: Path, toy: str) -> None:
    straight = straight_run(toy, tmp_path)
    # From clock and process, not from a seed: another order in which workers are ready each time.
    own = importlib.import_module(f"digideep.testing.{toy}").cpanel["env_kwargs"]
    kwargs = f"env_kwargs={json.dumps({**own, 'sleep_s': 0.002})}"

    paused = [digideep(*arguments(toy, tmp_path, f"paused{n}", kwargs, f"num_workers={n}")).session for n in (0, 2, 4)]

    for session in paused[1:]:
        assert same_run(paused[0], session) == []
    # The pause itself is part of what an environment was made with, which is in its state.
    assert set(same_run(straight, paused[0])) == {"state", "state/explorer.train"}
