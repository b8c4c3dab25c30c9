"""What one contender reports of one run: one line of JSON on standard output. Standard library only: peers use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["POINTS", "Result", "parse_result"]

POINTS = 10
"""Equally spaced numbers of frames at which a learning curve is noted."""


class Result(NamedTuple):
    """One run of one contender.

    Attributes:
        frames: real transitions: steps that an action of the policy made, not those that only reset an environment.
        rows: rows that were learnt from; more than `frames` where a reset takes a row.
        gradient_steps: steps of the optimiser, the first iteration included.
        parameters: numbers that the optimiser moves.
        episodes: training episodes that ended.
        steps_per_s: frames a second from the end of what warms up to the end of the run: the first iteration of PPO,
            the setting's `measured_from` frames of methods with a replay memory.
        startup_s: from the start of the program to the end of what warms up.
        final_return: mean of the last training episodes, as many as the setting's `window`; None where none has ended.
        solved_s: from the start of the first iteration to when that mean reached the setting's bound, None if never.
        peak_mb: largest resident memory of the process, without its children.
        curve: that mean at `POINTS` equally spaced numbers of frames; None where no episode had ended.
        versions: of the packages.
        choices: what the contender chose itself, in words.
        profile: where its time goes, in microseconds a frame by part; empty where it does not know.
    """

    contender: str
    setting: str
    seed: int
    frames: int
    rows: int
    gradient_steps: int
    parameters: int
    episodes: int
    steps_per_s: float
    startup_s: float
    final_return: float | None
    solved_s: float | None
    peak_mb: float
    curve: list[float | None]
    versions: dict[str, str]
    choices: dict[str, str]
    profile: dict[str, float]

    def to_line(self) -> str:
        """Return the line."""
        return json.dumps(self._asdict())

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Result:
        """Return the result with these fields."""
        return cls(**fields)


def parse_result(output: str) -> Result:
    """Return the result in the last line of a contender's output.

    Raises:
        ValueError: there is no such line.
    """
    lines = output.strip().splitlines()
    if not lines:
        raise ValueError("expected a result in the last line, found no output")
    try:
        return Result.of(json.loads(lines[-1]))
    except (ValueError, TypeError) as error:
        raise ValueError(f"expected a result in the last line, found {lines[-1][:200]!r}") from error
