"""`scripts/bench`: train the same setting with digideep and its peers in turn, and print ratios.

    scripts/bench            B1: speed over 5 repetitions and returns over 10 seeds
    scripts/bench --quick    two minutes: 3 seeds
    scripts/bench --setup    make the peers' virtual environments, in .bench/

Each run is a process of its own. Speed is compared between runs that follow each other: the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
from typing import NamedTuple

from benchmarks.result import Result, parse_result
from benchmarks.settings import SETTINGS
from benchmarks.statistics import difference_of_means, median_ratio

ROOT = pathlib.Path(__file__).resolve().parents[1]
_PEERS = ROOT / ".bench"
_SB3_VERSION = "2.9.2"


class Contender(NamedTuple):
    """A program that trains a setting and prints its result."""

    name: str
    command: tuple[str, ...]


def main() -> int:
    """Run the benchmarks that the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__, formatter_class=_KeepLines)
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="B1")
    parser.add_argument("--setup", action="store_true", help="make the peers' environments and end")
    parser.add_argument("--quick", action="store_true", help="3 seeds instead of 10")
    parser.add_argument("--seeds", type=int, help="how many seeds")
    parser.add_argument("--frames", type=int, help="instead of the setting's")
    parser.add_argument("--threads", type=int, default=1, help="of torch, in every contender")
    parser.add_argument("--output", type=pathlib.Path, help="write every run to this JSON file")
    arguments = parser.parse_args()
    if arguments.setup:
        return _set_up()
    seeds = arguments.seeds or (3 if arguments.quick else 10)
    return _compare(arguments, range(1, seeds + 1))


class _KeepLines(argparse.RawDescriptionHelpFormatter):
    pass


def _set_up() -> int:
    """Install each peer in a virtual environment of its own, with the torch that digideep uses."""
    place = _PEERS / "sb3"
    if not (place / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        torch = next(
            line.strip()
            for line in (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines()
            if line.startswith("torch==")
        )
        packages = [torch, f"stable-baselines3=={_SB3_VERSION}"]
        finished = subprocess.run([str(place / "bin" / "pip"), "install", "-q", *packages], check=False)
        if finished.returncode:
            print("stable-baselines3 could not be installed; it is left out", file=sys.stderr)
            return 1
        (place / "installed").touch()
    print(f"stable-baselines3 {_SB3_VERSION}: {place}")
    return 0


def _contenders() -> list[Contender]:
    found = [Contender("digideep", (sys.executable, "-m", "benchmarks.ours"))]
    python = _PEERS / "sb3" / "bin" / "python"
    if python.exists():
        command = (str(python), str(ROOT / "benchmarks" / "peers" / "sb3.py"))
        found.append(Contender("stable-baselines3", command))
        found.append(Contender("stable-baselines3 (cpu)", (*command, "--device=cpu")))
    else:
        print("stable-baselines3 is not there and is left out: scripts/bench --setup", file=sys.stderr)
    return found


def _compare(arguments: argparse.Namespace, seeds: range) -> int:
    setting = SETTINGS[arguments.setting]
    frames = arguments.frames or setting.total_frames
    results: dict[str, list[Result]] = {contender.name: [] for contender in _contenders()}
    print(f"{arguments.setting}: {setting.env}, {frames} frames, {len(seeds)} seeds, {arguments.threads} thread(s)")
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for seed in seeds:
        for contender in _contenders():
            result = _run(contender, arguments.setting, seed=seed, frames=frames, threads=arguments.threads)
            results[contender.name].append(result)
            print(
                f"  seed {seed:2d}  {contender.name:24s} {result.steps_per_s:8.0f} steps/s"
                f"  start-up {result.startup_s:5.2f} s  final return {result.final_return:6.1f}"
                f"  solved {'-' if result.solved_s is None else f'{result.solved_s:.1f} s'}",
                flush=True,
            )
    _summarise(results)
    if arguments.output:
        runs = {name: [result._asdict() for result in rows] for name, rows in results.items()}
        arguments.output.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    return 0


def _run(contender: Contender, setting: str, *, seed: int, frames: int, threads: int) -> Result:
    finished = subprocess.run(
        [*contender.command, setting, f"--seed={seed}", f"--frames={frames}", f"--threads={threads}"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return parse_result(finished.stdout)


def _summarise(results: dict[str, list[Result]]) -> None:
    ours = results["digideep"]
    print("versions: " + ", ".join(f"{k} {v}" for k, v in sorted(ours[0].versions.items())))
    for name, rows in results.items():
        if rows is ours:
            continue
        speed = median_ratio([r.steps_per_s for r in ours], [r.steps_per_s for r in rows])
        returns = difference_of_means([r.final_return for r in ours], [r.final_return for r in rows])
        versions = ", ".join(f"{k} {v}" for k, v in sorted(rows[0].versions.items()))
        print(f"against {name} ({versions}):")
        print(f"  steps/s, median ratio              {speed}")
        print(f"  final return, difference of means  {returns}")


if __name__ == "__main__":
    sys.exit(main())
