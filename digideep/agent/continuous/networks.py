"""What methods with real actions share: their networks, and how passes through them are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from digideep.agent.continuous.crew import Crew
from digideep.agent.continuous.passes import (
    CriticPass,
    ModuleCritics,
    ModulePolicy,
    PackedCritics,
    PackedPolicy,
    PolicyPass,
    is_packable,
)
from digideep.agent.modules import CHECK_ROWS, build_module, check_floats, module_device
from digideep.errors import ConfigError
from digideep.model.actor_critics import CriticTowers, ObservationTower
from digideep.model.observations import as_tensor, zero_observations
from digideep.model.packed_towers import bits_of
from digideep.spec import EnvSpec
from digideep.utility.products import ProductThreads

__all__ = ["ActorCriticNetworks", "Passes", "build_actor_critics", "choose_passes", "neutral_threads"]


class ActorCriticNetworks(NamedTuple):
    """A policy `[B, outputs]` of observations, critics `[critics, B]` of observations and actions, a value `[B, 1]`.

    `value`, of observations alone, is None for methods without one.
    """

    policy: nn.Module
    critics: nn.Module
    value: nn.Module | None


class Passes(NamedTuple):
    """How a method gets through its networks: in words, whether by autograd through its losses, and the passes.

    `threads` are those that the passes may run themselves, or `products` with those of numpy. Passes through targets
    learn nothing; those of a part without a target are those of the part.
    """

    told: str
    is_reference: bool
    threads: int
    products: ProductThreads
    policy: PolicyPass
    critics: CriticPass
    value: PolicyPass | None
    target_policy: PolicyPass
    target_critics: CriticPass
    target_value: PolicyPass | None


def build_actor_critics(
    model: Mapping[str, Any],
    spec: EnvSpec,
    *,
    outputs: int,
    actions: int,
    critics: int,
    has_value: bool = False,
    last_bound: float | None = None,
    seed: int,
    where: str,
    device: str,
    allowed: Sequence[str],
) -> ActorCriticNetworks:
    """Return the networks that the node `model` describes, their weights drawn from `seed`.

    The node's class is made as `cls(config, observations=..., outputs=..., actions=..., critics=..., has_value=...,
    last_bound=...)` and has the modules `policy`, `critics` and, where it was asked for, `value`.

    Raises:
        ConfigError: it is no torch module, or its parts share weights that learn, or do not return what they must.
    """
    arguments = {
        "observations": dict(spec.observations),
        "outputs": outputs,
        "actions": actions,
        "critics": critics,
        "has_value": has_value,
        "last_bound": last_bound,
    }
    made = build_module(model, arguments=arguments, seed=seed, where=where, device=device, allowed=allowed)
    parts: dict[str, Any] = {name: getattr(made, name, None) for name in ActorCriticNetworks._fields}
    found = ActorCriticNetworks(**parts)
    wanted = ("policy", "critics", "value") if has_value else ("policy", "critics")
    missing = [name for name in wanted if not isinstance(getattr(found, name), nn.Module)]
    if missing:
        raise ConfigError(
            f"{where}: expected the modules {', '.join(wanted)} in {type(made).__name__}, found no {missing[0]}; "
            f"is it a network for another method?"
        )
    _check_apart({name: getattr(found, name) for name in wanted}, where=where)
    _check_shapes(found, spec, outputs=outputs, actions=actions, critics=critics, where=where)
    return found


def choose_passes(
    networks: ActorCriticNetworks,
    *,
    targets: Mapping[str, nn.Module],
    device: torch.device,
    replaced: Sequence[str],
    owner: str,
    rows: int,
) -> Passes:
    """Return the learner path by rule: nothing measured decides it.

    Where several threads of numpy's products give the same bits as one, they are used, else threads of our own, which
    always do and gain less.

    Args:
        networks: their parameters must have been made flat, those of the targets too.
        targets: by part: `policy`, `critic`, `value`.
        device: where they live.
        replaced: the losses that the agent's class `owner` overrides.
        rows: of a batch.
    """
    target_policy = targets.get("policy", networks.policy)
    target_critics = targets.get("critic", networks.critics)
    target_value = targets.get("value", networks.value)
    every = (networks.policy, networks.critics, networks.value, target_policy, target_critics, target_value)
    is_packed = device.type == "cpu" and is_packable(*every)
    in_numpy = is_packed and not replaced
    products = neutral_threads(networks, rows=rows) if in_numpy else ProductThreads(1)
    crew = Crew(1 if products.count > 1 else torch.get_num_threads())

    def policy_pass(module: Any) -> PolicyPass:
        return PackedPolicy(module, crew=crew) if is_packed else ModulePolicy(module, device=device)

    def critic_pass(module: Any) -> CriticPass:
        return PackedCritics(module, crew=crew) if is_packed else ModuleCritics(module, device=device)

    policy, critics = policy_pass(networks.policy), critic_pass(networks.critics)
    value = None if networks.value is None else policy_pass(networks.value)
    if replaced:
        told = f"reference: {owner} overrides {', '.join(replaced)}"
    elif is_packed:
        told = "packed: standard networks on the CPU, closed-form gradients in numpy"
    else:
        told = "fused: closed-form gradients of the losses, autograd through the networks only"
    return Passes(
        told=told,
        is_reference=bool(replaced),
        threads=max(crew.threads, products.count) if in_numpy else 1,
        products=products,
        policy=policy,
        critics=critics,
        value=value,
        target_policy=policy_pass(target_policy) if "policy" in targets else policy,
        target_critics=critic_pass(target_critics) if "critic" in targets else critics,
        target_value=policy_pass(target_value) if "value" in targets else value,
    )


def neutral_threads(networks: ActorCriticNetworks, *, rows: int) -> ProductThreads:
    """Return as many threads of numpy's products as torch has, or one where several would change a bit.

    Which bits a product gives depends on shapes, the library, its kernels and its threads: what networks that numpy
    can do give for a batch of `rows` is compared. Gradients must be views of a flat buffer, and are 0 afterwards.
    """
    threads = ProductThreads(torch.get_num_threads())
    if threads.count == 1:
        return threads
    modules = [module for module in networks if isinstance(module, (ObservationTower, CriticTowers))]
    alone = [_bits_of(module, rows=rows) for module in modules]
    with threads:
        together = [_bits_of(module, rows=rows) for module in modules]
    for parameter in (parameter for module in modules for parameter in module.parameters()):
        if parameter.grad is not None:
            parameter.grad.zero_()
    return threads if alone == together else ProductThreads(1)


def _bits_of(module: ObservationTower | CriticTowers, *, rows: int) -> list[bytes]:
    return bits_of(module.towers, rows=rows, first=module.inputs.size if isinstance(module, CriticTowers) else 0)


def _check_apart(modules: Mapping[str, nn.Module], *, where: str) -> None:
    """Refuse weights that two optimisers would move."""
    owners: dict[nn.Parameter, str] = {}
    for part, module in modules.items():
        for name, parameter in module.named_parameters():
            owner = owners.setdefault(parameter, part)
            if owner != part and parameter.requires_grad:
                raise ConfigError(
                    f"{where}: expected {owner} and {part} with weights of their own, found {name!r} in both; "
                    f"give each a copy"
                )


def _check_shapes(
    networks: ActorCriticNetworks, spec: EnvSpec, *, outputs: int, actions: int, critics: int, where: str
) -> None:
    """Try every network on zeros.

    Raises:
        ConfigError: one raises, or gives another shape than it must.
    """
    device = module_device(networks.policy)
    zeros = zero_observations(spec.observations, CHECK_ROWS)
    inputs = {slot: as_tensor(array, device) for slot, array in zeros.items()}
    taken = as_tensor(np.zeros((CHECK_ROWS, actions), np.float32), device)
    check_floats(networks.policy, inputs, shape=(CHECK_ROWS, outputs), name="policy", where=where)
    check_floats(networks.critics, inputs, taken, shape=(critics, CHECK_ROWS), name="critics", where=where)
    if networks.value is not None:
        check_floats(networks.value, inputs, shape=(CHECK_ROWS, 1), name="value", where=where)
