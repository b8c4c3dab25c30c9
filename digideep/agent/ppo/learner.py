"""Two ways to the same gradient: autograd through the whole loss, and closed form down to the network's outputs.

Both add into the `.grad` of the policy's parameters. The reference differentiates the losses as they are written; it
is what the fused one is tested against, and what runs where somebody has overridden a loss. The fused one computes
the derivatives of the loss by the network's outputs by hand and uses autograd through the network only.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from digideep.agent.policy import Policy
from digideep.agent.ppo.losses import Losses, LossOptions, PPOBatch, derivatives
from digideep.model.heads import Evaluation

__all__ = ["fused_gradients", "reference_gradients"]


def reference_gradients(
    policy: Policy, batch: PPOBatch, *, loss: Callable[[PPOBatch, Evaluation], Losses]
) -> torch.Tensor:
    """Add the gradient of `loss(batch, evaluated).total` to the parameters' `.grad`; return the figures `[5]`."""
    losses = loss(batch, policy.evaluate(batch.observations, batch.actions))
    losses.total.backward()  # type: ignore[no-untyped-call]
    return torch.stack([figure.detach() for figure in losses[1:]])


def fused_gradients(policy: Policy, batch: PPOBatch, *, options: LossOptions) -> torch.Tensor:
    """Add the gradient of PPO's loss to the parameters' `.grad`; return the figures `[5]`.

    The chain rule in three parts: dL/d(log_prob, entropy, value) from `losses.derivatives`, from there to the network's
    outputs and `log_std` in each distribution's `terms`, and autograd from the outputs to the weights.
    """
    outputs, values = policy(batch.observations)
    with torch.no_grad():
        log_std = None if policy.log_std is None else policy.log_std.detach()
        terms = policy.heads.terms(outputs.detach(), log_std, batch.actions)
        evaluated = Evaluation(terms.log_prob, terms.entropy, values.detach())
        by = derivatives(evaluated, batch, options)
        head = terms.gradient(by.by_log_prob, by.by_entropy)
        if policy.log_std is not None and head.log_std is not None and policy.log_std.grad is not None:
            policy.log_std.grad.add_(head.log_std)
    # A network of the user may give values or outputs that depend on no weight.
    pairs = [pair for pair in ((outputs, head.outputs), (values, by.by_value)) if pair[0].requires_grad]
    if pairs:
        torch.autograd.backward([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    return by.figures
