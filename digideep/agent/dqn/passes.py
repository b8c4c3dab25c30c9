"""Networks of action values: how they are built, and passes through them, numpy in and numpy out.

Packed passes are numpy by hand, for standard networks on the CPU; the others are autograd through any module on any
device. Either puts gradients into the `.grad` of the parameters, replacing what was there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.agent.modules import CHECK_ROWS, FrozenModule, build_module, check_floats, module_device
from digideep.model.noisy import FrozenNoisyTowers, NoisyTowers, PackedNoisyTower, can_pack_noisy
from digideep.model.observations import as_tensor, flat_rows, zero_observations
from digideep.model.packed_towers import FrozenTowers, PackedTower, can_pack
from digideep.model.q_network import QNetwork
from digideep.model.towers import Towers
from digideep.spec import EnvSpec
from digideep.utility.imports import BUILT_IN

__all__ = [
    "FrozenValues",
    "ModuleValues",
    "PackedValues",
    "ValuePass",
    "ValuePasses",
    "build_q_network",
    "choose_value_passes",
    "noise_size",
]

Array: TypeAlias = np.ndarray[Any, Any]
Observations: TypeAlias = Mapping[str, Array]


class ValuePass(Protocol):
    """A network of action values."""

    def __call__(self, observations: Observations, noise: Array) -> Array:
        """Return values `[B, A]` with noise `[noise_size]`, and keep what `backward` needs until the next call."""
        ...

    def backward(self, by_values: Array) -> None:
        """Write the parameters' gradient from the derivatives `[B, A]` by what the last call returned."""
        ...


class ValuePasses(NamedTuple):
    """How a method gets through its networks: in words, whether by autograd through its loss, and the passes.

    `is_packable` says whether numpy can do what the networks do, on the CPU.
    """

    told: str
    is_reference: bool
    is_packable: bool
    values: ValuePass
    target_values: ValuePass


def noise_size(network: nn.Module) -> int:
    """Return how many standard normal numbers make the noise of a network's weights; 0 without noise."""
    return int(getattr(network, "noise_size", 0))


def build_q_network(
    model: Mapping[str, Any],
    spec: EnvSpec,
    *,
    outputs: int,
    seed: int,
    where: str,
    device: str,
    allowed: Sequence[str] = BUILT_IN,
) -> nn.Module:
    """Return the network that the node `model` describes, its weights drawn from `seed`.

    The node's class is made as `cls(config, observations=..., outputs=...)`, and `forward` returns `[B, outputs]` for
    observations by slot. One with a `noise_size` gets a noise of that many numbers as well, or None.

    Raises:
        ConfigError: it is no torch module, or does not return what it must.
    """
    arguments = {"observations": dict(spec.observations), "outputs": outputs}
    network = build_module(model, arguments=arguments, seed=seed, where=where, device=device, allowed=allowed)
    zeros = zero_observations(spec.observations, CHECK_ROWS)
    inputs = {slot: as_tensor(array, module_device(network)) for slot, array in zeros.items()}
    check_floats(network, inputs, shape=(CHECK_ROWS, outputs), name="forward", where=where)
    return network


def choose_value_passes(
    network: nn.Module, *, target: nn.Module, device: torch.device, replaced: Sequence[str], owner: str
) -> ValuePasses:
    """Return the learner path by rule: nothing measured decides it.

    Args:
        network: learns; the parameters of both must have been made flat.
        target: of the same class.
        device: where they live.
        replaced: the losses that the agent's class `owner` overrides.
    """
    is_packed = device.type == "cpu" and _is_packable(network)  # seen once: it looks at every parameter
    if replaced:
        told = f"reference: {owner} overrides {', '.join(replaced)}"
    elif is_packed:
        told = "packed: a standard network on the CPU, closed-form gradients in numpy"
    else:
        told = "fused: closed-form gradient of the loss, autograd through the network only"
    passes = [PackedValues(n) if is_packed else ModuleValues(n) for n in (network, target)]
    return ValuePasses(told, bool(replaced), is_packed, *passes)


def _is_packable(network: nn.Module) -> bool:
    """Whether numpy can do what a network does."""
    return type(network) is QNetwork and all(can_pack(s) or can_pack_noisy(s) for s in network.streams.values())


