"""Copies of any module that predict, as the actors of all methods have them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from digideep.agent.modules import FrozenModule, check_finite


class Watched(nn.Module):
    """Says in how many threads it was computed."""

    seen: list[int]

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        self.seen.append(torch.get_num_threads())
        return observations["observation"]


@pytest.mark.parametrize(("rows", "rowwise", "expected"), [(8, False, 1), (40, False, 2), (40, True, 1)])
def test_few_rows_are_computed_in_one_thread(rows: int, rowwise: bool, expected: int) -> None:
    Watched.seen = []
    frozen, before = FrozenModule(Watched()), torch.get_num_threads()
    torch.set_num_threads(2)

    try:
        frozen({"observation": np.zeros((rows, 3), np.float32)}, rowwise=rowwise)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)

    assert set(Watched.seen) == {expected}
    assert after == 2


def test_outputs_whose_squares_float32_cannot_hold_are_finite_all_the_same() -> None:
    check_finite("agent", np.full((2, 3), 1e30, np.float32), np.full(2, -1e38, np.float32))  # without a warning
