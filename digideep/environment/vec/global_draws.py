"""The global random generators of a worker: seeded, and watched for environments that draw from them."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from digideep.utility.seeding import derive

__all__ = ["GlobalDraws"]


class GlobalDraws:
    """Seeds the global generators of this process, and tells whether anybody has drawn from them since.

    What a worker's environments draw there depends on how many they are, and is no part of the state of any of them.

    Args:
        worker: its number, so that no two begin alike.
    """

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._was_seeded_by_run = False
        self._seed(0)

    def seed_once(self, seed: int) -> None:
        """Seed them with what the run has given, at the first call."""
        if not self._was_seeded_by_run:
            self._was_seeded_by_run = True
            self._seed(seed)

    def obstacle(self, name: str) -> str:
        """Return why environments have no state that could be saved, or an empty text."""
        if _position(self._has_torch) == self._begun:
            return ""
        return (
            f"{name} draws from the global generators of python, numpy or torch, of which each worker has its own; "
            f"draw from self.np_random, or set num_workers to 0"
        )

    def _seed(self, seed: int) -> None:
        random.seed(derive(seed, "worker", self._worker, "python"))
        np.random.seed(derive(seed, "worker", self._worker, "numpy"))
        torch: Any = sys.modules.get("torch")
        self._has_torch = torch is not None
        if torch is not None:
            torch.manual_seed(derive(seed, "worker", self._worker, "torch"))
        self._begun = _position(self._has_torch)


def _position(has_torch: bool) -> tuple[Any, ...]:
    words: Any = np.random.get_state(legacy=False)
    numpy = (words["state"]["key"].tobytes(), words["state"]["pos"], words["has_gauss"])
    torch = bytes(sys.modules["torch"].get_rng_state().numpy()) if has_torch else b""
    return random.getstate(), numpy, torch