class PackedValues:
    """A standard network by hand.

    For q = v + a - mean(a) with dL/dq = g: dL/dv is the sum of a row of g, dL/da is g minus its mean over the row.
    """

    def __init__(self, network: nn.Module) -> None:
        assert isinstance(network, QNetwork)
        self._specs = network.observations
        self._towers = [_packed(stream) for stream in network.streams.values()]
        self._sizes = [noise_size(stream) for stream in network.streams.values()]
        self._dtype = next(network.parameters()).detach().numpy().dtype

    def __call__(self, observations: Observations, noise: Array) -> Array:
        """Return values `[B, A]`."""
        rows = flat_rows(observations, self._specs, dtype=self._dtype)
        parts = zip(self._towers, _split(noise, self._sizes), strict=True)
        return _dueling([_forward(tower, rows, part) for tower, part in parts])

    def backward(self, by_values: Array) -> None:
        """Write the parameters' gradient."""
        if len(self._towers) == 1:
            self._towers[0].backward(by_values)
            return
        advantages, value = self._towers
        advantages.backward(by_values - by_values.mean(axis=1, keepdims=True))
        value.backward(by_values.sum(axis=1, keepdims=True))


class ModuleValues:
    """Autograd through any network."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._device = module_device(network)
        self._noise_size = noise_size(network)
        self._values: torch.Tensor | None = None

    def __call__(self, observations: Observations, noise: Array) -> Array:
        """Return values `[B, A]`."""
        inputs = {slot: as_tensor(array, self._device) for slot, array in observations.items()}
        if self._noise_size:
            self._values = self._network(inputs, as_tensor(noise, self._device))
        else:
            self._values = self._network(inputs)
        return np.asarray(self._values.detach().cpu().numpy())

    def backward(self, by_values: Array) -> None:
        """Write the parameters' gradient."""
        assert self._values is not None
        # In place, since gradients are views of a flat buffer.
        torch._foreach_zero_([p.grad for p in self._network.parameters() if p.grad is not None])
        self._values.backward(as_tensor(by_values, self._device))  # type: ignore[no-untyped-call]
        self._values = None


class FrozenValues:
    """A copy of a network that only predicts.

    Args:
        network: of any class.
        in_numpy: whether it is a standard one on the CPU, see `ValuePasses`.

    Attributes:
        noise_size: numbers that make the noise of one row; 0 without noise.
    """

    def __init__(self, network: nn.Module, *, in_numpy: bool) -> None:
        self.noise_size = noise_size(network)
        self._streams: list[FrozenTowers] | None = None
        if in_numpy:
            assert isinstance(network, QNetwork)
            self._specs = network.observations
            self._sizes = [noise_size(stream) for stream in network.streams.values()]
            self._streams = [_frozen(stream) for stream in network.streams.values()]
        else:
            self._network = FrozenModule(network)

    def __call__(self, observations: Observations, noise: Array | None = None, *, rowwise: bool) -> Array:
        """Return values `[B, A]` for normalised observations.

        Args:
            observations: by slot.
            noise: `[B, noise_size]`; None: none.
            rowwise: whether each row is computed on its own, so that its result has the same bits in every batch.
        """
        if self._streams is not None:
            rows = flat_rows(observations, self._specs)
            if noise is None:
                return _dueling([stream(rows, rowwise=rowwise)[0] for stream in self._streams])
            parts = zip(self._streams, _split(noise, self._sizes), strict=True)
            return _dueling(
                [stream.noisy(rows, part, rowwise=rowwise) for stream, part in parts]  # type: ignore[attr-defined]
            )
        inputs = (observations,) if noise is None else (observations, noise)
        (values,) = self._network(*inputs, rowwise=rowwise)
        return values


def _split(noise: Array, sizes: Sequence[int]) -> list[Array]:
    """Return the parts of noise `[..., sum of sizes]` that belong to each stream."""
    if len(sizes) == 1:
        return [noise]
    return [noise[..., : sizes[0]], noise[..., sizes[0] :]]


def _dueling(streams: Sequence[Array]) -> Array:
    """Return action values for those of the one stream, or for advantages and value."""
    if len(streams) == 1:
        return streams[0]
    advantages, value = streams
    return np.asarray(value + advantages - advantages.mean(axis=1, keepdims=True))


def _packed(stream: nn.Module) -> PackedTower | PackedNoisyTower:
    if isinstance(stream, NoisyTowers):
        return PackedNoisyTower(stream)
    assert isinstance(stream, Towers)
    return PackedTower(stream)


def _forward(tower: PackedTower | PackedNoisyTower, rows: Array, noise: Array) -> Array:
    return tower.forward(rows, noise) if isinstance(tower, PackedNoisyTower) else tower.forward(rows)


def _frozen(stream: nn.Module) -> FrozenTowers:
    if isinstance(stream, NoisyTowers):
        return FrozenNoisyTowers(stream)
    assert isinstance(stream, Towers)
    return FrozenTowers(stream)
