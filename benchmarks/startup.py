"""B10: the first update of `cartpole_ppo` in a fresh process, which is 16 gradient steps.

    python -m benchmarks.startup BEGAN

BEGAN is a reading of `time.monotonic()`, which is the same clock in all processes, from before this one was started.
Prints the seconds from then until the update was over.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any


def main(began: float) -> None:
    """Measure and print."""
    import digideep
    from digideep.agent.ppo.agent import PPOAgent

    update = PPOAgent.update
    taken: list[float] = []

    def timed_update(agent: PPOAgent, *arguments: Any) -> None:
        update(agent, *arguments)
        taken.append(time.monotonic() - began)

    PPOAgent.update = timed_update  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory(prefix="digideep-bench-") as directory:
        digideep.run(
            "digideep.params.cartpole_ppo",
            cpanel={"total_frames": 1, "number_epochs": 0, "stop_return": None, "test_activate": False},
            session_path=directory,
            log_level="error",
        )
    print(taken[0])


if __name__ == "__main__":
    main(float(sys.argv[1]))
