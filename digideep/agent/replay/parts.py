"""The parameters that one optimiser moves: one buffer, its gradient, the bound of that gradient, and the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from digideep.agent.base import FlatArray
from digideep.errors import NonFiniteError
from digideep.model.flat import AdamState, FlatAdam, FlatParameters
from digideep.utility.differences import check_parts

__all__ = ["Part"]


class Part:
    """Parameters with one gradient and one Adam.

    Args:
        module: all of its parameters, which become views of one buffer.
        eps: of Adam.
        max_grad_norm: bound of the gradient's norm; None: none.
    """

    def __init__(self, module: nn.Module, *, eps: float, max_grad_norm: float | None) -> None:
        self.flat = FlatParameters(module)
        self._adam = FlatAdam(self.flat, eps=eps)
        self._max_grad_norm = max_grad_norm

    @property
    def values(self) -> FlatArray:
        """Return the parameters, the buffer itself."""
        return self.flat.values

    @property
    def gradients(self) -> FlatArray:
        """Return the gradient, the buffer itself."""
        return self.flat.gradients

    def apply(self, gradient: FlatArray, *, lr: float, refusal: str) -> float:
        """Clip a gradient, take a step of Adam, and return the norm that the gradient had.

        Raises:
            NonFiniteError: the gradient, or a square in it, is not finite; nothing has moved. The message is `refusal`
                with `{found}` filled in.
        """
        if gradient is not self.flat.gradients:
            self.flat.gradients.copy_(gradient)
        norm = float(self.flat.clip_gradients(self._max_grad_norm))
        if found := self.flat.problem(norm):
            raise NonFiniteError(refusal.format(found=found))
        self._adam.step(lr)
        return norm

    def state(self, *, lends: bool = False) -> dict[str, Any]:
        """Return the state of the optimiser as plain data: a copy or, with `lends`, its own memory to be read only."""
        return self._adam.state(lends=lends)._asdict()

    def load_state(self, state: Mapping[str, Any], *, where: str) -> None:
        """Take over what `state` returned.

        Raises:
            CheckpointError: it is not that of these parameters.
        """
        check_parts(state, AdamState._fields, where=where)
        self._adam.load_state(AdamState(**state), where=where)
