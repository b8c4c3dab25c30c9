"""An actor that checks what it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from digideep.spec import ArraySpec
from digideep.testing.environments import COUNT_MODULUS
from digideep.types import ActorOutput

__all__ = ["CountingActor"]

Array = np.ndarray[Any, Any]


class CountingActor:
    """Drives CountingEnvs and asserts that each shows exactly the next integer, call after call.

    Its artifacts say what it saw: `values` is the count, `log_probs` the negative count.

    Args:
        strict: False checks nothing here, for evaluations, in which counts begin again with each episode and
            environments that have none left stand still. CountingEnv checks the actions in any case.
    """

    def __init__(self, *, strict: bool = True) -> None:
        scalar = ArraySpec("box", (), "float32")
        self.artifacts: Mapping[str, ArraySpec] = {"log_probs": scalar, "values": scalar}
        self.policy_version = 0
        self.statistics_version = 0
        self.calls = 0
        self._strict = strict
        self._seen: Array | None = None

    def initial_state(self, num_envs: int) -> None:
        """Return None: it has no hidden state."""

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        """Return the actions that CountingEnvs expect for `observations["observation"]` of shape [N, 2].

        Raises:
            AssertionError: an environment shows another number than the next one, or another rank than before.
        """
        shown = np.asarray(observations["observation"]).astype(np.int64)
        if self._strict:
            self._check(shown)
        self._seen, self.calls = shown.copy(), self.calls + 1
        counts = shown[:, 0].astype(np.float32)
        return ActorOutput(
            actions={"": shown.sum(axis=1) % COUNT_MODULUS},
            artifacts={"log_probs": -counts, "values": counts},
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what it saw last."""
        return {"seen": None if self._seen is None else self._seen.copy(), "calls": self.calls}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._seen, self.calls = state["seen"], state["calls"]

    def _check(self, shown: Array) -> None:
        expected = np.zeros_like(shown) if self._seen is None else self._seen + np.array([1, 0])
        if self._seen is None:
            expected[:, 1] = shown[:, 1]
        if shown.shape != expected.shape:
            raise AssertionError(f"call {self.calls}: expected {expected.shape}, found {shown.shape}")
        wrong = np.flatnonzero((shown != expected).any(axis=1))
        if wrong.size:
            i = int(wrong[0])
            raise AssertionError(
                f"call {self.calls}: environment {i} shows (count, rank) {shown[i].tolist()}, "
                f"expected {expected[i].tolist()}"
            )
