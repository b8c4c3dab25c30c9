"""F4 for methods with a replay memory: a loss that is not finite stops before the step, and its batch is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import Ended, checkpoints
from toys import arguments

from digideep.agent.ddpg.agent import DDPGAgent
from digideep.agent.sac.agent import SACAgent
from digideep.agent.sac_value.agent import SACValueAgent
from digideep.post import load_crash

Run = Callable[..., Ended]

AGENTS: dict[str, type[Any]] = {
    "toy_ddpg": DDPGAgent,
    "toy_td3": DDPGAgent,
    "toy_sac": SACAgent,
    "toy_sac_value": SACValueAgent,
}


@pytest.mark.parametrize("toy", AGENTS)
def test_F4_a_bad_target_stops_replay_methods_and_their_batch_gives_the_same_losses_again(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy: str
) -> None:
    make_batch = AGENTS[toy].make_batch

    def bad(self: Any, *args: Any) -> Any:
        batch = make_batch(self, *args)
        if self.updates == 2:
            batch.targets[1] = np.inf
        return batch

    monkeypatch.setattr(AGENTS[toy], "make_batch", bad)

    ended = command(*arguments(toy, tmp_path, "bad", "num_workers=0", "test_activate=false"), expect=8)

    crash = load_crash(ended.session)
    assert "expected a finite loss, found value_loss inf" in ended.err.splitlines()[-1]
    assert "in the part 'critic' of update 2" in ended.err.splitlines()[-1]
    assert crash.kept.meta["update"] == 2 and crash.kept.meta["part"] == "critic"
    assert set(crash.figures) == {"value_loss", "value"}
    np.testing.assert_array_equal(list(crash.losses().values()), list(crash.figures.values()))
    crash.batch.targets[1] = 0.0
    assert all(np.isfinite(value) for value in crash.losses().values())
    assert checkpoints(ended.session)[0] == 0
