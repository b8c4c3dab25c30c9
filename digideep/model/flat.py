"""Parameters and gradients as views of two flat buffers, so that clipping and optimisers each touch one tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from digideep.errors import CheckpointError, ConfigError, ShapeError

__all__ = ["AdamState", "FlatAdam", "FlatOptimiser", "FlatParameters", "FlatRMSprop", "RMSpropState", "lent"]

_BETA_1, _BETA_2 = 0.9, 0.999


def lent(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the same memory as an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


class _Place(NamedTuple):
    parameter: nn.Parameter
    start: int
    stop: int
    shape: torch.Size


class FlatParameters:
    """The trainable parameters of a module, moved into one buffer, and their gradients in another.

    The module works as before: each parameter is a view of `values` and its `.grad` a view of `gradients`, into which
    backward passes add; `load_state_dict` copies into the views. Names are those of `named_parameters`.
    """

    def __init__(self, module: nn.Module) -> None:
        named = [(name, value) for name, value in module.named_parameters() if value.requires_grad]
        _check_alike(named)
        first = named[0][1]
        total = sum(value.numel() for _, value in named)
        self.values = torch.empty(total, dtype=first.dtype, device=first.device)
        self.gradients = torch.zeros_like(self.values)
        self._safe = math.sqrt(torch.finfo(first.dtype).max)  # no number has a square beyond its type below this norm
        self._in_numpy = self.gradients.numpy() if self.gradients.device.type == "cpu" else None
        self._places: dict[str, _Place] = {}
        start = 0
        for name, value in named:
            stop = start + value.numel()
            self.values[start:stop].copy_(value.detach().reshape(-1))
            value.data = self.values[start:stop].view(value.shape)
            value.grad = self.gradients[start:stop].view(value.shape)
            self._places[name] = _Place(value, start, stop, value.shape)
            start = stop

    def check(self) -> None:
        """Check that every parameter and its gradient still are the views they were made.

        Raises:
            ShapeError: something replaced one; gradients would be lost without a word.
        """
        size = self.values.element_size()
        values, gradients = self.values.data_ptr(), self.gradients.data_ptr()
        for name, (parameter, start, _, _) in self._places.items():
            gradient = parameter.grad
            if (
                parameter.data_ptr() != values + start * size
                or gradient is None
                or gradient.data_ptr() != gradients + start * size
            ):
                raise ShapeError(
                    f"parameter {name!r}: expected a view of the flat buffer, found other memory; "
                    f"change parameters in place and leave their .grad alone"
                )

    def split(self, flat: torch.Tensor, *, lends: bool = False) -> dict[str, np.ndarray[Any, Any]]:
        """Return the parts of a flat tensor by parameter name: copies or, with `lends`, the memory itself to read."""
        array = flat.detach().cpu().numpy()
        parts = {name: array[p.start : p.stop].reshape(p.shape) for name, p in self._places.items()}
        return {name: lent(part) if lends else part.copy() for name, part in parts.items()}

    def join(self, parts: Mapping[str, np.ndarray[Any, Any]], *, where: str) -> torch.Tensor:
        """Return the flat tensor whose parts by parameter name are given.

        Raises:
            CheckpointError: names or shapes differ.
        """
        expected = {name: tuple(place.shape) for name, place in self._places.items()}
        found = {name: tuple(part.shape) for name, part in parts.items()}
        if expected != found:
            wrong = sorted(set(expected.items()) ^ set(found.items()))
            raise CheckpointError(f"{where}: expected one array for each parameter, found other ones: {wrong[0][0]!r}")
        flat = torch.empty_like(self.values)
        for name, place in self._places.items():
            flat[place.start : place.stop].copy_(torch.from_numpy(np.array(parts[name]).reshape(-1)))
        return flat

    def clip_gradients(self, max_norm: float | None) -> torch.Tensor | float:
        """Scale the gradients to a norm of at most `max_norm`; return the norm they had.

        On the CPU the norm is a float, elsewhere a tensor that nobody has waited for.
        """
        array = self._in_numpy
        if array is not None:
            with np.errstate(over="ignore"):
                norm = math.sqrt(float(np.dot(array, array)))
            if not math.isfinite(norm):  # squares leave float32 long before the numbers do
                wide = array.astype(np.float64)
                norm = math.sqrt(float(np.dot(wide, wide)))
            if max_norm is not None and norm > max_norm:
                array *= array.dtype.type(max_norm / norm)
            return norm
        norm_tensor: torch.Tensor = torch.linalg.vector_norm(self.gradients)
        if max_norm is not None:
            self.gradients.mul_((max_norm / norm_tensor).clamp(max=1.0))
        return norm_tensor

    def problem(self, norm: float) -> str:
        """Return why an optimiser must not get the gradient that stands here, in words; nothing where it may.

        The squares that optimisers keep would become infinite, without an error, where a number is greater than the
        root of the greatest there is: the weights would not move any more.

        Args:
            norm: that `clip_gradients` returned.
        """
        if norm <= self._safe:
            return ""
        if not math.isfinite(norm):
            return f"gradient, found norm {norm}"
        if float(self.gradients.abs().max()) <= self._safe:
            return ""
        kind = str(self.gradients.dtype).removeprefix("torch.")
        return f"gradient, found norm {norm:.3g}, too large for squares in {kind} (a max_grad_norm bounds it),"


class FlatOptimiser(Protocol):
    """An optimiser of flat parameters; its state is a named tuple of plain data, of the type `state_type`."""

    state_type: ClassVar[type[Any]]

    def step(self, lr: float, *, skip: torch.Tensor | None = None) -> None:
        """Move the parameters by one step; where the scalar `skip` is 1 nothing moves, and nobody waits to know."""

    def state(self, *, lends: bool = False) -> Any:
        """Return the state: a copy or, with `lends`, arrays of its own memory to be read only."""

    def load_state(self, state: Any, *, where: str) -> None:
        """Take over a copy of a state.

        Raises:
            CheckpointError: it is not one of these parameters.
        """


class AdamState(NamedTuple):
    """The state of `FlatAdam` as plain data: steps taken, and both moments by parameter name."""

    step: int
    exp_avg: dict[str, np.ndarray[Any, Any]]
    exp_avg_sq: dict[str, np.ndarray[Any, Any]]


class FlatAdam:
    """Adam over one flat tensor, in one fused kernel.

    Source: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.
    """

    state_type: ClassVar[type[AdamState]] = AdamState

    def __init__(self, flat: FlatParameters, *, eps: float) -> None:
        self._flat = flat
        self._eps = eps
        device = flat.values.device
        self._state: dict[str, torch.Tensor] = {
            "step": torch.zeros((), dtype=torch.float32, device=device),
            "exp_avg": torch.zeros_like(flat.values),
            "exp_avg_sq": torch.zeros_like(flat.values),
        }

    def step(self, lr: float, *, skip: torch.Tensor | None = None) -> None:
        """Move the parameters by one step; where the scalar `skip` is 1 nothing moves, and nobody waits to know."""
        # The kernel itself: the function around it takes as long again, and the class, or its module, imports torch's
        # compiler, which takes longer than torch itself. Nothing here requires a gradient.
        state = self._state
        state["step"] += 1.0
        torch._fused_adam_(
            [self._flat.values],
            [self._flat.gradients],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=lr,
            beta1=_BETA_1,
            beta2=_BETA_2,
            weight_decay=0.0,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
            found_inf=skip,
        )
        if skip is not None:
            state["step"] -= skip

    def state(self, *, lends: bool = False) -> AdamState:
        """Return the state: a copy or, with `lends`, arrays of its own memory to be read only."""
        return AdamState(
            step=int(self._state["step"].item()),
            exp_avg=self._flat.split(self._state["exp_avg"], lends=lends),
            exp_avg_sq=self._flat.split(self._state["exp_avg_sq"], lends=lends),
        )

    def load_state(self, state: AdamState, *, where: str) -> None:
        """Take over a copy of a state.

        Raises:
            CheckpointError: it is not one of these parameters.
        """
        exp_avg = self._flat.join(state.exp_avg, where=f"{where}/exp_avg")
        exp_avg_sq = self._flat.join(state.exp_avg_sq, where=f"{where}/exp_avg_sq")
        self._state["step"].fill_(float(state.step))
        self._state["exp_avg"].copy_(exp_avg)
        self._state["exp_avg_sq"].copy_(exp_avg_sq)


class RMSpropState(NamedTuple):
    """The state of `FlatRMSprop` as plain data: the mean square of each gradient, by parameter name."""

    square_avg: dict[str, np.ndarray[Any, Any]]


class FlatRMSprop:
    """RMSprop over one flat tensor, in a few operations on the whole of it: torch has no fused kernel for it.

    With v the mean square of the gradients, 0 at the start: v = alpha v + (1 - alpha) g^2, and the parameters move by
    -lr g / (sqrt(v) + eps). Epsilon is added to the root, as torch does; the source adds it under the root.

    Source: Mnih et al. 2016, arXiv:1602.01783, section 4, "Optimization", after Tieleman and Hinton 2012.
    """

    state_type: ClassVar[type[RMSpropState]] = RMSpropState

    def __init__(self, flat: FlatParameters, *, alpha: float, eps: float) -> None:
        self._flat = flat
        self._alpha = alpha
        self._eps = eps
        self._square_avg = torch.zeros_like(flat.values)
        self._root = torch.empty_like(flat.values)  # what a step works with; nothing of it is used by the next

    def step(self, lr: float, *, skip: torch.Tensor | None = None) -> None:
        """Move the parameters by one step; where the scalar `skip` is 1 nothing moves, and nobody waits to know."""
        values, square_avg = self._flat.values, self._square_avg
        before = None if skip is None else (values.clone(), square_avg.clone())
        gradients = self._flat.gradients
        square_avg.mul_(self._alpha).addcmul_(gradients, gradients, value=1.0 - self._alpha)
        root = torch.sqrt(square_avg, out=self._root).add_(self._eps)
        values.addcdiv_(gradients, root, value=-lr)
        if skip is not None and before is not None:
            for tensor, kept in zip((values, square_avg), before, strict=True):
                tensor.copy_(torch.where(skip > 0.0, kept, tensor))

    def state(self, *, lends: bool = False) -> RMSpropState:
        """Return the state: a copy or, with `lends`, arrays of its own memory to be read only."""
        return RMSpropState(square_avg=self._flat.split(self._square_avg, lends=lends))

    def load_state(self, state: RMSpropState, *, where: str) -> None:
        """Take over a copy of a state.

        Raises:
            CheckpointError: it is not one of these parameters.
        """
        self._square_avg.copy_(self._flat.join(state.square_avg, where=f"{where}/square_avg"))


def _check_alike(named: list[tuple[str, nn.Parameter]]) -> None:
    if not named:
        raise ConfigError("network: expected parameters that can be trained, found none")
    first_name, first = named[0]
    for name, value in named:
        if value.dtype != first.dtype or value.device != first.device:
            raise ConfigError(
                f"network: expected parameters of one dtype on one device, found {first_name!r} as {first.dtype} on "
                f"{first.device} and {name!r} as {value.dtype} on {value.device}"
            )
