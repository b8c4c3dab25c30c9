"""Read a session: how it stands, its curves, where its time went, and its policy at work.

python examples/read_session.py /tmp/digideep_sessions/session_20261129161105
"""

from __future__ import annotations

import sys

import numpy as np

from digideep.post import Loader, load


def describe(session: Loader) -> str:
    """Return a few lines about how the session stands."""
    summary, log = session.summary, session.varlog()
    lines = [f"{session.path.name}: {summary['state']} ({summary['reason']}) at frame {summary['frame']}"]
    if "test/return" in log:
        # One array a name, NaN where a row has no value: not every epoch has a test.
        returns = log["test/return"]
        best = int(np.nanargmax(returns))
        lines.append(f"best test: {returns[best]:.1f} at frame {int(log['frame'][best])}")
    profile = session.prolog()
    for block in ("/cycle/explore", "/cycle/update", "/test"):
        if block in profile:
            lines.append(f"{block}: {np.nansum(profile[block]):.2f} s")
    lines += [f"{entry['name']}: mean return {entry['mean_return']}" for entry in session.checkpoints]
    return "\n".join(lines)


def play(session: Loader, *, seed: int = 0) -> float:
    """Return the return of one episode with the best policy, in the session's environment with all its wrappers."""
    policy, env = session.policy("best"), session.make_env()
    observation, _ = env.reset(seed=seed)
    total, over, state = 0.0, False, None
    while not over:
        if policy.is_recurrent:
            action, state = policy.act(observation, state)  # None where an episode begins
        else:
            action = policy.act(observation)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
    env.close()
    return total


def main() -> None:
    """Describe the session that the command line names, and play one episode."""
    session = load(sys.argv[1])
    print(describe(session))
    print(f"one episode: {play(session):g}")


if __name__ == "__main__":
    main()
