"""Running statistics of observations and rewards, and the frozen normalisers made from them.

Slabs and memories hold raw values. The engine owns the statistics, merges the real rows of each chunk once, and hands
frozen normalisers to whoever acts or learns. Rows are merged in the order of the environments, in float64, so that the
result does not depend on how environments are spread over processes. Numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from digideep.errors import CheckpointError
from digideep.spec import ArraySpec, EnvSpec
from digideep.types import Chunk, StateDict

__all__ = ["ArrayMoments", "Normalizer", "Scale", "Settings", "Statistics"]

Array: TypeAlias = np.ndarray[Any, Any]


class Settings(Protocol):
    """What is normalised and how: the fields of the environment's `StatisticsConfig`."""

    @property
    def observations(self) -> bool:
        """Whether box observations are normalised."""
        ...

    @property
    def rewards(self) -> bool:
        """Whether rewards are scaled."""
        ...

    @property
    def gamma(self) -> float:
        """Discount of the returns whose deviation scales rewards."""
        ...

    @property
    def clip_observation(self) -> float:
        """Bound of a normalised observation."""
        ...

    @property
    def clip_reward(self) -> float:
        """Bound of a scaled reward."""
        ...

    @property
    def epsilon(self) -> float:
        """What is added to a variance before its root."""
        ...


class ArrayMoments(NamedTuple):
    """Number of rows, their mean, and the sum of squared distances from it; an observation's shape each."""

    rows: int
    mean: Array
    m2: Array

    @property
    def variance(self) -> Array:
        """Return the population variance; 0 before the second row."""
        return self.m2 / max(self.rows, 1)

    def merged(self, batch: Array) -> ArrayMoments:
        """Return the moments of these rows and those of `batch` `[R, ...]` together.

        Source: Chan, Golub and LeVeque 1979, Stanford report STAN-CS-79-773, section 2.
        """
        if len(batch) == 0:
            return self
        values = batch.astype(np.float64)
        # From the first row: a mean of equal values need not give the value back, and a constant has no variance.
        origin = values[:1].copy()
        values -= origin
        mean = values.mean(axis=0)
        m2 = np.square(values - mean).sum(axis=0)
        mean = origin[0] + mean
        rows = self.rows + len(batch)
        delta = mean - self.mean
        return ArrayMoments(
            rows=rows,
            mean=self.mean + delta * (len(batch) / rows),
            m2=self.m2 + m2 + np.square(delta) * (self.rows * len(batch) / rows),
        )


class Scale(NamedTuple):
    """How one observation slot is normalised: minus `mean`, times `factor`, within `bound`."""

    mean: Array
    factor: Array
    bound: float


