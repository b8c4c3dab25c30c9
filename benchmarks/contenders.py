"""Who is compared: digideep and its peers, each with the program that trains a setting and prints its result.

A new peer needs three things: its packages in `installing.PEERS`, a program in `peers/` that takes the options of
`track.parse_options` and prints the line of `track.Track.result`, and a row here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.installing import ROOT, is_installed, python_of
from benchmarks.settings import CHUNK, LEARNING, PPO_SETTINGS, REPLAY_SETTINGS

__all__ = ["CONTENDERS", "OURS", "REFERENCE", "REFERENCES", "Contender", "present"]

OURS = "digideep"
"""The contender whose steps a second are divided by those of the others."""

REFERENCE = "sb3"
"""Environment of the peer that takes part in every benchmark."""

REFERENCES = (
    "stable-baselines3",
    "stable-baselines3 (cpu)",
    "stable-baselines3 (cpu, SubprocVecEnv)",
    "stable-baselines3 (cpu, 64 steps, then 64 updates)",
)
"""Its rows; the best of them is what a summary compares with."""

_CARTPOLE = ("B1", "B2")
_WITHOUT_MUJOCO = (*_CARTPOLE, "B3-pendulum", "B4")
_SPEED = tuple(name for name in PPO_SETTINGS if name not in LEARNING)
_COSTLY = ("B3-halfcheetah", "B4")  # environments that are worth a process
_REPLAY = tuple(REPLAY_SETTINGS)
_REPLAY_SPEED = tuple(name for name in REPLAY_SETTINGS if name not in LEARNING)
_SAC = ("B5", "B6")
_CONTINUOUS = (*_SAC, "B5-ddpg", "B5-td3")  # a gradient step after each frame: worth doing in chunks


class Contender(NamedTuple):
    """A program that trains a setting and prints its result.

    `peer` names its virtual environment, None is that of digideep. `settings` are those it takes part in; `cores` the
    numbers of cores on which it is worth a row.
    """

    name: str
    peer: str | None
    program: str
    options: tuple[str, ...] = ()
    settings: tuple[str, ...] = tuple(PPO_SETTINGS)
    cores: tuple[int, ...] = (1, 2)
    in_quick: bool = False

    def command(self) -> tuple[str, ...]:
        """Return what starts it."""
        if self.peer is None:
            return (sys.executable, "-m", self.program, *self.options)
        return (str(python_of(self.peer)), str(ROOT / self.program), *self.options)


CONTENDERS = (
    Contender(OURS, None, "benchmarks.ours", settings=(*PPO_SETTINGS, *_REPLAY), in_quick=True),
    Contender(
        "digideep, exact: false",
        None,
        "benchmarks.ours",
        ("--exact=false", "--name=digideep, exact: false"),
        settings=(*_SPEED, *_REPLAY_SPEED),
    ),
    Contender(
        "digideep, 64 steps, then 64 updates",
        None,
        "benchmarks.ours",
        (f"--chunk={CHUNK}", f"--name=digideep, {CHUNK} steps, then {CHUNK} updates"),
        settings=_CONTINUOUS,
    ),
    Contender("stable-baselines3", "sb3", "benchmarks/peers/sb3.py", settings=_SPEED),
    Contender(
        "stable-baselines3 (cpu)",
        "sb3",
        "benchmarks/peers/sb3.py",
        ("--device=cpu", "--name=stable-baselines3 (cpu)"),
        in_quick=True,
    ),
    Contender(
        "stable-baselines3 (cpu, SubprocVecEnv)",
        "sb3",
        "benchmarks/peers/sb3.py",
        ("--device=cpu", "--stepper=subproc", "--name=stable-baselines3 (cpu, SubprocVecEnv)"),
        settings=_COSTLY,
        cores=(2,),
    ),
    Contender("stable-baselines3", "sb3", "benchmarks/peers/sb3_replay.py", settings=_REPLAY_SPEED),
    Contender(
        "stable-baselines3 (cpu)",
        "sb3",
        "benchmarks/peers/sb3_replay.py",
        ("--device=cpu", "--name=stable-baselines3 (cpu)"),
        settings=_REPLAY,
    ),
    Contender(
        "stable-baselines3 (cpu, 64 steps, then 64 updates)",
        "sb3",
        "benchmarks/peers/sb3_replay.py",
        (
            "--device=cpu",
            f"--chunk={CHUNK}",
            f"--name=stable-baselines3 (cpu, {CHUNK} steps, then {CHUNK} updates)",
        ),
        settings=_CONTINUOUS,
    ),
    Contender(
        "sample-factory (serial, synchronous)",
        "sample_factory",
        "benchmarks/peers/sample_factory.py",
        ("--mode=serial", "--name=sample-factory (serial, synchronous)"),
        settings=_WITHOUT_MUJOCO,
    ),
    Contender(
        "sample-factory (asynchronous)",
        "sample_factory",
        "benchmarks/peers/sample_factory.py",
        ("--mode=async", "--name=sample-factory (asynchronous)"),
        settings=_WITHOUT_MUJOCO,
    ),
    Contender(
        "rllib (sync vectorisation)",
        "rllib",
        "benchmarks/peers/rllib.py",
        ("--vectorize-mode=sync", "--name=rllib (sync vectorisation)"),
        settings=(*_WITHOUT_MUJOCO, "B3-halfcheetah", *_SAC, "B12"),
    ),
    Contender(
        "rllib (vector_entry_point)",
        "rllib",
        "benchmarks/peers/rllib.py",
        ("--vectorize-mode=vector_entry_point", "--name=rllib (vector_entry_point)"),
        settings=_CARTPOLE,
    ),
)
"""All contenders, ours first. What is learnt, and B1-module, is compared with Stable-Baselines3 alone.

Sample Factory has none of SAC, TD3, DDPG and DQN, RLlib neither TD3 nor DDPG.
"""


def present(
    setting_id: str, *, cores: int, names: Iterable[str] = (), quick: bool = False, peers: Path | None = None
) -> tuple[list[Contender], list[str]]:
    """Return the contenders of a setting that can run, and one line for each peer that is not installed.

    Args:
        setting_id: the benchmark.
        cores: 1 or 2.
        names: only contenders whose name begins with one of these; all without any. Ours is always there.
        quick: only those of the quick comparison.
        peers: directory of the peers' environments, by default `.bench`.
    """
    chosen = tuple(names)
    found, missing = [], []
    for contender in CONTENDERS:
        is_wanted = not chosen or contender.name == OURS or contender.name.startswith(chosen)
        if quick:
            is_wanted = is_wanted and contender.in_quick
        if not (is_wanted and setting_id in contender.settings and cores in contender.cores):
            continue
        if contender.peer is None or is_installed(contender.peer, peers=peers):
            found.append(contender)
        else:
            missing.append(f"{contender.name}: is not installed and is left out; scripts/bench --setup installs it")
    return found, missing
