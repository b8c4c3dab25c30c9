"""Action distributions by hand: numpy for acting, torch for losses, and their gradients in closed form.

Each distribution turns `outputs` of a network (`[B, K]`), and for real-valued actions a `log_std` that no observation
changes (`[D]`), into actions. Nothing here is an object per call: acting draws from noise that was drawn before, so
that one generator an environment or one for the whole batch give the same code.

`terms` gives log-probability and entropy together with the gradient of a loss that depends on them, from the loss's
derivatives by each: for a loss L with a_i = dL/dlog_prob_i and b_i = dL/dentropy_i,

    dL/doutputs_i = a_i * dlog_prob_i/doutputs_i + b_i * dentropy_i/doutputs_i.

Its formulas are written once, for arrays of numpy and tensors of torch alike, with the batch as the last axis: sums
over the few outputs of a row are then sums of long rows.
"""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from digideep.spec import ArraySpec

__all__ = [
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Draw",
    "HeadGradient",
    "MultiCategorical",
    "Normal",
    "Terms",
    "distribution",
]

Array: TypeAlias = np.ndarray[Any, Any]
Either: TypeAlias = Any
"""An array of numpy or a tensor of torch, in and out alike."""

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Draw(NamedTuple):
    """Actions `[B]` or `[B, D]` and their log-probabilities `[B]`."""

    actions: Array
    log_probs: Array


class HeadGradient(NamedTuple):
    """Gradient of a loss by the network's outputs `[K, B]`, and by `log_std` `[D]` where there is one."""

    outputs: Either
    log_std: Either | None


class Terms(NamedTuple):
    """Log-probabilities `[B]`, entropies `[B]`, and the gradient as a function of a loss's derivatives by both."""

    log_prob: Either
    entropy: Either
    gradient: Callable[[Either, Either], HeadGradient]


