"""Environments that draw from the global generators, of which every worker has its own."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes_vec import Counter, explorer

from digideep.environment.vec.global_draws import GlobalDraws
from digideep.utility.seeding import seed_everything

REASON = (
    "resume starts new episodes: Drawing-v0 draws from the global generators of python, numpy or torch, of which each "
    "worker has its own; draw from self.np_random, or set num_workers to 0"
)


def run(*, seed: int = 1, num_workers: int = 2, quiet: bool = False) -> tuple[Any, list[bool], str]:
    """Return what a chunk showed, whether each environment's state was saved, and what is said of it."""
    seed_everything(seed)
    made = explorer("Drawing-v0", seed=seed, num_workers=num_workers, num_envs=2, kwargs={"quiet": quiet})
    made.set_actors({"agent": Counter()})
    made.reset()
    seen = made.update().arrays["/observations/observation"].copy()
    saved = [entry["environment"] is not None for entry in made.state_dict()["environments"]]
    said = made.exactness
    made.close()
    return seen, saved, said


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_same_seed_gives_the_same_draws_and_another_one_others(num_workers: int) -> None:
    first, again, other = (run(seed=seed, num_workers=num_workers)[0] for seed in (1, 1, 2))

    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first)) > 2
    assert not (first == other).any()


def test_draws_in_a_worker_are_a_reason_for_new_episodes() -> None:
    assert run()[1:] == ([False, False], REASON)


def test_draws_in_this_process_are_none_since_its_generators_are_saved() -> None:
    assert run(num_workers=0)[1:] == ([True, True], "exact")


def test_who_draws_nothing_has_a_state_in_a_worker_too() -> None:
    assert run(quiet=True)[1:] == ([True, True], "exact")


@pytest.mark.parametrize("draw", [random.random, np.random.rand, np.random.standard_normal])
def test_a_single_draw_is_seen(draw: Any) -> None:
    draws = GlobalDraws(0)
    draws.seed_once(5)
    before = draws.obstacle("X-v0")
    draw()

    assert before == ""
    assert draws.obstacle("X-v0").startswith("X-v0 draws from the global generators")


def test_no_two_workers_begin_alike_and_only_the_first_seed_counts() -> None:
    drawn = []
    for worker, seed in ((0, 5), (0, 5), (1, 5), (0, 6)):
        draws = GlobalDraws(worker)
        draws.seed_once(seed)
        draws.seed_once(9)
        drawn.append((random.random(), np.random.rand()))

    assert drawn[0] == drawn[1]
    assert len({value for pair in drawn[1:] for value in pair}) == 6


def test_a_training_says_so_once_at_the_save_that_finds_it(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import gymnasium, numpy\n"
        "class Noisy(gymnasium.Wrapper):\n"
        "    def step(self, action):\n"
        "        observation, *rest = self.env.step(action)\n"
        "        return observation + numpy.float32(numpy.random.randn()), *rest\n"
        "def make(**kwargs):\n"
        "    return Noisy(gymnasium.make('CartPole-v1'))\n"
        "gymnasium.register('Noisy-v0', entry_point=make)\n"
    )
    command = [sys.executable, "-m", "digideep.main", "--params", "digideep.params.cartpole_ppo"]
    knobs = "from_module=noisy model_name=Noisy-v0 num_envs=2 num_workers=2 epoch_size=1 number_epochs=2 total_frames=0"
    done = subprocess.run(
        [*command, "--session-path", str(tmp_path), "--session-name", "s", "--set", *knobs.split(), "save_interval=1"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stderr.count(REASON.replace("Drawing-v0", "Noisy-v0")) == 1
