from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from digideep.environment.config import EnvConfig
from digideep.environment.make import make_env
from digideep.params.common import knob_paths
from digideep.params.overrides import validate
from digideep.testing import (
    BanditEnv,
    ChainEnv,
    CountingActor,
    CountingEnv,
    FaultyEnv,
    IdentityEnv,
    RecallEnv,
    ToyEnv,
    check_state_roundtrip,
    check_stateful,
    toy_a2c,
    toy_dqn,
    toy_ppo,
    toy_q,
)
from digideep.utility.tree import get


def drive(envs: list[CountingEnv], actor: CountingActor, steps: int) -> list[list[Any]]:
    """Step as a vector environment does, and return each environment's steps; None where it was reset."""
    shown = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    ended = [False] * len(envs)
    results: list[list[Any]] = [[] for _ in envs]
    for _ in range(steps):
        actions = actor.act({"observation": shown}).actions[""]
        for i, env in enumerate(envs):
            if ended[i]:
                shown[i], ended[i] = env.reset()[0], False
                results[i].append(None)
                continue
            shown[i], reward, terminated, truncated, _ = env.step(int(actions[i]))
            ended[i] = terminated or truncated
            results[i].append((reward, terminated, truncated))
    return results


def test_counting_environments_and_their_actor_agree_over_resets() -> None:
    envs = [CountingEnv((1, 3), ends="alternate"), CountingEnv((2,), ends="truncated")]

    first, second = drive(envs, CountingActor(), 6)

    assert first == [(1, True, False), None, (3, False, False), (4, False, False), (5, False, True), None]
    assert second == [(1, False, False), (2, False, True), None, (4, False, False), (5, False, True), None]


def test_a_counting_environment_refuses_the_action_of_another_step_or_rank() -> None:
    env = CountingEnv(rank=3)
    env.reset()

    with pytest.raises(AssertionError, match="rank 3: expected action 3 for 0, found 4"):
        env.step(4)


@pytest.mark.parametrize("shown", [[[2, 0], [2, 1]], [[1, 0], [1, 1]], [[2, 1], [1, 0]], [[1, 0], [0, 1]]])
def test_a_counting_actor_notices_skipped_repeated_and_swapped_rows(shown: list[list[int]]) -> None:
    actor = CountingActor()
    actor.act({"observation": np.array([[0, 0], [0, 1]])})
    if shown == [[1, 0], [1, 1]]:
        actor.act({"observation": np.array(shown)})

    with pytest.raises(AssertionError, match=r"environment [01] shows \(count, rank\)"):
        actor.act({"observation": np.array(shown)})


def test_a_counting_environment_begins_again_where_a_seed_is_given() -> None:
    env = CountingEnv((1,))
    env.reset(seed=5)
    env.step(5)

    assert env.reset()[0].tolist() == [2.0, 5.0]
    assert env.reset(seed=6)[0].tolist() == [0.0, 6.0]


@pytest.mark.parametrize(
    "make",
    [
        ToyEnv,
        lambda: ToyEnv(continuous=True),
        lambda: CountingEnv((1, 3, 2), ends="alternate", check_actions=False),
        FaultyEnv,
        lambda: IdentityEnv("multi_binary"),
        BanditEnv,
        ChainEnv,
        RecallEnv,
    ],
)
def test_the_environments_save_their_state(make: Any) -> None:
    check_state_roundtrip(make)


def test_the_roundtrip_check_fails_where_there_is_no_state() -> None:
    class Silent(gymnasium.Wrapper[Any, Any, Any, Any]):
        handle = None

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.handle = object()

    with pytest.raises(AssertionError, match=r"the wrapper Silent.handle: a builtins.object is not plain data"):
        check_state_roundtrip(lambda: Silent(ToyEnv()))


