"""The distribution over a whole action space: one distribution an action slot, independent given the observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.errors import SpaceError
from digideep.model.distributions import Distribution, Either, HeadGradient, Terms, distribution
from digideep.spec import ArraySpec

__all__ = ["ActionDraw", "ActionHeads", "Evaluation"]

Array: TypeAlias = np.ndarray[Any, Any]


class ActionDraw(NamedTuple):
    """Raw actions by slot `[B, ...]` and their joint log-probabilities `[B]`."""

    actions: dict[str, Array]
    log_probs: Array


class Evaluation(NamedTuple):
    """What the policy of now says about stored actions: joint log-probabilities, entropies, and values, each `[B]`."""

    log_prob: Either
    entropy: Either
    values: Either


class _Head(NamedTuple):
    slot: str
    spec: ArraySpec
    distribution: Distribution
    outputs: slice
    log_std: slice


class ActionHeads:
    """Splits a network's outputs among the action slots; joint log-probability and entropy are sums over slots.

    Raises:
        SpaceError: a slot has a space that no distribution here covers; the message names it.
    """

    def __init__(self, actions: Mapping[str, ArraySpec]) -> None:
        if not actions:
            raise SpaceError("action space: expected at least one array, found none")
        self._heads: list[_Head] = []
        outputs = log_stds = 0
        for slot, spec in actions.items():
            _check(slot, spec)
            made = distribution(spec)
            ends = outputs + made.outputs, log_stds + made.log_stds
            self._heads.append(_Head(slot, spec, made, slice(outputs, ends[0]), slice(log_stds, ends[1])))
            outputs, log_stds = ends
        self.outputs = outputs
        self.log_stds = log_stds

    def noise(self, generators: np.random.Generator | Sequence[np.random.Generator], rows: int) -> list[Array]:
        """Return the random numbers for `rows` rows: from one generator, or row `i` from the `i`-th of several."""
        if isinstance(generators, np.random.Generator):
            return [head.distribution.noise(generators, rows) for head in self._heads]
        by_row = [[head.distribution.noise(rng, 1) for head in self._heads] for rng in generators]
        return [np.concatenate(column) for column in zip(*by_row, strict=True)]

    def draw(self, outputs: Array, log_std: Array | None, noise: Sequence[Array] | None) -> ActionDraw:
        """Return what `pick` does, with joint log-probabilities."""
        actions = self.pick(outputs, log_std, noise)
        return ActionDraw(actions, self.log_probs(outputs, log_std, actions))

    def pick(self, outputs: Array, log_std: Array | None, noise: Sequence[Array] | None) -> dict[str, Array]:
        """Return the actions that `noise` picks by slot, or the most likely ones where it is None."""
        actions: dict[str, Array] = {}
        for index, h in enumerate(self._heads):
            part = None if noise is None else noise[index]
            picked = h.distribution.pick(outputs[:, h.outputs], _part(log_std, h), part)
            actions[h.slot] = picked.astype(h.spec.dtype, copy=False).reshape((len(picked), *h.spec.shape))
        return actions

    def log_probs(self, outputs: Array, log_std: Array | None, actions: Mapping[str, Array]) -> Array:
        """Return the joint log-probabilities `[B]` of actions, in numpy."""
        parts = [
            h.distribution.log_probs(outputs[:, h.outputs], _part(log_std, h), _flat(actions[h.slot], h))
            for h in self._heads
        ]
        return parts[0] if len(parts) == 1 else np.add.reduce(parts)

    def log_prob(
        self, outputs: torch.Tensor, log_std: torch.Tensor | None, actions: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the joint log-probabilities `[B]`, for autograd."""
        return _sum(
            [
                h.distribution.log_prob(outputs[:, h.outputs], _part(log_std, h), _flat(actions[h.slot], h))
                for h in self._heads
            ]
        )

    def entropy(self, outputs: torch.Tensor, log_std: torch.Tensor | None) -> torch.Tensor:
        """Return the joint entropies `[B]`, for autograd."""
        return _sum([h.distribution.entropy(outputs[:, h.outputs], _part(log_std, h)) for h in self._heads])

    def terms(self, outputs: Either, log_std: Either | None, actions: Mapping[str, Either]) -> Terms:
        """Return joint log-probabilities, entropies and the gradient in closed form, for outputs `[K, B]`."""
        if len(self._heads) == 1:
            (head,) = self._heads
            return head.distribution.terms(outputs, log_std, _flat(actions[head.slot], head))
        parts = [
            h.distribution.terms(outputs[h.outputs], _part(log_std, h), _flat(actions[h.slot], h)) for h in self._heads
        ]

        def gradient(by_log_prob: Either, by_entropy: Either) -> HeadGradient:
            gradients = [part.gradient(by_log_prob, by_entropy) for part in parts]
            by_log_std = [part.log_std for part in gradients if part.log_std is not None]
            join = torch.cat if isinstance(outputs, torch.Tensor) else np.concatenate
            joined = join(by_log_std) if by_log_std else None
            return HeadGradient(join([part.outputs for part in gradients]), joined)

        return Terms(sum(part.log_prob for part in parts), sum(part.entropy for part in parts), gradient)


def _check(slot: str, spec: ArraySpec) -> None:
    name = f"action space: slot {slot!r}" if slot else "action space"
    if spec.kind == "box" and not spec.dtype.startswith("float"):
        raise SpaceError(
            f"{name}: expected a box of floats, found Box{spec.shape} of {spec.dtype}; use MultiDiscrete for integers"
        )
    if spec.flat_size == 0 or 0 in spec.n:
        raise SpaceError(f"{name}: expected at least one element, found {spec.kind} of shape {spec.shape}, n {spec.n}")


def _part(log_std: Either | None, head: _Head) -> Either | None:
    return None if log_std is None else log_std[head.log_std]


def _flat(actions: Either, head: _Head) -> Either:
    expected = 1 if head.spec.kind == "discrete" else 2
    return actions if actions.ndim == expected else actions.reshape(len(actions), -1)


def _sum(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
