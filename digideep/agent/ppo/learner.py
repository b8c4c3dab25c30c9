"""Three ways to the same gradient, each of which puts it into the `.grad` of the policy's parameters.

- reference: autograd through the losses as they are written. The others are tested against it, and it is what runs
  where somebody has overridden a loss.
- fused: the derivatives of the loss by the network's outputs by hand, autograd through the network only.
- packed: the same derivatives, and the network's own backward pass by hand too, for standard networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from digideep.agent.policy import Policy
from digideep.agent.ppo.losses import Losses, LossOptions, PPOBatch, derivatives
from digideep.model.heads import Evaluation
from digideep.model.packed import PackedMLP

__all__ = ["fused_gradients", "packed_gradients", "reference_gradients"]


class _ByNetwork(NamedTuple):
    """Derivatives of the loss by the network's outputs `[B, K]` and values `[B]`, and the figures `[5]`."""

    outputs: torch.Tensor
    values: torch.Tensor
    figures: torch.Tensor


def reference_gradients(
    policy: Policy, batch: PPOBatch, *, loss: Callable[[PPOBatch, Evaluation], Losses]
) -> torch.Tensor:
    """Add the gradient of `loss(batch, evaluated).total` to zeroed `.grad`; return the figures `[5]`."""
    losses = loss(batch, policy.evaluate(batch.observations, batch.actions))
    figures = torch.stack([figure.detach() for figure in losses[1:]])
    # On a GPU nobody waits to know, and the gradient tells.
    if losses.total.device.type == "cpu" and not math.isfinite(losses.total.item()):
        if bool(torch.isfinite(figures).all()):  # somebody has made the total of something else
            figures[0] = losses.total.detach()
        return figures
    losses.total.backward()  # type: ignore[no-untyped-call]
    return figures


def fused_gradients(policy: Policy, batch: PPOBatch, *, options: LossOptions) -> torch.Tensor:
    """Add the gradient of PPO's loss to zeroed `.grad`; return the figures `[5]`."""
    outputs, values = policy(batch.observations)
    with torch.no_grad():
        by = _by_network(policy, outputs.detach(), values.detach(), batch=batch, options=options)
    # A network of the user may give values or outputs that depend on no weight.
    pairs = [pair for pair in ((outputs, by.outputs), (values, by.values)) if pair[0].requires_grad]
    if pairs:
        torch.autograd.backward([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return by.figures


def packed_gradients(policy: Policy, batch: PPOBatch, *, network: PackedMLP, options: LossOptions) -> torch.Tensor:
    """Write the gradient of PPO's loss into zeroed `.grad`; return the figures `[5]`."""
    outputs, values = network.forward(batch.observations)
    with torch.no_grad():
        by = _by_network(policy, torch.from_numpy(outputs), torch.from_numpy(values), batch=batch, options=options)
    network.backward(by.outputs.numpy(), by.values.numpy())
    return by.figures


def _by_network(
    policy: Policy, outputs: torch.Tensor, values: torch.Tensor, *, batch: PPOBatch, options: LossOptions
) -> _ByNetwork:
    """Return the derivatives by what the network says; those by `log_std` go to its `.grad`.

    The chain rule: from the loss to log-probabilities, entropies and values in `losses.derivatives`, from there to the
    outputs and `log_std` in each distribution's `terms`.
    """
    log_std = None if policy.log_std is None else policy.log_std.detach()
    terms = policy.heads.terms(outputs, log_std, batch.actions)
    by = derivatives(Evaluation(terms.log_prob, terms.entropy, values), batch, options)
    head = terms.gradient(by.by_log_prob, by.by_entropy)
    if policy.log_std is not None and head.log_std is not None and policy.log_std.grad is not None:
        policy.log_std.grad.add_(head.log_std)
    return _ByNetwork(head.outputs, by.by_value, by.figures)
