"""What one contender reports of one run: one line of JSON on standard output."""

from __future__ import annotations

import json
from typing import NamedTuple

__all__ = ["Result", "parse_result"]


class Result(NamedTuple):
    """One run of one contender.

    `steps_per_s` counts real transitions from the end of the first iteration, which warms up, to the end of the run.
    `startup_s` is the time from the start of the process to the end of that iteration. `final_return` is the mean of
    the last 100 training episodes; `solved_s` the time until that mean first reached the setting's bound, None if it
    did not.
    """

    contender: str
    seed: int
    steps_per_s: float
    startup_s: float
    final_return: float
    solved_s: float | None
    frames: int
    versions: dict[str, str]

    def to_line(self) -> str:
        """Return the line."""
        return json.dumps(self._asdict())


def parse_result(output: str) -> Result:
    """Return the result in the last line of a contender's output."""
    return Result(**json.loads(output.strip().splitlines()[-1]))
