"""Initial weights of layers."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["HIDDEN_GAIN", "POLICY_GAIN", "VALUE_GAIN", "orthogonal_linear", "truncated_normal_"]

HIDDEN_GAIN = math.sqrt(2.0)
"""Gain of hidden layers, whatever their activation: that of rectifiers (He et al. 2015, arXiv:1502.01852)."""

POLICY_GAIN = 0.01
"""Gain of the last layer of a policy: the first policy hardly depends on the observation (arXiv:2006.05990, 3.2)."""

VALUE_GAIN = 1.0
"""Gain of the last layer of a value function."""


def orthogonal_linear(inputs: int, outputs: int, *, gain: float) -> nn.Linear:
    """Return a linear layer with orthogonal weights times `gain` and bias 0, drawn from torch's global generator.

    Source: Saxe et al. 2014, arXiv:1312.6120, section 3.
    """
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    with torch.no_grad():
        layer.bias.zero_()
    return layer


def truncated_normal_(weight: torch.Tensor) -> torch.Tensor:
    """Fill `[outputs, ...]` weights with normal numbers of deviation 1/sqrt(fan in), none beyond two of it.

    Source: LeCun et al. 1998, "Efficient BackProp", section 4.6; cut as the layers of Sonnet 1 are by default.
    """
    deviation = 1.0 / math.sqrt(weight[0].numel())
    nn.init.trunc_normal_(weight, 0.0, deviation, -2.0 * deviation, 2.0 * deviation)
    return weight
