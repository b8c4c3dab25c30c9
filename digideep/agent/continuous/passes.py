"""Forward and backward passes of a policy and of critics, numpy in and numpy out, whatever computes them.

A method's arithmetic between networks and losses is written once over these. Packed passes are numpy by hand, for
standard networks on the CPU; the others are autograd through any module on any device. Either puts gradients into the
`.grad` of the parameters, replacing what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.agent.continuous.crew import Crew
from digideep.model.actor_critics import CriticTowers, ObservationTower
from digideep.model.observations import as_tensor, flat_rows
from digideep.model.packed_towers import PackedTower, can_pack
from digideep.spec import ArraySpec

__all__ = ["CriticPass", "ModuleCritics", "ModulePolicy", "PackedCritics", "PackedPolicy", "PolicyPass", "is_packable"]

Array: TypeAlias = np.ndarray[Any, Any]
Observations: TypeAlias = Mapping[str, Array]


class PolicyPass(Protocol):
    """A network of observations alone."""

    def __call__(self, observations: Observations) -> Array:
        """Return outputs `[B, outputs]`, and keep what `backward` needs until the next call."""
        ...

    def backward(self, by_outputs: Array) -> None:
        """Write the parameters' gradient from the derivatives `[B, outputs]` by what the last call returned."""
        ...


class CriticPass(Protocol):
    """Critics of observations and actions."""

    def __call__(self, observations: Observations, actions: Array) -> Array:
        """Return values `[critics, B]` of actions `[B, D]`, and keep what one backward pass needs."""
        ...

    def backward(self, by_values: Array) -> None:
        """Write the parameters' gradient from the derivatives `[critics, B]` by what the last call returned."""
        ...

    def by_actions(self, by_values: Array) -> Array:
        """Return the derivatives `[B, D]` by the actions of the last call, and leave the parameters' alone."""
        ...


def is_packable(*networks: nn.Module | None) -> bool:
    """Whether numpy can do all of these networks; None stands for one that is not needed."""
    kinds = (ObservationTower, CriticTowers)
    return all(n is None or (type(n) in kinds and can_pack(getattr(n, "towers"))) for n in networks)  # noqa: B009


class PackedPolicy:
    """A policy by hand; where the crew has threads, the two products of a backward pass are done side by side."""

    def __init__(self, policy: ObservationTower, *, crew: Crew) -> None:
        self._specs = policy.inputs.specs
        self._tower = PackedTower(policy.towers, run=_pairs(crew))
        self._dtype = _dtype(policy)

    def __call__(self, observations: Observations) -> Array:
        """Return outputs `[B, outputs]`."""
        return self._tower.forward(flat_rows(observations, self._specs, dtype=self._dtype))

    def backward(self, by_outputs: Array) -> None:
        """Write the parameters' gradient."""
        self._tower.backward(by_outputs)


class PackedCritics:
    """Critics by hand, each in a thread of its own where there are some; a single one as `PackedPolicy`.

    Args:
        critics: the networks.
        crew: the threads.
        count: how many of the critics, the first ones; None: all.
    """

    def __init__(self, critics: CriticTowers, *, crew: Crew, count: int | None = None) -> None:
        self._specs: Mapping[str, ArraySpec] = critics.inputs.specs
        self._first = critics.inputs.size  # column of the action
        indices = range(critics.towers.count if count is None else count)
        # A job of a crew has no jobs of its own: all of its threads may be waiting already.
        run = _pairs(crew) if len(indices) == 1 else None
        self._towers = [PackedTower(critics.towers, index, run=run) for index in indices]
        self._crew = crew
        self._dtype = _dtype(critics)

    def __call__(self, observations: Observations, actions: Array) -> Array:
        """Return values `[critics, B]`."""
        flat = flat_rows(observations, self._specs, dtype=self._dtype)
        inputs = np.empty((len(flat), flat.shape[1] + actions.shape[1]), self._dtype)
        inputs[:, : self._first] = flat
        inputs[:, self._first :] = actions
        values = self._crew.run(*(partial(tower.forward, inputs) for tower in self._towers))
        return np.concatenate(values, axis=1).T

    def backward(self, by_values: Array) -> None:
        """Write the parameters' gradient."""
        self._crew.run(*(partial(t.backward, _column(by_values, i)) for i, t in enumerate(self._towers)))

    def by_actions(self, by_values: Array) -> Array:
        """Return the derivatives `[B, D]` by the actions."""
        jobs = [
            partial(tower.input_gradient, _column(by_values, i), first=self._first)
            for i, tower in enumerate(self._towers)
        ]
        return np.asarray(sum(self._crew.run(*jobs)))


class ModulePolicy:
    """Autograd through any module of observations."""

    def __init__(self, policy: nn.Module, *, device: torch.device) -> None:
        self._policy = policy
        self._device = device
        self._outputs: torch.Tensor | None = None

    def __call__(self, observations: Observations) -> Array:
        """Return outputs `[B, outputs]`."""
        self._outputs = self._policy(_tensors(observations, self._device))
        return _numbers(self._outputs)

    def backward(self, by_outputs: Array) -> None:
        """Write the parameters' gradient."""
        assert self._outputs is not None
        _zero_gradients(self._policy)
        self._outputs.backward(as_tensor(by_outputs, self._device))  # type: ignore[no-untyped-call]
        self._outputs = None


class _Kept(NamedTuple):
    actions: torch.Tensor
    values: torch.Tensor


class ModuleCritics:
    """Autograd through any module of observations and actions."""

    def __init__(self, critics: nn.Module, *, device: torch.device) -> None:
        self._critics = critics
        self._device = device
        self._kept: _Kept | None = None

    def __call__(self, observations: Observations, actions: Array) -> Array:
        """Return values `[critics, B]`."""
        taken = as_tensor(actions, self._device).requires_grad_()
        values = self._critics(_tensors(observations, self._device), taken)
        self._kept = _Kept(taken, values)
        return _numbers(values)

    def backward(self, by_values: Array) -> None:
        """Write the parameters' gradient."""
        assert self._kept is not None
        _zero_gradients(self._critics)
        parameters = [parameter for parameter in self._critics.parameters() if parameter.requires_grad]
        gradient = as_tensor(by_values, self._device)
        torch.autograd.backward([self._kept.values], [gradient], inputs=parameters)
        self._kept = None

    def by_actions(self, by_values: Array) -> Array:
        """Return the derivatives `[B, D]` by the actions."""
        assert self._kept is not None
        (gradient,) = torch.autograd.grad(
            [self._kept.values], [self._kept.actions], [as_tensor(by_values, self._device)]
        )
        self._kept = None
        return _numbers(gradient)


def _pairs(crew: Crew) -> Callable[..., Any] | None:
    """Return what does two jobs side by side; None where there is nobody for the second."""
    return crew.run if crew.threads > 1 else None


def _column(by_values: Array, index: int) -> Array:
    return np.ascontiguousarray(by_values[index])[:, None]


def _tensors(observations: Observations, device: torch.device) -> dict[str, torch.Tensor]:
    return {slot: as_tensor(array, device) for slot, array in observations.items()}


def _numbers(tensor: torch.Tensor) -> Array:
    return np.asarray(tensor.detach().cpu().numpy())


def _zero_gradients(module: nn.Module) -> None:
    """Clear gradients in place: they are views of a flat buffer."""
    gradients: Sequence[torch.Tensor] = [p.grad for p in module.parameters() if p.grad is not None]
    torch._foreach_zero_(list(gradients))


def _dtype(module: nn.Module) -> np.dtype[Any]:
    return next(module.parameters()).detach().numpy().dtype
