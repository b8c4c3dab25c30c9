"""What the parts of SAC take at least: matrix products and element-wise passes alone, in numpy and in torch.

    python -m benchmarks.limits_replay B5 [THREADS]

Prints one line of JSON: for the benchmark and each library, microseconds a frame of stepping the environment, acting,
drawing a batch, the targets, the gradients of critics and policy, and of Adam with the targets' step. Losses, biases
and whatever calls the parts are left out.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.settings import REPLAY_SETTINGS, ReplaySetting
from benchmarks.timing import best_us

__all__ = ["Tower", "libraries", "parts_of"]

Array = np.ndarray[Any, Any]


class Library(NamedTuple):
    """What a library needs to do: make an array, multiply into one, and rectify there and back in place."""

    array: Callable[[Array], Any]
    product: Callable[[Any, Any, Any], Any]
    rectify: Callable[[Any], Any]
    gate: Callable[[Any, Any], Any]
    move: Callable[[int, int], Callable[[], Any]]


class Tower:
    """The weights of a fully connected network, and room for whatever one batch gives."""

    def __init__(self, library: Library, sizes: Sequence[int], *, rows: int, rng: np.random.Generator) -> None:
        def drawn(*shape: int) -> Any:
            return library.array(0.05 * rng.standard_normal(shape).astype(np.float32))

        self._library = library
        self._weights = [drawn(*pair) for pair in itertools.pairwise(sizes)]
        self._gradients = [drawn(*pair) for pair in itertools.pairwise(sizes)]
        self._given = [drawn(rows, size) for size in sizes]
        self._by = [drawn(rows, size) for size in sizes]

    def forward(self) -> None:
        """Compute the outputs."""
        last = len(self._weights) - 1
        for index, weight in enumerate(self._weights):
            self._library.product(self._given[index], weight, self._given[index + 1])
            if index < last:
                self._library.rectify(self._given[index + 1])

    def backward(self, *, of_inputs: bool = False) -> None:
        """Compute the derivatives by the weights or, with `of_inputs`, those by the inputs and no others."""
        for index in range(len(self._weights) - 1, -1, -1):
            if not of_inputs:
                self._library.product(self._given[index].T, self._by[index + 1], self._gradients[index])
            if index or of_inputs:
                self._library.product(self._by[index + 1], self._weights[index].T, self._by[index])
            if index:
                self._library.gate(self._by[index], self._given[index])


def libraries() -> dict[str, Library]:
    """Return numpy and torch by name."""
    import torch

    return {
        "numpy": Library(
            array=lambda array: array,
            product=lambda a, b, out: np.matmul(a, b, out=out),
            rectify=lambda array: np.maximum(array, 0.0, out=array),
            gate=lambda by, given: np.multiply(by, given > 0.0, out=by),
            move=_move_in_numpy,
        ),
        "torch": Library(
            array=torch.from_numpy,
            product=lambda a, b, out: torch.mm(a, b, out=out),
            rectify=lambda array: array.clamp_(min=0.0),
            gate=lambda by, given: by.mul_(given > 0.0),
            move=_move_in_torch,
        ),
    }


def _move_in_numpy(count: int, followed: int) -> Callable[[], Any]:
    weights, mean, square, gradient, kept = (np.full(count, 1e-3, np.float32) for _ in range(5))
    target, apart = (np.full(followed, 1e-3, np.float32) for _ in range(2))

    def move() -> None:
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
        np.subtract(weights[:followed], target, out=apart)
        np.multiply(apart, 0.005, out=apart)
        np.add(target, apart, out=target)

    return move


def _move_in_torch(count: int, followed: int) -> Callable[[], Any]:
    import torch

    weights = torch.full((count,), 1e-3, requires_grad=True)
    weights.grad = torch.full((count,), 1e-3)
    target = torch.full((followed,), 1e-3)
    optimiser = torch.optim.Adam([weights], lr=1e-8, fused=True)

    def move() -> None:
        optimiser.step()
        with torch.no_grad():
            target.lerp_(weights[:followed], 0.005)

    return move


def parts_of(setting: ReplaySetting, library: Library) -> dict[str, Callable[[], Any]]:
    """Return one call for each part of a gradient step, and for acting."""
    inputs, actions = _sizes(setting)
    rng, rows = np.random.default_rng(1), setting.batch_size
    policy_sizes = (inputs, *setting.hidden_sizes, 2 * actions)
    critic_sizes = (inputs + actions, *setting.hidden_sizes, 1)
    actor = Tower(library, policy_sizes, rows=setting.num_envs, rng=rng)
    policy = Tower(library, policy_sizes, rows=rows, rng=rng)
    critics = [Tower(library, critic_sizes, rows=rows, rng=rng) for _ in range(2)]
    critic_weights = 2 * _weights(critic_sizes)

    def targets() -> None:
        for tower in (policy, *critics):
            tower.forward()

    def learn_critics() -> None:
        for tower in critics:
            tower.forward()
            tower.backward()

    def learn_policy() -> None:
        policy.forward()
        for tower in critics:
            tower.forward()
            tower.backward(of_inputs=True)
        policy.backward()

    return {
        "acting": actor.forward,
        "draw": _drawing(setting, record=2 * inputs + actions + 2),
        "targets": targets,
        "critics": learn_critics,
        "policy": learn_policy,
        "Adam and targets' step": library.move(critic_weights + _weights(policy_sizes), critic_weights),
    }


def _weights(sizes: Sequence[int]) -> int:
    return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(sizes))


def _drawing(setting: ReplaySetting, *, record: int) -> Callable[[], Any]:
    rng = np.random.default_rng(1)
    records = rng.standard_normal((setting.total_frames, record)).astype(np.float32)
    drawn = np.empty((setting.batch_size, record), np.float32)
    return lambda: np.take(records, rng.integers(len(records), size=len(drawn)), axis=0, out=drawn)


def _sizes(setting: ReplaySetting) -> tuple[int, int]:
    """Return how many numbers an observation has, and how many an action."""
    import gymnasium

    env = gymnasium.make(setting.env)
    sizes = int(np.prod(env.observation_space.shape or (1,))), int(np.prod(env.action_space.shape or (1,)))
    env.close()
    return sizes


def _stepping(setting: ReplaySetting) -> Callable[[], Any]:
    """Return a call that steps one environment, with actions that were drawn before, and begins again at its end."""
    import gymnasium

    env = gymnasium.make(setting.env, disable_env_checker=True)
    env.reset(seed=1)
    env.action_space.seed(1)
    drawn = itertools.cycle([env.action_space.sample() for _ in range(64)])

    def step() -> None:
        *_, terminated, truncated, _ = env.step(next(drawn))
        if terminated or truncated:
            env.reset()

    return step


def main(setting_id: str, threads: int) -> None:
    """Measure and print."""
    import torch

    torch.set_num_threads(threads)
    setting = REPLAY_SETTINGS[setting_id]
    stepped = best_us(_stepping(setting))
    per_frame = setting.n_updates / setting.rows
    found: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        for name, library in libraries().items():
            taken = {part: best_us(act) for part, act in parts_of(setting, library).items()}
            acting = taken.pop("acting") / setting.num_envs
            learning = {part: us * per_frame for part, us in taken.items()}
            found[f"{setting_id} {name}"] = {"environments": stepped, "acting": acting, **learning}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
