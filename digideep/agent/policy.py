"""Policies: a network, the distribution over actions it feeds, and their parameters by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.errors import CheckpointError, ConfigError, one_line
from digideep.model.flat import lent
from digideep.model.heads import ActionHeads, Evaluation
from digideep.model.observations import as_tensor, zero_observations
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.imports import BUILT_IN
from digideep.utility.node import build

__all__ = ["Policy", "build_policy", "load_named", "named_arrays"]

Array: TypeAlias = np.ndarray[Any, Any]

_CHECK_ROWS = 3


class Policy(nn.Module):
    """A network that gives policy outputs and values, and a `log_std` where actions are real numbers."""

    log_std: nn.Parameter | None

    def __init__(self, network: nn.Module, heads: ActionHeads, *, log_std_init: float) -> None:
        super().__init__()
        self.network = network
        self.heads = heads
        self.log_std = nn.Parameter(torch.full((heads.log_stds,), log_std_init)) if heads.log_stds else None

    def forward(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return policy outputs `[B, heads.outputs]` and values `[B]`."""
        outputs, values = self.network(observations)
        return outputs, values

    def evaluate(self, observations: Mapping[str, torch.Tensor], actions: Mapping[str, torch.Tensor]) -> Evaluation:
        """Return log-probabilities, entropies and values, for autograd."""
        outputs, values = self(observations)
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
) -> Policy:
    """Return a policy with the network that the node `model` describes, its weights drawn from `seed`.

    Raises:
        SpaceError: a space that the policy cannot do.
        ConfigError: the network is no torch module, or does not return what it must.
    """
    heads = ActionHeads(spec.actions)
    # Networks draw their weights from the global generator; a run's own stream must not notice.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build(
            model, where=where, allowed=tuple(allowed), observations=dict(spec.observations), outputs=heads.outputs
        )
    if not isinstance(network, nn.Module):
        raise ConfigError(f"{where}: expected a torch.nn.Module, found a {type(network).__name__}")
    policy = Policy(network, heads, log_std_init=log_std_init).to(device)
    _check_network(policy, spec.observations, outputs=heads.outputs, where=where)
    return policy


def named_arrays(module: nn.Module, *, lends: bool = False) -> dict[str, Array]:
    """Return a module's parameters and buffers by name: copies or, with `lends`, the memory itself to be read only."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
    return {name: lent(array) if lends else array.copy() for name, array in arrays.items()}


def load_named(module: nn.Module, arrays: Mapping[str, Array], *, where: str) -> None:
    """Copy arrays into a module's parameters and buffers, all or none.

    Raises:
        CheckpointError: names or shapes differ; one line says every missing, surplus and misshapen one.
    """
    own = module.state_dict()
    problems = [f"missing {name}" for name in own if name not in arrays]
    problems += [f"surplus {one_line(name, limit=120)}" for name in arrays if name not in own]
    problems += [
        f"{name} has shape {tuple(arrays[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in arrays and tuple(arrays[name].shape) != tuple(tensor.shape)
    ]
    if problems:
        raise CheckpointError(f"{where}: expected the tensors of this network, found others: {'; '.join(problems)}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(torch.from_numpy(np.array(arrays[name])))


def _check_network(policy: Policy, observations: Mapping[str, ArraySpec], *, outputs: int, where: str) -> None:
    device = next((parameter.device for parameter in policy.parameters()), torch.device("cpu"))
    zeros = zero_observations(observations, _CHECK_ROWS)
    inputs = {slot: as_tensor(array, device) for slot, array in zeros.items()}
    policy.eval()
    try:
        with torch.no_grad():
            found = policy.network(inputs)
    except Exception as error:
        shapes = {slot: tuple(tensor.shape) for slot, tensor in inputs.items()}
        raise ConfigError(
            f"{where}: forward raised {type(error).__name__} for observations of shapes {shapes}: {one_line(error)}"
        ) from error
    expected = f"(policy outputs {(_CHECK_ROWS, outputs)}, values {(_CHECK_ROWS,)}) for {_CHECK_ROWS} observations"
    if not (isinstance(found, tuple) and len(found) == 2 and all(isinstance(part, torch.Tensor) for part in found)):
        raise ConfigError(f"{where}: expected forward to return {expected}, found a {type(found).__name__}")
    shapes_found = tuple(found[0].shape), tuple(found[1].shape)
    if shapes_found != ((_CHECK_ROWS, outputs), (_CHECK_ROWS,)):
        raise ConfigError(f"{where}: expected forward to return {expected}, found {shapes_found[0]}, {shapes_found[1]}")
    if not (found[0].is_floating_point() and found[1].is_floating_point()):
        raise ConfigError(f"{where}: expected forward to return floats, found {found[0].dtype}, {found[1].dtype}")