class Counter:
    """Something with state, and ways to get it wrong."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.values = fault, [0]

    def run(self) -> list[int]:
        self.values.append(self.values[-1] + 1)
        return list(self.values)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values if self.fault == "alias on save" else list(self.values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.fault == "forgets":
            return
        self.values = state["values"] if self.fault == "alias on load" else list(state["values"])


def test_the_contract_of_state_holds_for_one_that_keeps_it() -> None:
    check_stateful(Counter, Counter.run)


@pytest.mark.parametrize("fault", ["forgets", "alias on save", "alias on load"])
def test_the_contract_of_state_notices_who_breaks_it(fault: str) -> None:
    with pytest.raises(AssertionError, match="differs at"):
        check_stateful(lambda: Counter(fault), Counter.run)


@pytest.mark.parametrize("kind", ["discrete", "multi_discrete", "multi_binary", "box"])
def test_repeating_what_is_shown_is_the_best_one_can_do(kind: Any) -> None:
    env = IdentityEnv(kind, n_steps=10)
    shown, _ = env.reset(seed=0)
    total, ended = 0.0, False

    while not ended:
        shown, reward, _, ended, _ = env.step(shown)
        total += reward

    assert total == 10.0


def test_the_chain_pays_ten_for_going_on_and_is_cut_after_twenty_steps() -> None:
    env = ChainEnv()
    env.reset(seed=0)
    ahead = [env.step(1)[1:4] for _ in range(4)]
    env.reset()
    back = [env.step(0)[1:4] for _ in range(20)]

    assert ahead == [(0.0, False, False)] * 3 + [(10.0, True, False)]
    assert back == [(0.1, False, False)] * 19 + [(0.1, False, True)]


def test_the_second_arm_pays_four_times_as_often() -> None:
    env = BanditEnv()
    env.reset(seed=0)

    means = [np.mean([env.step(arm)[1] for _ in range(2000)]) for arm in (0, 1)]

    assert means == pytest.approx([0.2, 0.8], abs=0.03)


def test_a_bit_is_shown_once_asked_for_at_the_end_and_only_that_answer_pays() -> None:
    env, seen = RecallEnv(n_steps=3), []

    for seed in range(20):
        first, _ = env.reset(seed=seed)
        bit = int(first[0] > 0)
        steps = [env.step(answer)[:4] for answer in (1 - bit, bit, bit)]
        seen.append(bit)

        assert [step[0].tolist() for step in steps] == [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
        assert [step[1:] for step in steps] == [(0.0, False, False)] * 2 + [(1.0, True, False)]
        env.reset(seed=seed)
        assert [env.step(answer)[1] for answer in (bit, bit, 1 - bit)] == [0.0, 0.0, 0.0]

    assert set(seen) == {0, 1}


def test_one_state_is_cut_by_its_limit_only() -> None:
    env = make_env(EnvConfig("digideep.testing:OneState-v0"))
    env.reset(seed=0)

    assert [env.step(0)[1:4] for _ in range(5)] == [(1.0, False, False)] * 4 + [(1.0, False, True)]


@pytest.mark.parametrize("fault", ["reset", "step", "close"])
def test_a_fault_happens_where_it_was_asked_for_and_only_once_with_a_file(fault: Any, tmp_path: Path) -> None:
    env = FaultyEnv(fault, at=2 if fault == "step" else 1, once=str(tmp_path / "done"), continuous=True)

    def run() -> None:
        env.reset(seed=0)
        env.step(np.zeros(2))
        env.step(np.zeros(2))
        env.close()

    with pytest.raises(RuntimeError, match="this environment fails when it is"):
        run()
    run()


def test_a_fault_can_wait_for_an_episode() -> None:
    env = FaultyEnv("step", at=1, episode=2, continuous=True)
    for _ in range(2):
        env.reset()
        env.step(np.zeros(2))
    env.reset()

    with pytest.raises(RuntimeError):
        env.step(np.zeros(2))


def test_the_environments_are_registered_under_their_ids() -> None:
    for name in ("Toy", "Counting", "Faulty", "Identity", "Bandit", "Chain", "OneState", "Recall"):
        env = make_env(EnvConfig(f"digideep.testing:{name}-v0"))

        observation, _ = env.reset(seed=0)

        assert env.observation_space.contains(observation)


def test_the_toy_params_turn_everything_on_that_has_a_state() -> None:
    params = toy_ppo.gen_params(toy_ppo.cpanel)

    statistics, agent = params["explorer"]["train"]["statistics"], params["agents"]["agent"]
    assert (statistics["observations"], statistics["rewards"]) == (True, True)
    assert params["explorer"]["train"]["num_workers"] == 2
    assert params["env"]["action_transform"] == "rescale"
    assert agent["lr_horizon"] == agent["clip_param_horizon"] == 6 * 2 * 4 * 32
    assert (agent["lr_final"], agent["clip_param_final"], agent["target_kl"]) == (0.0, 0.05, 0.05)


def test_the_toy_a2c_params_turn_everything_on_that_has_a_state() -> None:
    tree = toy_a2c.gen_params(toy_a2c.cpanel)

    statistics, agent = tree["explorer"]["train"]["statistics"], tree["agents"]["agent"]
    assert validate(tree) == tree
    assert (statistics["observations"], statistics["rewards"]) == (True, True)
    assert tree["explorer"]["train"]["num_workers"] == 2
    assert (agent["optimizer"], agent["lr_final"], agent["lr_horizon"]) == ("rmsprop", 0.0, 6 * 2 * 4 * 32)


def test_the_toy_q_params_turn_everything_on_and_fill_the_memory_more_than_once() -> None:
    params = toy_q.gen_params(toy_q.cpanel)

    statistics, agent, memory = (
        params["explorer"]["train"]["statistics"],
        params["agents"]["agent"],
        params["memory"]["train"],
    )
    rows = 6 * 2 * 4 * 32
    assert (statistics["observations"], statistics["rewards"]) == (True, True)
    assert params["explorer"]["train"]["num_workers"] == 2
    assert 0 < agent["warm_up"] < memory["capacity"] < rows / 2
    assert agent["warm_up"] + agent["epsilon_horizon"] < rows and agent["noise_scale"] > 0
    steps = (12 - 1) * agent["n_updates"]  # the first chunk is the warm-up
    assert agent["lr_final"] < agent["lr"] and agent["target_interval"] < agent["lr_horizon"] < steps


def test_the_toy_dqn_params_turn_everything_on_and_fill_the_memory_more_than_once() -> None:
    tree = toy_dqn.gen_params(toy_dqn.cpanel)

    statistics, agent, memory = (
        tree["explorer"]["train"]["statistics"],
        tree["agents"]["agent"],
        tree["memory"]["train"],
    )
    rows = 6 * 2 * 4 * 32
    assert validate(tree) == tree
    assert (statistics["observations"], statistics["rewards"]) == (True, True)
    assert tree["explorer"]["train"]["num_workers"] == 2
    assert memory["type"] == "digideep.memory.config:PrioritizedBufferConfig"
    assert 0 < agent["warm_up"] < memory["capacity"] < rows / 2
    assert (agent["double"], agent["model"]["dueling"], agent["model"]["noisy"]) == (True, True, True)
    assert agent["lr_horizon"] == agent["priority_horizon"] == agent["epsilon_horizon"] == rows
    assert agent["n_step"] > 1 and agent["tau"] < 1.0 < agent["target_interval"]


def test_every_knob_of_the_toy_q_params_ends_up_where_its_path_says() -> None:
    tree = toy_q.gen_params(toy_q.cpanel)
    paths = knob_paths(toy_q.cpanel, tree)

    assert validate(tree) == tree
    assert set(paths) == set(toy_q.cpanel)
    assert {key: get(tree, path, where="x") for key, path in paths.items()} == toy_q.cpanel
    assert [paths[key] for key in ("capacity", "on_disk", "on_damage")] == [
        "/memory/train/capacity",
        "/memory/train/on_disk",
        "/memory/train/on_damage",
    ]
