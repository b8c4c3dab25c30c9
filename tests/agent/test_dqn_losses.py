"""DQN's formulas against slow versions shaped like them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dqn_agents import made_transitions, make_dqn

from digideep.agent.dqn.losses import QBatch, huber_loss, q_targets

ROWS, ACTIONS = 6, 3
DISCOUNTS = np.array([0.99, 0.99, 0.0, 0.99, 0.99**3, 0.0])


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def test_a_target_is_the_reward_and_the_discounted_value_of_the_best_action() -> None:
    rewards, following = numbers(1, ROWS), numbers(2, ROWS, ACTIONS)

    found = q_targets(rewards, DISCOUNTS, target_values=following)

    for i in range(ROWS):
        assert found[i] == pytest.approx(rewards[i] + DISCOUNTS[i] * max(following[i]), rel=1e-12)
    assert found[2] == rewards[2] and found[5] == rewards[5]


def test_double_q_learning_values_the_choice_of_one_network_by_the_other() -> None:
    rewards, target, values = numbers(1, ROWS), numbers(2, ROWS, ACTIONS), numbers(3, ROWS, ACTIONS)

    found = q_targets(rewards, DISCOUNTS, target_values=target, values=values)

    others = 0
    for i in range(ROWS):
        best = max(range(ACTIONS), key=lambda action: values[i][action])
        others += target[i][best] < max(target[i])
        assert found[i] == pytest.approx(rewards[i] + DISCOUNTS[i] * target[i][best], rel=1e-12)
    assert others > 0  # else the networks agree, and nothing was shown


def test_the_loss_is_quadratic_up_to_an_error_of_one_and_linear_beyond() -> None:
    values, importance = 3.0 * numbers(4, ROWS, ACTIONS), np.random.default_rng(5).random(ROWS)
    actions, targets = np.array([0, 2, 1, 1, 0, 2]), numbers(6, ROWS)
    batch = QBatch({}, *map(torch.from_numpy, (actions, targets, importance, np.zeros(0))))

    found = huber_loss(torch.from_numpy(values), batch)

    total, kinds = 0.0, set()
    for i in range(ROWS):
        error = abs(values[i, actions[i]] - targets[i])
        kinds.add(error < 1.0)
        total += importance[i] * (0.5 * error**2 if error < 1.0 else error - 0.5) / ROWS
    assert kinds == {True, False}
    assert float(found) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("double", [False, True])
def test_an_agents_targets_come_from_its_target_network_and_if_double_by_its_own_choice(double: bool) -> None:
    agent = make_dqn({"hidden_sizes": [], "double": double})
    with torch.no_grad():
        for parameter, number in zip(agent.targets["policy"].parameters(), (7, 8), strict=True):
            parameter.copy_(torch.from_numpy(numbers(number, *parameter.shape)))
    drawn = made_transitions(np.random.default_rng(1))

    batch = agent.make_batch(drawn)

    for i in range(len(batch.targets)):
        row = [*drawn.following["seen"][i], *(float(drawn.following["kind"][i] == kind) for kind in range(4))]
        q = {}
        for name, network in (("own", agent.network), ("target", agent.targets["policy"])):
            weight, bias = (p.detach().numpy() for p in network.parameters())
            q[name] = [float(weight[0, a] @ row + bias[0, 0, a]) for a in range(ACTIONS)]
        judge = q["own"] if double else q["target"]
        best = max(range(ACTIONS), key=lambda action: judge[action])
        assert batch.targets[i] == pytest.approx(drawn.rewards[i] + drawn.discounts[i] * q["target"][best], abs=1e-5)
    np.testing.assert_array_equal(batch.actions, drawn.actions[""])
    np.testing.assert_array_equal(batch.importance, drawn.importance)
    assert batch.noise.shape == (0,)