class Normalizer(NamedTuple):
    """A frozen normaliser; without scales it changes nothing."""

    version: int = 0
    scales: Mapping[str, Scale] = {}
    reward_factor: float | None = None
    reward_bound: float = 0.0

    def observations(self, raw: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return observations `[..., *shape]` by slot: float32 where a slot is normalised, untouched elsewhere."""
        if not self.scales:
            return raw
        return {
            slot: _scaled(value, self.scales[slot]) if slot in self.scales else value for slot, value in raw.items()
        }

    def rewards(self, raw: Array) -> Array:
        """Return rewards of any shape, scaled and bounded; their signs stay."""
        if self.reward_factor is None:
            return raw
        scaled = np.clip(raw.astype(np.float64) * self.reward_factor, -self.reward_bound, self.reward_bound)
        return np.asarray(scaled.astype(np.float32))


class Statistics:
    """Moments of every box slot that is not an image, and of the discounted return of each environment.

    Args:
        config: what is normalised, and the bounds.
        spec: the environment's spaces.
        num_envs: N, the number of training environments.
    """

    def __init__(self, config: Settings, *, spec: EnvSpec, num_envs: int) -> None:
        self._config = config
        slots = {slot: array for slot, array in spec.observations.items() if _is_normalised(array)}
        self._observations = {slot: _no_rows(array.shape) for slot, array in slots.items() if config.observations}
        self._returns = _no_rows(())
        self._running = np.zeros(num_envs, dtype=np.float64)  # [N] discounted return of the episode so far
        self._version = 0

    @property
    def version(self) -> int:
        """Return how many chunks were merged."""
        return self._version

    def snapshot(self) -> Normalizer:
        """Return the normaliser of now; later merges do not change it."""
        config = self._config
        scales = {
            slot: Scale(moments.mean.copy(), _factor(moments, config.epsilon), config.clip_observation)
            for slot, moments in self._observations.items()
        }
        factor = float(_factor(self._returns, config.epsilon)) if config.rewards else None
        return Normalizer(self._version, scales, factor, config.clip_reward)

    def merge(self, chunk: Chunk) -> None:
        """Take in the real transitions of a chunk, once."""
        arrays = chunk.arrays
        real = arrays["/masks"][:, 1:] == 1.0
        for slot, moments in self._observations.items():
            rows = arrays[f"/observations/{slot}"][:, :-1][real]
            self._observations[slot] = moments.merged(rows)
        if self._config.rewards:
            returns = self._discounted_returns(arrays["/rewards"], arrays["/masks"])
            self._returns = self._returns.merged(returns[real])
        self._version += 1

    def state_dict(self) -> StateDict:
        """Return version, moments and the running returns as plain data."""
        return {
            "version": self._version,
            "observations": {slot: _plain(moments) for slot, moments in self._observations.items()},
            "returns": _plain(self._returns),
            "running": self._running.copy(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned.

        Running returns of another number of environments are dropped: their episodes are others.

        Raises:
            CheckpointError: the slots or their shapes are others.
        """
        moments = {slot: _moments(part) for slot, part in state["observations"].items()}
        found = {slot: part.mean.shape for slot, part in moments.items()}
        expected = {slot: part.mean.shape for slot, part in self._observations.items()}
        if found != expected:
            raise CheckpointError(f"statistics: expected normalised slots {expected}, found {found} in the checkpoint")
        self._observations = moments
        self._returns = _moments(state["returns"])
        running = np.array(state["running"], dtype=np.float64)
        self._running = running if running.shape == self._running.shape else np.zeros_like(self._running)
        self._version = int(state["version"])

    def _discounted_returns(self, rewards: Array, masks: Array) -> Array:
        """Return `[N, T]` discounted returns since the beginning of each episode, carried on from the last chunk."""
        steps = masks.shape[1] - 1
        returns = np.empty((len(masks), steps), dtype=np.float64)
        running = self._running
        for t in range(steps):
            # A mask of 0 says that the observation at t opens an episode: what came before belongs to another one.
            running = running * (masks[:, t] * self._config.gamma) + rewards[:, t]
            returns[:, t] = running
        self._running = running
        return returns


def _is_normalised(spec: ArraySpec) -> bool:
    return spec.kind == "box" and spec.dtype != "uint8"


def _no_rows(shape: tuple[int, ...]) -> ArrayMoments:
    return ArrayMoments(0, np.zeros(shape), np.zeros(shape))


def _factor(moments: ArrayMoments, epsilon: float) -> Array:
    # A constant has no scale to divide by: it passes as it is, instead of growing by 1 / sqrt(epsilon).
    variance = moments.variance
    return np.where(variance > 0.0, 1.0 / np.sqrt(variance + epsilon), 1.0)


def _scaled(raw: Array, scale: Scale) -> Array:
    scaled = np.clip((raw - scale.mean) * scale.factor, -scale.bound, scale.bound)
    return np.asarray(scaled.astype(np.float32))


def _plain(moments: ArrayMoments) -> StateDict:
    # Arrays also where the moments of a scalar are numpy scalars: what is saved must not depend on an earlier load.
    return {"rows": moments.rows, "mean": np.array(moments.mean), "m2": np.array(moments.m2)}


def _moments(state: Mapping[str, Any]) -> ArrayMoments:
    return ArrayMoments(
        rows=int(state["rows"]),
        mean=np.array(state["mean"], dtype=np.float64),
        m2=np.array(state["m2"], dtype=np.float64),
    )