class Distribution(ABC):
    """One action array's distribution.

    `outputs` is the number of a network's outputs it takes, `log_stds` the number of its own parameters. Actions are
    flat: `[B]` for a categorical, `[B, D]` for the others.
    """

    outputs: int
    log_stds: int = 0

    @abstractmethod
    def noise(self, rng: np.random.Generator, rows: int) -> Array:
        """Return the random numbers that `draw` needs for `rows` rows."""

    @abstractmethod
    def pick(self, outputs: Array, log_std: Array | None, noise: Array | None) -> Array:
        """Return the actions that `noise` picks, or the most likely ones where it is None."""

    def draw(self, outputs: Array, log_std: Array | None, noise: Array | None) -> Draw:
        """Return what `pick` does, with log-probabilities."""
        actions = self.pick(outputs, log_std, noise)
        return Draw(actions, self.log_probs(outputs, log_std, actions))

    @abstractmethod
    def log_probs(self, outputs: Array, log_std: Array | None, actions: Array) -> Array:
        """Return the log-probabilities `[B]` of actions, in numpy."""

    @abstractmethod
    def log_prob(self, outputs: torch.Tensor, log_std: torch.Tensor | None, actions: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities `[B]` of actions, for autograd."""

    @abstractmethod
    def entropy(self, outputs: torch.Tensor, log_std: torch.Tensor | None) -> torch.Tensor:
        """Return the entropies `[B]`, for autograd."""

    @abstractmethod
    def terms(self, outputs: Either, log_std: Either | None, actions: Either) -> Terms:
        """Return log-probabilities, entropies and the gradient in closed form, in numpy or torch.

        Args:
            outputs: `[K, B]` of the network; no tensor may require a gradient.
            log_std: `[D]`, where there is one.
            actions: `[B]` or `[B, D]`.
        """


class Categorical(Distribution):
    """One of `n` actions, by logits.

    With p the probabilities, l their logarithms and H the entropy: dl_a/dz_j = [j = a] - p_j and
    dH/dz_j = -p_j (l_j + H).
    """

    def __init__(self, n: int) -> None:
        self.outputs = n

    def noise(self, rng: np.random.Generator, rows: int) -> Array:
        """Return `[rows, 1]` uniform numbers in [0, 1)."""
        return rng.random((rows, 1), dtype=np.float32)

    def pick(self, outputs: Array, log_std: Array | None, noise: Array | None) -> Array:
        """Return actions `[B]` by inversion of the cumulative distribution."""
        if noise is None:
            return np.asarray(outputs.argmax(axis=-1))
        # The functions themselves, where an array's methods go through Python: this is done at every step.
        shifted = outputs - np.maximum.reduce(outputs, axis=-1, keepdims=True)
        cumulative = np.add.accumulate(np.exp(shifted), axis=-1)
        # The product may round up to the total; the last action is then meant.
        passed = np.add.reduce(cumulative <= noise * cumulative[:, -1:], axis=-1)
        return np.asarray(np.minimum(passed, self.outputs - 1))

    def log_probs(self, outputs: Array, log_std: Array | None, actions: Array) -> Array:
        """Return `[B]` log-probabilities."""
        shifted = outputs - np.maximum.reduce(outputs, axis=-1, keepdims=True)
        picked = shifted.take(actions + _row_starts(len(actions), self.outputs))
        return np.asarray(picked - np.log(np.add.reduce(np.exp(shifted), axis=-1)))

    def log_prob(self, outputs: torch.Tensor, log_std: torch.Tensor | None, actions: torch.Tensor) -> torch.Tensor:
        """Return `[B]` log-probabilities."""
        return torch.log_softmax(outputs, dim=-1).gather(1, actions[:, None].long()).squeeze(1)

    def entropy(self, outputs: torch.Tensor, log_std: torch.Tensor | None) -> torch.Tensor:
        """Return `[B]` entropies."""
        log_p = torch.log_softmax(outputs, dim=-1)
        return -(log_p.exp() * log_p).sum(-1)

    def terms(self, outputs: Either, log_std: Either | None, actions: Either) -> Terms:
        """Return `[B]` log-probabilities, `[B]` entropies and the gradient."""
        xp = _library(outputs)
        shifted = outputs - xp.amax(outputs, 0)
        exponentials = xp.exp(shifted)
        total = exponentials.sum(0)
        log_p, p = shifted - xp.log(total), exponentials / total
        # To torch small integers are no indices, and bytes are a mask.
        choices = actions if xp is np else actions.long()
        taken = (choices, xp.arange(len(choices), device=outputs.device))
        entropy = -(p * log_p).sum(0)

        def gradient(by_log_prob: Either, by_entropy: Either) -> HeadGradient:
            by_outputs = (log_p + entropy) * by_entropy
            by_outputs += by_log_prob
            by_outputs *= -p
            by_outputs[taken] += by_log_prob
            return HeadGradient(by_outputs, None)

        return Terms(log_p[taken], entropy, gradient)


class MultiCategorical(Distribution):
    """Several independent categoricals: log-probabilities and entropies are sums."""

    def __init__(self, n: tuple[int, ...]) -> None:
        self.outputs = sum(n)
        self._parts = [Categorical(size) for size in n]
        edges = [0, *np.cumsum(n).tolist()]
        self._slices = [slice(start, stop) for start, stop in itertools.pairwise(edges)]

    def noise(self, rng: np.random.Generator, rows: int) -> Array:
        """Return `[rows, D]` uniform numbers in [0, 1)."""
        return rng.random((rows, len(self._parts)))

    def pick(self, outputs: Array, log_std: Array | None, noise: Array | None) -> Array:
        """Return actions `[B, D]`."""
        columns = enumerate(zip(self._parts, self._slices, strict=True))
        picked = [
            part.pick(outputs[:, where], None, None if noise is None else noise[:, i : i + 1])
            for i, (part, where) in columns
        ]
        return np.stack(picked, axis=1)

    def log_probs(self, outputs: Array, log_std: Array | None, actions: Array) -> Array:
        """Return `[B]` log-probabilities."""
        columns = enumerate(zip(self._parts, self._slices, strict=True))
        parts = [part.log_probs(outputs[:, w], None, actions[:, i]) for i, (part, w) in columns]
        return np.asarray(np.stack(parts, axis=1).sum(axis=1))

    def log_prob(self, outputs: torch.Tensor, log_std: torch.Tensor | None, actions: torch.Tensor) -> torch.Tensor:
        """Return `[B]` log-probabilities."""
        columns = enumerate(zip(self._parts, self._slices, strict=True))
        return torch.stack([part.log_prob(outputs[:, w], None, actions[:, i]) for i, (part, w) in columns]).sum(0)

    def entropy(self, outputs: torch.Tensor, log_std: torch.Tensor | None) -> torch.Tensor:
        """Return `[B]` entropies."""
        columns = zip(self._parts, self._slices, strict=True)
        return torch.stack([part.entropy(outputs[:, where], None) for part, where in columns]).sum(0)

    def terms(self, outputs: Either, log_std: Either | None, actions: Either) -> Terms:
        """Return `[B]` log-probabilities, `[B]` entropies and the gradient."""
        columns = enumerate(zip(self._parts, self._slices, strict=True))
        parts = [part.terms(outputs[where], None, actions[:, i]) for i, (part, where) in columns]

        def gradient(by_log_prob: Either, by_entropy: Either) -> HeadGradient:
            by_parts = [part.gradient(by_log_prob, by_entropy).outputs for part in parts]
            return HeadGradient(_library(outputs).concatenate(by_parts), None)

        return Terms(sum(part.log_prob for part in parts), sum(part.entropy for part in parts), gradient)


class Bernoulli(Distribution):
    """`D` independent bits, by logits.

    With p the probability of a 1: dlog_prob/dz = action - p and dH/dz = -z p (1 - p), for each bit.
    """

    def __init__(self, size: int) -> None:
        self.outputs = size

    def noise(self, rng: np.random.Generator, rows: int) -> Array:
        """Return `[rows, D]` uniform numbers in [0, 1)."""
        return rng.random((rows, self.outputs))

    def pick(self, outputs: Array, log_std: Array | None, noise: Array | None) -> Array:
        """Return actions `[B, D]` of zeros and ones."""
        is_one = (outputs > 0.0) if noise is None else noise < np.exp(outputs - _softplus(outputs))
        return np.asarray(is_one.astype(np.int8))

    def log_probs(self, outputs: Array, log_std: Array | None, actions: Array) -> Array:
        """Return `[B]` log-probabilities."""
        return np.asarray((actions * outputs - _softplus(outputs)).sum(axis=-1))

    def log_prob(self, outputs: torch.Tensor, log_std: torch.Tensor | None, actions: torch.Tensor) -> torch.Tensor:
        """Return `[B]` log-probabilities."""
        return (actions * outputs - functional.softplus(outputs)).sum(-1)

    def entropy(self, outputs: torch.Tensor, log_std: torch.Tensor | None) -> torch.Tensor:
        """Return `[B]` entropies."""
        return (functional.softplus(outputs) - outputs * torch.sigmoid(outputs)).sum(-1)

    def terms(self, outputs: Either, log_std: Either | None, actions: Either) -> Terms:
        """Return `[B]` log-probabilities, `[B]` entropies and the gradient."""
        xp = _library(outputs)
        taken = actions.T
        softplus = outputs.clip(min=0.0) + xp.log1p(xp.exp(-abs(outputs)))
        p = xp.exp(outputs - softplus)

        def gradient(by_log_prob: Either, by_entropy: Either) -> HeadGradient:
            by_bits = outputs * p * (1.0 - p) * by_entropy
            return HeadGradient((taken - p) * by_log_prob - by_bits, None)

        return Terms((taken * outputs - softplus).sum(0), (softplus - outputs * p).sum(0), gradient)


class Normal(Distribution):
    """`D` independent normals: the network gives the means, `log_std` is a parameter of the policy.

    With u = (action - mean) / std: dlog_prob/dmean = u / std, dlog_prob/dlog_std = u^2 - 1, dH/dlog_std = 1.
    """

    def __init__(self, size: int) -> None:
        self.outputs = self.log_stds = size

    def noise(self, rng: np.random.Generator, rows: int) -> Array:
        """Return `[rows, D]` standard normal numbers."""
        return rng.standard_normal((rows, self.outputs), dtype=np.float32)

    def pick(self, outputs: Array, log_std: Array | None, noise: Array | None) -> Array:
        """Return actions `[B, D]`, not clipped to any bounds."""
        assert log_std is not None
        return outputs.copy() if noise is None else np.asarray(outputs + np.exp(log_std) * noise)

    def log_probs(self, outputs: Array, log_std: Array | None, actions: Array) -> Array:
        """Return `[B]` log-densities."""
        assert log_std is not None
        scaled = (actions - outputs) * np.exp(-log_std)
        return np.asarray((-0.5 * scaled * scaled - log_std - _HALF_LOG_TWO_PI).sum(axis=-1))

    def log_prob(self, outputs: torch.Tensor, log_std: torch.Tensor | None, actions: torch.Tensor) -> torch.Tensor:
        """Return `[B]` log-densities."""
        assert log_std is not None
        scaled = (actions - outputs) * torch.exp(-log_std)
        return (-0.5 * scaled * scaled - log_std - _HALF_LOG_TWO_PI).sum(-1)

    def entropy(self, outputs: torch.Tensor, log_std: torch.Tensor | None) -> torch.Tensor:
        """Return `[B]` differential entropies, the same for every row."""
        assert log_std is not None
        return (log_std + (0.5 + _HALF_LOG_TWO_PI)).sum(-1).expand(len(outputs))

    def terms(self, outputs: Either, log_std: Either | None, actions: Either) -> Terms:
        """Return `[B]` log-densities, `[B]` entropies and the gradient."""
        assert log_std is not None
        xp = _library(outputs)
        inverse = xp.exp(-log_std)[:, None]
        scaled = (actions.T - outputs) * inverse
        squared = scaled * scaled
        log_prob = -0.5 * squared.sum(0) - (log_std + _HALF_LOG_TWO_PI).sum()

        def gradient(by_log_prob: Either, by_entropy: Either) -> HeadGradient:
            by_log_std = (squared - 1.0) @ by_log_prob + by_entropy.sum()
            return HeadGradient(scaled * inverse * by_log_prob, by_log_std)

        return Terms(log_prob, (log_std + (0.5 + _HALF_LOG_TWO_PI)).sum() + xp.zeros_like(log_prob), gradient)


def _library(array: Either) -> Any:
    """Return numpy or torch, whichever the array is of."""
    return torch if isinstance(array, torch.Tensor) else np


@functools.lru_cache(maxsize=64)
def _row_starts(rows: int, width: int) -> Array:
    """Return where each of `rows` rows of `width` begins in flat memory; to be read only."""
    starts = np.arange(0, rows * width, width)
    starts.flags.writeable = False
    return starts


def _softplus(values: Array) -> Array:
    return np.asarray(np.maximum(values, 0.0) + np.log1p(np.exp(-np.abs(values))))


def distribution(spec: ArraySpec) -> Distribution:
    """Return the distribution over one array of an action space."""
    if spec.kind == "discrete":
        return Categorical(spec.n[0])
    if spec.kind == "multi_discrete":
        return MultiCategorical(spec.n)
    if spec.kind == "multi_binary":
        return Bernoulli(spec.size)
    return Normal(spec.size)
