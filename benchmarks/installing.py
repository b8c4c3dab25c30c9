"""The peers' virtual environments, one each in .bench, all with the torch that digideep is tested with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["PEERS", "ROOT", "Peer", "install", "is_installed", "packages_of", "python_of"]

ROOT = Path(__file__).resolve().parents[1]
_PLACE = ROOT / ".bench"
_MARK = "installed.txt"


class Peer(NamedTuple):
    """What is installed: `pinned` packages as they are, `shared` ones in the version of constraints.txt."""

    pinned: tuple[str, ...]
    shared: tuple[str, ...] = ("torch",)


PEERS = {
    "sb3": Peer(
        ("stable-baselines3==2.9.2", "packaging>=24"),  # which gymnasium's MuJoCo environments need and do not bring
        ("torch", "numpy", "gymnasium", "ale-py", "opencv-python-headless", "mujoco", "imageio"),
    ),
    # Needs gymnasium below 1, which has no HalfCheetah-v5.
    "sample_factory": Peer(("sample-factory==2.1.1",), ("torch", "ale-py")),
    # Pins its gymnasium.
    "rllib": Peer(("ray[rllib]==2.60.0",), ("torch", "ale-py", "opencv-python-headless", "mujoco", "imageio")),
}
"""The peers by name of their environment."""


def packages_of(peer: Peer, constraints: str) -> list[str]:
    """Return what pip is told to install, given the text of a constraints file.

    The spelling of that file is kept: another one for the same version of torch can bring a build for GPUs, which has
    gigabytes.

    Raises:
        LookupError: the file does not name a shared package.
    """
    lines = [line.split("#")[0].strip() for line in constraints.splitlines()]
    versions = {line.partition("==")[0]: line for line in lines if "==" in line}
    unknown = [name for name in peer.shared if name not in versions]
    if unknown:
        raise LookupError(f"requirements/constraints.txt: expected a version of {', '.join(unknown)}, found none")
    return [*(versions[name] for name in peer.shared), *peer.pinned]


def python_of(name: str, *, peers: Path | None = None) -> Path:
    """Return the interpreter of a peer's environment."""
    return (peers or _PLACE) / name / "bin" / "python"


def is_installed(name: str, *, peers: Path | None = None) -> bool:
    """Return whether a peer's environment is complete."""
    return ((peers or _PLACE) / name / _MARK).is_file()


def install(names: Iterable[str] = tuple(PEERS), *, peers: Path | None = None) -> list[str]:
    """Make the environments that are not there as they should be, one after the other; return those that failed.

    Prints one line a peer. A peer that cannot be installed takes no part in comparisons.
    """
    constraints = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8")
    failed = []
    for name in names:
        place = (peers or _PLACE) / name
        packages = packages_of(PEERS[name], constraints)
        fault = _make(place, packages)
        print(f"{name}: {'is left out: ' + fault if fault else ', '.join(packages)}", flush=True)
        if fault:
            failed.append(name)
    return failed


def _make(place: Path, packages: list[str]) -> str:
    """Install into an environment and return why it failed, or nothing."""
    mark, wanted = place / _MARK, "\n".join(packages) + "\n"
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
        return ""
    mark.unlink(missing_ok=True)
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [str(place / "bin" / "python"), "-m", "pip", "install", "-q", *packages],
    ):
        finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if finished.returncode:
            lines = [line.strip() for line in finished.stdout.splitlines() if line.strip()]
            errors = [line for line in lines if "ERROR" in line] or lines or [f"exit code {finished.returncode}"]
            return errors[-1][:300]
    mark.write_text(wanted, encoding="utf-8")
    return ""
