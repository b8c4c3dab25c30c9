"""Policies: a network with a value function, and the distribution over actions that it feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from digideep.agent.modules import CHECK_ROWS, build_module, module_device
from digideep.errors import ConfigError
from digideep.model.distributions import Either
from digideep.model.heads import ActionHeads, Evaluation
from digideep.model.observations import as_tensor, zero_observations
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.imports import BUILT_IN, told_with_place

__all__ = ["Policy", "Sequences", "build_policy"]


class Sequences(NamedTuple):
    """What a recurrent network needs beside observations `[L * S, ...]`, those of one step side by side.

    `hidden_state` holds each part before the first step, `[S, ...]` by key; `masks` `[L, S]` are 0 where an observation
    opens an episode. In numpy or torch.
    """

    hidden_state: dict[str, Either]
    masks: Either


class Policy(nn.Module):
    """A network that gives policy outputs and values, and a `log_std` where actions are real numbers."""

    log_std: nn.Parameter | None

    def __init__(self, network: nn.Module, heads: ActionHeads, *, log_std_init: float) -> None:
        super().__init__()
        self.network = network
        self.heads = heads
        self.log_std = nn.Parameter(torch.full((heads.log_stds,), log_std_init)) if heads.log_stds else None

    @property
    def hidden_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of the hidden state for one environment, by key; empty without one."""
        return dict(getattr(self.network, "hidden_shapes", None) or {})

    def forward(
        self, observations: Mapping[str, torch.Tensor], sequences: Sequences | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, heads.outputs]` and values `[B]`; a recurrent network needs the sequences."""
        if sequences is None:
            outputs, values = self.network(observations)
        else:
            outputs, values, _ = self.network(observations, sequences.hidden_state, sequences.masks)
        return outputs, values

    def evaluate(
        self,
        observations: Mapping[str, torch.Tensor],
        actions: Mapping[str, torch.Tensor],
        sequences: Sequences | None = None,
    ) -> Evaluation:
        """Return log-probabilities, entropies and values, for autograd."""
        outputs, values = self(observations, sequences)
        log_prob = self.heads.log_prob(outputs, self.log_std, actions)
        return Evaluation(log_prob, self.heads.entropy(outputs, self.log_std), values)


def build_policy(
    model: Mapping[str, Any],
    spec: EnvSpec,
    *,
    seed: int,
    log_std_init: float = 0.0,
    where: str,
    device: str = "cpu",
    allowed: Sequence[str] = BUILT_IN,
    is_recurrent: bool = False,
) -> Policy:
    """Return a policy with the network that the node `model` describes, its weights drawn from `seed`.

    `is_recurrent` says whether whoever asks keeps a hidden state for it.

    Raises:
        SpaceError: a space that the policy cannot do.
        ConfigError: the network is no torch module, has a hidden state or none against `is_recurrent`, or does not
            return what it must.
    """
    heads = ActionHeads(spec.actions)
    arguments = {"observations": dict(spec.observations), "outputs": heads.outputs}
    network = build_module(model, arguments=arguments, seed=seed, where=where, device=device, allowed=allowed)
    policy = Policy(network, heads, log_std_init=log_std_init).to(device)
    _check_memory(policy, is_recurrent=is_recurrent, where=where)
    _check_network(policy, spec.observations, outputs=heads.outputs, where=where)
    return policy


def _check_memory(policy: Policy, *, is_recurrent: bool, where: str) -> None:
    name = type(policy.network).__name__
    if policy.hidden_shapes and not is_recurrent:
        raise ConfigError(
            f"{where}/type: expected a network without hidden state, found {name}; use an agent that keeps one, "
            f"such as digideep.agent.ppo.config:RecurrentPPOConfig"
        )
    if is_recurrent and not policy.hidden_shapes:
        raise ConfigError(
            f"{where}/type: expected a network with a hidden state, which hidden_shapes tells, found {name}; use one "
            f"such as digideep.model.config:RNNConfig, or an agent that keeps none"
        )


def _check_network(policy: Policy, observations: Mapping[str, ArraySpec], *, outputs: int, where: str) -> None:
    device = module_device(policy)
    zeros = zero_observations(observations, CHECK_ROWS)
    inputs = {slot: as_tensor(array, device) for slot, array in zeros.items()}
    policy.eval()
    try:
        with torch.no_grad():
            found = _tried(policy, inputs, device=device)
    except Exception as error:
        shapes = {slot: tuple(tensor.shape) for slot, tensor in inputs.items()}
        raise ConfigError(
            f"{where}: expected forward to take observations of shapes {shapes}, found that it raised "
            f"{told_with_place(error)}; correct the network"
        ) from error
    expected = f"(policy outputs {(CHECK_ROWS, outputs)}, values {(CHECK_ROWS,)}) for {CHECK_ROWS} observations"
    if not (isinstance(found, tuple) and len(found) == 2 and all(isinstance(part, torch.Tensor) for part in found)):
        raise ConfigError(f"{where}: expected forward to return {expected}, found a {type(found).__name__}")
    shapes_found = tuple(found[0].shape), tuple(found[1].shape)
    if shapes_found != ((CHECK_ROWS, outputs), (CHECK_ROWS,)):
        raise ConfigError(f"{where}: expected forward to return {expected}, found {shapes_found[0]}, {shapes_found[1]}")
    if not (found[0].is_floating_point() and found[1].is_floating_point()):
        raise ConfigError(f"{where}: expected forward to return floats, found {found[0].dtype}, {found[1].dtype}")


def _tried(policy: Policy, inputs: Mapping[str, torch.Tensor], *, device: torch.device) -> Any:
    """Return what the network gives for one step, without its hidden state once that has the declared shapes."""
    shapes = {key: (CHECK_ROWS, *shape) for key, shape in policy.hidden_shapes.items()}
    if not shapes:
        return policy.network(inputs)
    state = {key: torch.zeros(shape, device=device) for key, shape in shapes.items()}
    found = policy.network(inputs, state, torch.zeros((1, CHECK_ROWS), device=device))
    if not (isinstance(found, tuple) and len(found) == 3 and isinstance(found[2], Mapping)):
        raise TypeError(f"expected (policy outputs, values, hidden state), found a {type(found).__name__}")
    after = {key: tuple(part.shape) for key, part in found[2].items()}
    if after != shapes:
        raise TypeError(f"expected a hidden state of shapes {shapes}, found {after}")
    return found[:2]
