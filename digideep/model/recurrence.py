"""Recurrent cells over sequences in which episodes begin, with gradients through time in closed form.

A cell takes rows `[L * S, inputs]`, those of one step side by side, the state before the first step `[S, units]`, and
masks `[L, S]`: where a mask is 0 an episode begins, and the state is set to zeros before that step is taken. Products
with the inputs are done for all steps at once; only what depends on the state goes step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["GRU", "LSTM", "RecurrentCell", "make_cell"]


class RecurrentCell(nn.Module):
    """Weights of a cell: `[gates * units, inputs]`, `[gates * units, units]` and two biases, as in torch's cells.

    They begin orthogonal, the biases at 0 (Huang et al. 2022, "The 37 implementation details of proximal policy
    optimization", section on LSTM).

    Attributes:
        hidden_shapes: shape of each part of the hidden state for one environment, by key.
        size: numbers that come out of a step.
    """

    gates: int
    keys: tuple[str, ...]

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.size = units
        self.hidden_shapes = dict.fromkeys(self.keys, (units,))
        rows = self.gates * units
        self.weight_ih = nn.Parameter(nn.init.orthogonal_(torch.empty(rows, inputs)))
        self.weight_hh = nn.Parameter(nn.init.orthogonal_(torch.empty(rows, units)))
        self.bias_ih, self.bias_hh = (nn.Parameter(torch.zeros(rows)) for _ in range(2))

    def forward(
        self, inputs: torch.Tensor, hidden_state: Mapping[str, torch.Tensor], masks: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return what comes out of every step, `[L * S, units]`, and the state after the last, without a gradient."""
        length, sequences = masks.shape
        gates = nn.functional.linear(inputs, self.weight_ih, self.bias_ih).view(length, sequences, -1)
        keep = masks.to(gates.dtype).unsqueeze(-1)
        state = [hidden_state[key].to(gates.dtype) for key in self.keys]
        outputs, after = self.unroll(gates, state, keep)
        return outputs.reshape(length * sequences, self.size), dict(zip(self.keys, after, strict=True))

    def unroll(
        self, gates: torch.Tensor, state: list[torch.Tensor], keep: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return outputs `[L, S, units]` and the state after the last step.

        Args:
            gates: `[L, S, gates * units]`, the part of the gates that comes from the inputs.
            state: each part `[S, units]`, in the order of `keys`.
            keep: `[L, S, 1]`, the masks.
        """
        raise NotImplementedError


class GRU(RecurrentCell):
    """Gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), the reset gate behind the product as in torch and cuDNN.

    With x and h the parts of the gates that come from inputs and state: r = sigmoid(x_r + h_r), z = sigmoid(x_z + h_z),
    n = tanh(x_n + r h_n), and the next state is n + z (h - n).
    """

    gates = 3
    keys = ("hidden",)

    def unroll(
        self, gates: torch.Tensor, state: list[torch.Tensor], keep: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return outputs `[L, S, units]` and the state after the last step."""
        outputs: torch.Tensor = _GRU.apply(gates, state[0], keep, self.weight_hh, self.bias_hh)  # type: ignore[no-untyped-call]
        return outputs, [outputs[-1].detach()]


class LSTM(RecurrentCell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; with forget gates, Gers et al. 2000).

    With a the gates: c' = sigmoid(a_f) c + sigmoid(a_i) tanh(a_g), and what comes out is sigmoid(a_o) tanh(c').
    """

    gates = 4
    keys = ("hidden", "cell")

    def unroll(
        self, gates: torch.Tensor, state: list[torch.Tensor], keep: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return outputs `[L, S, units]` and the state after the last step."""
        outputs, cell = _LSTM.apply(gates, *state, keep, self.weight_hh, self.bias_hh)  # type: ignore[no-untyped-call]
        return outputs, [outputs[-1].detach(), cell]


def make_cell(kind: str, inputs: int, units: int) -> RecurrentCell:
    """Return the cell that a configuration calls `gru` or `lstm`."""
    return {"gru": GRU, "lstm": LSTM}[kind](inputs, units)


