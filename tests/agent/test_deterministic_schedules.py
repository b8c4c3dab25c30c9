"""When policies and targets of TD3 and its kin move, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_agents import fill, made, parameters, updated

from digideep.errors import ConfigError
from digideep.utility.statistics import Normalizer


def moved(before: dict[str, Any], after: dict[str, Any], part: str) -> bool:
    names = [name for name in before if name.startswith(part)]
    assert names
    return any(not np.array_equal(before[name], after[name]) for name in names)


def test_td3_moves_policy_and_targets_at_every_second_step_only_and_goes_on_so_after_a_resume() -> None:
    agent = made("td3", policy_delay=2)
    fill(agent)
    seen = []
    for step in range(5):
        if step == 3:  # an odd number of steps: what was saved says that the policy is due
            other = made("td3", policy_delay=2)
            other.load_state_dict(agent.state_dict())
            other.memory.load_state_dict(agent.memory.state_dict())
            agent = other
        before = parameters(agent)
        updated(agent, 1)
        after = parameters(agent)
        seen.append([moved(before, after, part) for part in ("critic/", "policy/", "target/")])

    assert seen == [[True, s, s] for s in (False, True, False, True, False)]


@pytest.mark.parametrize("method", ["ddpg", "sac_value"])
def test_other_methods_move_every_part_at_every_step(method: str) -> None:
    agent = made(method)
    fill(agent)
    parts = [f"{part}/" for part in agent.parts] + [f"target/{part}/" for part in agent.targets]

    before = parameters(agent)
    updated(agent, 1)

    assert all(moved(before, parameters(agent), part) for part in parts)


@pytest.mark.parametrize("method", ["ddpg", "td3", "sac", "sac_value"])
def test_targets_move_by_their_share_of_the_distance(method: str) -> None:
    agent = made(method, tau=0.25)
    fill(agent)
    updated(agent, 3)
    before = parameters(agent)

    agent.polyak(0.25)

    for name, array in parameters(agent).items():
        if name.startswith("target/"):
            source = before[name.removeprefix("target/")]
            np.testing.assert_allclose(array, before[name] + 0.25 * (source - before[name]), rtol=1e-5, atol=1e-7)
            assert np.abs(source - before[name]).max() > 0.0


@pytest.mark.parametrize("method", ["ddpg", "td3", "sac_value"])
def test_the_critics_rate_follows_the_schedule_of_the_policys(method: str) -> None:
    agent = made(method, lr=1e-3, critic_lr=1e-2, lr_final=0.0, lr_horizon=100)
    fill(agent)

    updated(agent, 1, frame=50)

    assert agent.lr("policy") == pytest.approx(5e-4)
    assert agent.lr("critic") == pytest.approx(5e-3)
    assert agent.told["update/agent/lr"] == pytest.approx(5e-4)


def test_the_last_layers_begin_within_their_bound() -> None:
    for method, bound in (("ddpg", 3e-3), ("td3", 8**-0.5)):
        arrays = parameters(made(method))
        for part in ("policy", "critic"):
            heads = [array for name, array in arrays.items() if name.startswith(f"{part}/towers.head")]
            assert 0.5 * bound < max(np.abs(array).max() for array in heads) <= bound


def test_a_decay_pulls_the_critics_towards_zero_and_nothing_else() -> None:
    plain, decayed = (made("ddpg", critic_weight_decay=decay, max_grad_norm=None) for decay in (0.0, 0.5))
    for agent in (plain, decayed):
        fill(agent)
    batch = plain.make_batch(plain.replay.draw(16, Normalizer()))
    decayed.replay.draw(16, Normalizer())

    for part in ("critic", "policy"):
        without, with_decay = plain.gradients(batch, part), decayed.gradients(batch, part)

        values = plain._parts[part].values
        expected = without.flat + (0.5 * values if part == "critic" else 0.0)
        np.testing.assert_allclose(with_decay.flat.numpy(), expected.numpy(), rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(without.losses, with_decay.losses)


def test_a_schedule_of_the_noise_without_a_horizon_is_refused() -> None:
    with pytest.raises(ConfigError, match="TD3Config/noise_horizon: expected rows above 0, since noise_scale_final is"):
        made("td3", noise_scale_final=0.1)


def test_a_schedule_of_the_priorities_without_a_horizon_is_refused() -> None:
    with pytest.raises(ConfigError, match="/priority_horizon: expected frames above 0, since priority_alpha_final is"):
        made("td3", priority_alpha_final=0.1)
