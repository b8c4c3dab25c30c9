"""Three ways to the same gradient, each of which puts it into the `.grad` of the policy's parameters.

- reference: autograd through the losses as they are written. The others are tested against it, and it is what runs
  where somebody has overridden a loss.
- fused: the derivatives of the loss by the network's outputs by hand, autograd through the network only.
- packed: the same derivatives, and the network's own backward pass by hand too, for standard networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.agent.policy import Policy, Sequences
from digideep.agent.rollout.batches import RolloutBatch
from digideep.model.distributions import Either
from digideep.model.heads import Evaluation
from digideep.model.mlp import ActorCriticMLP
from digideep.model.packed import PackedMLP

__all__ = ["Derivatives", "Derive", "Path", "choose_path", "fused_gradients", "packed_gradients", "reference_gradients"]

Array: TypeAlias = np.ndarray[Any, Any]


class Derivatives(NamedTuple):
    """Derivatives of the total by log-probabilities, entropies and values, each `[B]`, and the figures `[F]`."""

    by_log_prob: Either
    by_entropy: Either
    by_value: Either
    figures: Either


Derive: TypeAlias = Callable[[Evaluation, RolloutBatch], Derivatives]
"""The derivatives of a loss by what the policy says, without autograd; in numpy or torch, as the batch is."""


class _ByNetwork(NamedTuple):
    """Derivatives of the loss by outputs `[K, B]`, values `[B]` and `log_std` `[D]`, and the figures `[F]`."""

    outputs: Either
    values: Either
    log_std: Either | None
    figures: Either


class Path(NamedTuple):
    """A way to the gradient: in words, what it needs, and the device of its batches; None for batches in numpy."""

    told: str
    packed: PackedMLP | None
    is_reference: bool
    device: torch.device | None


def choose_path(policy: Policy, *, device: torch.device, replaced: Sequence[str], owner: str) -> Path:
    """Return the learner path by rule: nothing measured decides it.

    Args:
        policy: its parameters must have been made flat.
        device: where it lives.
        replaced: the losses that the agent's class `owner` overrides.
    """
    network = policy.network
    if replaced:
        return Path(f"reference: {owner} overrides {', '.join(replaced)}", None, True, device)
    if isinstance(network, ActorCriticMLP) and PackedMLP.can_pack(network):
        told = "packed: a standard network on the CPU, closed-form gradients in numpy"
        return Path(told, PackedMLP(network), False, None)
    told = "fused: closed-form gradient of the loss, autograd through the network only"
    # Pictures keep the order in memory that convolutions like, which only torch has.
    keeps_order = bool(getattr(network, "wants_channels_last", False))
    return Path(told, None, False, None if device.type == "cpu" and not keeps_order else device)


def reference_gradients(
    policy: Policy, batch: RolloutBatch, *, loss: Callable[[RolloutBatch, Evaluation], tuple[torch.Tensor, ...]]
) -> torch.Tensor:
    """Add the gradient of the first that `loss(batch, evaluated)` gives to zeroed `.grad`; return the others `[F]`."""
    total, *others = loss(batch, policy.evaluate(batch.observations, batch.actions, batch.sequences))
    figures = torch.stack([figure.detach() for figure in others])
    # On a GPU nobody waits to know, and the gradient tells.
    if total.device.type == "cpu" and not math.isfinite(total.item()):
        if bool(torch.isfinite(figures).all()):  # somebody has made the total of something else
            figures[0] = total.detach()
        return figures
    total.backward()  # type: ignore[no-untyped-call]
    return figures


def fused_gradients(policy: Policy, batch: RolloutBatch, *, derive: Derive) -> Either:
    """Add the gradient of a loss for a batch in numpy or torch to zeroed `.grad`; return the figures `[F]`."""
    in_numpy = not isinstance(batch.shares, torch.Tensor)
    inputs, sequences = batch.observations, batch.sequences
    if in_numpy:
        inputs = _tensors(inputs)
        if sequences is not None:
            sequences = Sequences(_tensors(sequences.hidden_state), torch.from_numpy(sequences.masks))
    outputs, values = policy(inputs, sequences)
    log_std = policy.log_std
    detached: list[Either] = [part.detach() for part in (outputs, values)]
    scale: Either | None = None if log_std is None else log_std.detach()
    if in_numpy:  # small operations take a third of the time there
        detached = [part.numpy() for part in detached]
        scale = None if scale is None else scale.numpy()
    with torch.no_grad():
        by = _by_network(policy, detached[0].T, detached[1], log_std=scale, batch=batch, derive=derive)
        if log_std is not None and log_std.grad is not None and by.log_std is not None:
            log_std.grad.add_(torch.as_tensor(by.log_std))
    # A network of the user may give values or outputs that depend on no weight.
    pairs = [pair for pair in ((outputs, by.outputs.T), (values, by.values)) if pair[0].requires_grad]
    if pairs:
        torch.autograd.backward([output for output, _ in pairs], [torch.as_tensor(gradient) for _, gradient in pairs])
    return by.figures


def packed_gradients(policy: Policy, batch: RolloutBatch, *, network: PackedMLP, derive: Derive) -> Array:
    """Write the gradient of a loss for a batch in numpy into `.grad`; return the figures `[F]`."""
    outputs, values = network.forward(batch.observations)
    log_std = policy.log_std
    scale = None if log_std is None else log_std.detach().numpy()
    by = _by_network(policy, outputs, values, log_std=scale, batch=batch, derive=derive)
    if log_std is not None and log_std.grad is not None:
        log_std.grad.numpy()[...] = by.log_std
    network.backward(by.outputs, by.values)
    figures: Array = by.figures
    return figures


def _by_network(
    policy: Policy, outputs: Either, values: Either, *, log_std: Either | None, batch: RolloutBatch, derive: Derive
) -> _ByNetwork:
    """Return the derivatives by what the network says.

    The chain rule: from the loss to log-probabilities, entropies and values in `derive`, from there to the
    outputs and `log_std` in each distribution's `terms`.
    """
    terms = policy.heads.terms(outputs, log_std, batch.actions)
    by = derive(Evaluation(terms.log_prob, terms.entropy, values), batch)
    head = terms.gradient(by.by_log_prob, by.by_entropy)
    return _ByNetwork(head.outputs, by.by_value, head.log_std, by.figures)


def _tensors(arrays: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """Return arrays as tensors of the same memory."""
    return {slot: torch.from_numpy(array) for slot, array in arrays.items()}
