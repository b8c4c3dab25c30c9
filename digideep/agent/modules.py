"""The torch modules of every method: how they are built and tried, copies that predict, their tensors by name."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.errors import CheckpointError, ConfigError, NonFiniteError, one_line
from digideep.model.flat import lent
from digideep.model.observations import as_tensor
from digideep.utility.codec import DTYPES
from digideep.utility.constants import constant
from digideep.utility.imports import told_with_place
from digideep.utility.node import build

__all__ = [
    "CHECK_ROWS",
    "FrozenModule",
    "build_module",
    "check_finite",
    "check_floats",
    "load_named",
    "module_device",
    "named_arrays",
]

Array: TypeAlias = np.ndarray[Any, Any]

CHECK_ROWS = 3
"""Observations that a network is tried on when it is made."""

_FEW_ROWS = 16
_INFINITE = "_digideep_infinite_buffers"
_NO_VALUES = np.zeros(0, np.float32)


def build_module(
    model: Mapping[str, Any],
    *,
    arguments: Mapping[str, Any],
    seed: int,
    where: str,
    device: str,
    allowed: Sequence[str],
) -> nn.Module:
    """Return the module that the node `model` describes, made with further `arguments`, its weights drawn from `seed`.

    Raises:
        ConfigError: it is no torch module, or has a tensor that no array can hold.
    """
    # Networks draw their weights from the global generator; a run's own stream must not notice.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = build(model, where=where, allowed=tuple(allowed), **arguments)
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{where}: expected a torch.nn.Module, found a {type(made).__name__}")
    made = made.to(device)
    _check_dtypes(made, where=where)
    _note_infinities(made)
    return made


def _check_dtypes(module: nn.Module, *, where: str) -> None:
    """Refuse tensors that no array can hold, and so no checkpoint.

    Raises:
        ConfigError: there is one; the message names it.
    """
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, torch.Tensor) and str(tensor.dtype).removeprefix("torch.") not in DTYPES:
            raise ConfigError(
                f"{where}: expected weights and buffers of a type that checkpoints have, such as float32, found "
                f"{one_line(name, limit=120)!r} as {str(tensor.dtype).removeprefix('torch.')}; make it float32"
            )


def _note_infinities(module: nn.Module) -> None:
    """Have each part of a module keep what its buffers hold in which there are infinities, an attention mask say.

    A save refuses infinities, but for these. They stand in the parts themselves, so that copies have them too, and
    whoever makes the module again, a resume, notes the same.
    """
    for part in module.modules():
        held = {
            name: buffer.detach().cpu()
            for name, buffer in part.named_buffers(recurse=False)
            if name not in part._non_persistent_buffers_set and not nn.parameter.is_lazy(buffer)
        }
        infinite = {name: buffer.numpy().copy() for name, buffer in held.items() if bool(torch.isinf(buffer).any())}
        if infinite:
            vars(part)[_INFINITE] = infinite


def _noted_infinities(module: nn.Module) -> dict[str, Array]:
    """Return what `_note_infinities` found, by the names that `state_dict` has."""
    parts = module.named_modules(remove_duplicate=False)
    return {
        f"{path}.{name}" if path else name: array
        for path, part in parts
        for name, array in vars(part).get(_INFINITE, {}).items()
    }


def check_floats(module: nn.Module, *inputs: Any, shape: tuple[int, ...], name: str, where: str) -> None:
    """Try a module on inputs for `CHECK_ROWS` observations; `name` is what messages call it.

    Raises:
        ConfigError: it raises, or gives anything but floats of `shape`.
    """
    modes = [(part, part.training) for part in module.modules()]
    module.eval()  # in training some draw, and some keep statistics of batches
    try:
        with torch.no_grad():
            found = module(*inputs)
    except Exception as error:
        raise ConfigError(
            f"{where}: expected {name} to take {CHECK_ROWS} observations, found that it raised "
            f"{told_with_place(error)}; correct the network"
        ) from error
    for part, mode in modes:
        part.training = mode
    if not (isinstance(found, torch.Tensor) and tuple(found.shape) == shape and found.is_floating_point()):
        told = f"{tuple(found.shape)} {found.dtype}" if isinstance(found, torch.Tensor) else type(found).__name__
        raise ConfigError(
            f"{where}: expected {name} to return floats {shape}, found {told}; is it a network for another method?"
        )


class FrozenModule:
    """A copy of any module, in evaluation mode, that takes arrays and gives arrays.

    The bits of a row depend on the batch in most of torch's operations: matrix products, convolutions, activations
    that treat the end of an array in another way. So rows that must not notice each other are computed one by one.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = copy.deepcopy(module).eval().requires_grad_(False)
        self._device = module_device(module)

    def __call__(self, *inputs: Array | Mapping[str, Array], rowwise: bool) -> list[Array]:
        """Return what the module gives, a tensor `[B, ...]` or a tuple of some, as arrays.

        Args:
            inputs: arrays `[B, ...]`, or mappings of such.
            rowwise: whether each row is computed on its own, so that its result has the same bits in every batch.
        """
        tensors = [_each(part, lambda array: as_tensor(array, self._device)) for part in inputs]
        first = inputs[0]
        rows = len(next(iter(first.values())) if isinstance(first, Mapping) else first)
        with torch.no_grad(), _threads_for(1 if rowwise else rows):
            if not rowwise:
                return [tensor.cpu().numpy() for tensor in self._given(tensors)]
            single = [self._given([_each(part, itemgetter(slice(i, i + 1))) for part in tensors]) for i in range(rows)]
            return [torch.cat(parts).cpu().numpy() for parts in zip(*single, strict=True)]

    def _given(self, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        found = self._module(*inputs)
        return found if isinstance(found, tuple) else (found,)


@contextlib.contextmanager
def _threads_for(rows: int) -> Iterator[None]:
    """Have torch compute few rows in one thread: others gain little from it, and workers need the other cores.

    A rule on the number of rows: threads change bits.
    """
    threads = torch.get_num_threads()
    if threads == 1 or rows > _FEW_ROWS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _each(part: Any, change: Callable[[Any], Any]) -> Any:
    return {key: change(value) for key, value in part.items()} if isinstance(part, Mapping) else change(part)


def check_finite(name: str, outputs: Array, values: Array = _NO_VALUES, *, what: str = "policy outputs") -> None:
    """Check what the network of the agent `name` gave; `what` is what messages call the outputs.

    Raises:
        NonFiniteError: it gave NaN or infinity.
    """
    flat = outputs.ravel()
    # One bad number makes the sum of squares bad, which is quick; only then it is worth looking at each.
    with np.errstate(over="ignore"):
        is_finite = math.isfinite(flat.dot(flat) + values.dot(values))
    if is_finite:
        return
    for told, array in ((what, outputs), ("values", values)):
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            raise NonFiniteError(
                f"agents/{name}: expected finite {told}, found {array[tuple(bad[0])]} in row {bad[0][0]}; "
                f"the weights have diverged or an observation is out of range"
            )


def module_device(module: nn.Module) -> torch.device:
    """Return where a module's parameters lie; the CPU without any."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


def named_arrays(module: nn.Module, *, lends: bool = False) -> dict[str, Array]:
    """Return a module's parameters and buffers by name: copies or, with `lends`, the memory itself to be read only.

    A buffer that `build_module` made with infinities is marked, so that a save takes them.
    """
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
    arrays = {name: lent(array) if lends else array.copy() for name, array in arrays.items()}
    infinite = _noted_infinities(module)
    return arrays | {name: constant(arrays[name], made=made) for name, made in infinite.items() if name in arrays}


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
