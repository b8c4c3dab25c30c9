"""What the parts of an iteration of PPO take at least: each alone, by hand, without anything around it.

    python -m benchmarks.limits B1

Prints one line of JSON: for the benchmark, microseconds a frame of stepping the environments, of acting, and of
learning. They are not reachable, since somebody has to call the parts, but they say what is left to gain. Stepping is
that of the fastest vector environment there is for the id whose frames are the same; acting and gradients of fully
connected networks are matrix products in numpy into kept arrays, those of convolutions torch's in channels_last.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.settings import PPO_SETTINGS, PPOSetting, picture
from benchmarks.timing import best_us

Array = np.ndarray[Any, Any]


def main(setting_id: str, threads: int) -> None:
    """Measure and print."""
    import torch

    torch.set_num_threads(threads)
    setting = PPO_SETTINGS[setting_id]
    steps_of_learning = setting.gradient_steps
    step, act = stepping(setting, threads=threads), acting(setting)
    learn = learning(setting)
    found = {
        "environments": best_us(step) / setting.num_envs,
        "acting": best_us(act) / setting.num_envs,
        "learning": best_us(learn) * steps_of_learning / setting.rows,
    }
    print(json.dumps({setting_id: found}))


def stepping(setting: PPOSetting, *, threads: int) -> Callable[[], Any]:
    """Return a call that steps all environments of a setting once, with actions that were drawn before."""
    import gymnasium

    if setting.network == "cnn":
        from ale_py.vector_env import AtariVectorEnv

        game = setting.env.removeprefix("ALE/").removesuffix("-v5").lower()
        vector: Any = AtariVectorEnv(
            game=game,
            num_envs=setting.num_envs,
            num_threads=threads,
            noop_max=picture.noop_max,
            frameskip=picture.frame_skip,
            stack_num=picture.stack,
            repeat_action_probability=picture.stickiness,
        )
    else:
        mode = "vector_entry_point" if gymnasium.spec(setting.env).vector_entry_point else "sync"
        vector = gymnasium.make_vec(setting.env, num_envs=setting.num_envs, vectorization_mode=mode)
    vector.reset(seed=1)
    vector.action_space.seed(1)
    drawn = itertools.cycle([vector.action_space.sample() for _ in range(64)])
    return lambda: vector.step(next(drawn))


def acting(setting: PPOSetting) -> Callable[[], Any]:
    """Return a call of the networks for one row an environment, and of drawing the actions."""
    if setting.network == "cnn":
        return _acting_by_torch(setting)
    inputs, outputs = _sizes(setting)
    rng = np.random.default_rng(1)
    layers = [_layers(setting, inputs, size, rng) for size in (outputs, 1)]
    rows = rng.standard_normal((setting.num_envs, inputs)).astype(np.float32)

    def act() -> Array:
        logits, _ = (_forward(rows, part)[-1] for part in layers)
        actions: Array = (logits + rng.gumbel(size=logits.shape)).argmax(1)
        return actions

    return act


def learning(setting: PPOSetting) -> Callable[[], Any]:
    """Return a call of one gradient step: the networks forwards and backwards, and Adam over all weights."""
    if setting.network == "cnn":
        return _learning_by_torch(setting)
    inputs, outputs = _sizes(setting)
    rng = np.random.default_rng(1)
    parts = [_layers(setting, inputs, size, rng) for size in (outputs, 1)]
    rows = rng.standard_normal((setting.minibatch_size, inputs)).astype(np.float32)
    by_outputs = [rng.standard_normal((setting.minibatch_size, size)).astype(np.float32) for size in (outputs, 1)]
    count = sum(weight.size + weight.shape[1] for layers in parts for weight in layers)
    weights, mean, square, gradient, kept = (np.full(count, 1e-3, np.float32) for _ in range(5))

    def learn() -> None:
        for layers, by in zip(parts, by_outputs, strict=True):
            _backward(_forward(rows, layers), layers, by)
        np.multiply(mean, 0.9, out=mean)
        np.multiply(gradient, 0.1, out=kept)
        np.add(mean, kept, out=mean)
        np.multiply(square, 0.999, out=square)
        np.multiply(gradient, gradient, out=kept)
        np.multiply(kept, 0.001, out=kept)
        np.add(square, kept, out=square)
        np.sqrt(square, out=kept)
        np.divide(mean, kept, out=kept)
        np.multiply(kept, 1e-8, out=kept)
        np.subtract(weights, kept, out=weights)

    return learn


def _sizes(setting: PPOSetting) -> tuple[int, int]:
    """Return how many numbers an observation has, and how many the policy gives."""
    import gymnasium

    env = gymnasium.make(setting.env)
    inputs, actions = int(np.prod(env.observation_space.shape or (1,))), env.action_space
    env.close()
    outputs = int(actions.n) if isinstance(actions, gymnasium.spaces.Discrete) else int(np.prod(actions.shape or (1,)))
    return inputs, outputs


def _layers(setting: PPOSetting, inputs: int, outputs: int, rng: np.random.Generator) -> list[Array]:
    sizes = (inputs, *setting.hidden_sizes, outputs)
    return [0.1 * rng.standard_normal(pair).astype(np.float32) for pair in itertools.pairwise(sizes)]


def _forward(rows: Array, layers: list[Array]) -> list[Array]:
    """Return what each layer gave, the input first."""
    given = [rows]
    for weight in layers[:-1]:
        hidden = given[-1] @ weight
        given.append(np.tanh(hidden, out=hidden))
    given.append(given[-1] @ layers[-1])
    return given


def _backward(given: list[Array], layers: list[Array], by: Array) -> None:
    for index in range(len(layers) - 1, -1, -1):
        _ = given[index].T @ by, by.sum(0)
        if index:
            by = by @ layers[index].T
            by *= 1 - given[index] ** 2


def _nature(setting: PPOSetting) -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(picture.stack, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(), nn.Flatten(), nn.Linear(3136, setting.hidden_sizes[-1]), nn.ReLU(),
        nn.Linear(setting.hidden_sizes[-1], 7),
    )  # fmt: skip


def _pictures(count: int) -> Any:
    import torch

    size = picture.screen_size
    pictures = torch.rand(count, picture.stack, size, size)
    return pictures.to(memory_format=torch.channels_last)


def _acting_by_torch(setting: PPOSetting) -> Callable[[], Any]:
    import torch

    network, pictures = _nature(setting).to(memory_format=torch.channels_last), _pictures(setting.num_envs)

    def act() -> Any:
        with torch.no_grad():
            return network(pictures).argmax(1)

    return act


def _learning_by_torch(setting: PPOSetting) -> Callable[[], Any]:
    import torch

    network, pictures = _nature(setting).to(memory_format=torch.channels_last), _pictures(setting.minibatch_size)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-8, fused=True)

    def learn() -> None:
        optimiser.zero_grad(set_to_none=True)
        network(pictures).sum().backward()
        optimiser.step()

    return learn


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