class _GRU(torch.autograd.Function):
    """The recurrence of a GRU.

    With g = dL/dh' at a step: dn = g (1 - z), dz = g (h_before - n), and dL/dh_before = g z + (gradients of the parts
    of the gates that come from the state) W. The gradient of W is one product over all steps.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: torch.Tensor,
        hidden: torch.Tensor,
        keep: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
    ) -> torch.Tensor:
        length, rows, units = gates.shape[0], *hidden.shape
        outputs, before = (gates.new_empty(length, rows, units) for _ in range(2))
        recurrent, activated = torch.empty_like(gates), torch.empty_like(gates)  # of which r, z and n
        transposed = weight.t()
        # Views of every step, made at once: one at a time they would take as long as the arithmetic.
        steps = zip(
            *_steps(keep, before, recurrent, outputs),
            *_steps(*(part[..., : 2 * units] for part in (gates, recurrent, activated))),
            *_steps(*(part[..., 2 * units :] for part in (gates, recurrent, activated))),
            *_steps(activated[..., :units], activated[..., units : 2 * units]),
            strict=True,
        )
        for kept, begun, parts, output, x_both, h_both, both, x_n, h_n, n, r, z in steps:
            torch.mul(hidden, kept, out=begun)
            torch.addmm(bias, begun, transposed, out=parts)
            torch.add(x_both, h_both, out=both).sigmoid_()
            torch.addcmul(x_n, r, h_n, out=n).tanh_()
            hidden = torch.lerp(n, begun, z, out=output)
        ctx.save_for_backward(keep, weight, before, activated, recurrent)
        return outputs

    @staticmethod
    def backward(ctx: Any, by_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        keep, weight, before, activated, recurrent = ctx.saved_tensors
        length, rows, units = before.shape
        by_inputs, by_recurrent = torch.empty_like(activated), torch.empty_like(activated)
        r, z, n = torch.split(activated, units, dim=-1)
        # Factors that do not depend on what comes from later steps, at once; of r and n per gradient of n.
        through = torch.empty_like(activated)
        torch.mul((1.0 - z) * (1.0 - n * n), recurrent[..., 2 * units :] * r * (1.0 - r), out=through[..., :units])
        torch.mul(before - n, z * (1.0 - z), out=through[..., units : 2 * units])
        torch.mul(1.0 - z, 1.0 - n * n, out=through[..., 2 * units :])
        steps = zip(
            *_steps(by_outputs, through.view(length, rows, 3, units), by_inputs.view(length, rows, 3, units)),
            *_steps(by_inputs[..., : 2 * units], by_inputs[..., 2 * units :], by_recurrent),
            *_steps(by_recurrent[..., : 2 * units], by_recurrent[..., 2 * units :], r, z, keep),
            strict=True,
        )
        gradient = by_outputs.new_zeros(rows, units)
        for given, factors, three, both, by_n, parts, h_both, h_n, reset, update, kept in reversed(list(steps)):
            gradient = gradient + given
            torch.mul(factors, gradient.unsqueeze(1), out=three)
            h_both.copy_(both)
            torch.mul(by_n, reset, out=h_n)
            gradient = torch.addmm(gradient * update, parts, weight).mul_(kept)
        flat = by_recurrent.flatten(0, 1)
        return by_inputs, gradient, None, flat.t() @ before.flatten(0, 1), flat.sum(0)


class _LSTM(torch.autograd.Function):
    """The recurrence of an LSTM.

    With d = dL/dh' and e = dL/dc' + d o (1 - tanh(c')^2) at a step: do = d tanh(c'), di = e g, dg = e i,
    df = e c_before, dL/dc_before = e f, and dL/dh_before = (gradients of the gates) W.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gates: torch.Tensor,
        hidden: torch.Tensor,
        cell: torch.Tensor,
        keep: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        length, rows, units = gates.shape[0], *hidden.shape
        outputs, before, cells_before, cells, squashed = (gates.new_empty(length, rows, units) for _ in range(5))
        activated = torch.empty_like(gates)  # i, f, g and o
        transposed = weight.t()
        # Views of every step, made at once: one at a time they would take as long as the arithmetic.
        steps = zip(
            *_steps(gates, keep, before, cells_before, cells, squashed, outputs, activated[..., : 2 * units]),
            *_steps(*torch.split(activated, units, dim=-1)),
            strict=True,
        )
        for given, kept, begun, held, after, bounded, output, both, i, f, g, o in steps:
            torch.mul(hidden, kept, out=begun)
            torch.mul(cell, kept, out=held)
            summed = torch.addmm(bias, begun, transposed).add_(given)
            torch.sigmoid(summed[:, : 2 * units], out=both)
            torch.tanh(summed[:, 2 * units : 3 * units], out=g)
            torch.sigmoid(summed[:, 3 * units :], out=o)
            cell = torch.mul(f, held, out=after).addcmul_(i, g)
            torch.tanh(cell, out=bounded)
            hidden = torch.mul(o, bounded, out=output)
        ctx.save_for_backward(keep, weight, before, cells_before, activated, squashed)
        cell = cells[-1].clone()
        ctx.mark_non_differentiable(cell)
        return outputs, cell

    @staticmethod
    def backward(ctx: Any, by_outputs: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
        keep, weight, before, cells_before, activated, squashed = ctx.saved_tensors
        length, rows, units = before.shape
        i, f, g, o = torch.split(activated, units, dim=-1)
        through_cell = o * (1.0 - squashed * squashed)
        # What each gate's gradient is of the gradient of c', or of that of the output, at once.
        of_cell = torch.stack((g * i * (1.0 - i), cells_before * f * (1.0 - f), i * (1.0 - g * g)), dim=2)
        of_output = squashed * o * (1.0 - o)
        by_gates = torch.empty_like(activated)
        by_each = by_gates.view(length, rows, 4, units)
        steps = zip(
            *_steps(by_outputs, through_cell, of_cell, by_each[:, :, :3], of_output, by_each[:, :, 3]),
            *_steps(f * keep, keep, by_gates),
            strict=True,
        )
        gradient, by_cell = (by_outputs.new_zeros(rows, units) for _ in range(2))
        for given, cells, factors, three, factor, by_o, kept_f, kept, parts in reversed(list(steps)):
            gradient = gradient + given
            by_cell = torch.addcmul(by_cell, gradient, cells)
            torch.mul(factors, by_cell.unsqueeze(1), out=three)
            torch.mul(gradient, factor, out=by_o)
            by_cell = by_cell * kept_f
            gradient = torch.mm(parts, weight).mul_(kept)
        flat = by_gates.flatten(0, 1)
        return by_gates, gradient, by_cell, None, flat.t() @ before.flatten(0, 1), flat.sum(0)


def _steps(*parts: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
    """Return the steps of each part, `[L, ...]`, as views."""
    return [part.unbind(0) for part in parts]
