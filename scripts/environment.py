"""Make the project's virtual environment complete, then become its Python.

    environment.py --caller train --python python3 [--extra dev] -- [arguments for the environment's Python]

Without arguments after `--` the path of that Python is printed. An environment is complete when it holds a stamp with
the fingerprint of what decides on its contents: dependencies, build settings, constraints, and the two directories.
Then nothing is installed and no network is needed. Needs the standard library of Python 3.11 only.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = "requirements/constraints.txt"
LOCK = ".digideep-lock"  # also says that these scripts made the directory, so that they may clear it
STAMP = ".digideep-installed-"  # + the extra, or "base"

_PROBE = """
import json, sys, sysconfig
print(json.dumps([sys.prefix, sys.version_info[:2], sysconfig.get_path("purelib")]))
"""


class SetupError(Exception):
    """Something that keeps the environment from being made; the message is the one line to show."""


class Interpreter(NamedTuple):
    """What the Python of an environment says about itself."""

    version: tuple[int, int]
    site_packages: Path


def probe(venv: Path) -> Interpreter | None:
    """Return what the environment's Python says, or None where it cannot run or is not this environment's."""
    try:
        answer = subprocess.run(
            [python_of(venv), "-I", "-c", _PROBE], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
        )
        prefix, version, purelib = json.loads(answer.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    # Without pyvenv.cfg the link in bin/ runs as the system's Python, and pip would install there.
    if Path(prefix).resolve() != venv.resolve() or tuple(version) < (3, 11):
        return None
    return Interpreter(version=(version[0], version[1]), site_packages=Path(purelib))


def python_of(venv: Path) -> str:
    """Return the path of an environment's interpreter."""
    return str(venv / "bin" / "python")


def fingerprint(venv: Path, version: tuple[int, int]) -> str:
    """Return a hash of everything that decides on what has to be installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # Settings of ruff, mypy and pytest decide on nothing here, so changing them installs nothing.
    relevant = [project["build-system"], project["project"], project.get("tool", {}).get("hatch")]
    constraints = (ROOT / CONSTRAINTS).read_text(encoding="utf-8")
    parts = [str(ROOT), str(venv), list(version), relevant, constraints]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def is_complete(venv: Path, extra: str) -> bool:
    """Return whether nothing has to be done before the environment can be used with this extra."""
    stamp = venv / (STAMP + (extra or "base"))
    if not stamp.is_file():
        return False
    interpreter = probe(venv)
    return interpreter is not None and stamp.read_text() == fingerprint(venv, interpreter.version)


def say(message: str) -> None:
    """Write one line to stderr: stdout belongs to the program that follows."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def call(command: Sequence[str], *, lock: int) -> int:
    """Run a command with its output on stderr; it ends with us and holds the lock as long as it lives."""
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        pass_fds=[lock],
        env={**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"},
    )
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise


@contextmanager
def locked(venv: Path) -> Iterator[int]:
    """Hold the environment for ourselves; a second script waits until the first has installed."""
    venv.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(venv / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another script that installs into {venv}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def require_ours(venv: Path) -> None:
    """Refuse to clear or fill a directory that is neither new, nor an environment, nor the checkout's own .venv."""
    if venv == ROOT / ".venv" or not venv.exists() or (venv / LOCK).exists():
        return
    if not venv.is_dir() or (any(venv.iterdir()) and probe(venv) is None):
        raise SetupError(
            f"{venv}: expected a virtual environment with Python 3.11 or newer, or a new directory, "
            "found something else; set DIGIDEEP_VENV to another path"
        )


def create(venv: Path, python: str, *, lock: int) -> Interpreter:
    """Make the environment, anew where there is a broken one, and return its interpreter."""
    if subprocess.run([python, "-I", "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode:
        raise SetupError(
            f"{python}: expected the modules venv and ensurepip, found none; "
            "install them (on Debian and Ubuntu: apt install python3-venv)"
        )
    for entry in venv.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()
    say(f"making {venv}")
    status = call([python, "-I", "-m", "venv", str(venv)], lock=lock)
    interpreter = probe(venv)
    if status or interpreter is None:
        raise SetupError(f"{venv}: {python} -m venv ended with status {status}, see above; correct it and run again")
    return interpreter


def remove_torn(site_packages: Path) -> None:
    """Remove the traces of packages whose installation was cut short, so that pip does not take them for installed.

    pip writes RECORD last, and keeps what it is about to replace under a name that starts with `~`.
    """
    for entry in site_packages.glob("*.dist-info"):
        if not (entry / "RECORD").is_file():
            shutil.rmtree(entry)
    for entry in site_packages.glob("~*"):
        if entry.is_dir():
            shutil.rmtree(entry)


def install(venv: Path, extra: str, *, python: str, lock: int) -> None:
    """Install the project, editable, with this extra, and leave a stamp that says so."""
    # From here to the end nothing is known about the contents: an interrupted run must not leave a stamp behind.
    for stamp in venv.glob(STAMP + "*"):
        stamp.unlink()
    interpreter = probe(venv) or create(venv, python, lock=lock)
    remove_torn(interpreter.site_packages)
    if not list(interpreter.site_packages.glob("pip-*.dist-info")):
        if call([python_of(venv), "-I", "-m", "ensurepip"], lock=lock):
            raise SetupError(f"{venv}: expected pip or ensurepip, found neither; remove the directory and run again")
    target = f".[{extra}]" if extra else "."
    say(f"installing {target} of {ROOT} into {venv} (once; it takes about a minute)")
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    options = ["--no-input", "--disable-pip-version-check", *quiet, "-c", CONSTRAINTS]
    status = call([python_of(venv), "-I", "-m", "pip", "install", *options, "-e", target], lock=lock)
    if status:
        raise SetupError(f"{venv}: pip install ended with status {status}, see above; run again, it goes on from here")
    content = fingerprint(venv, interpreter.version)
    for name in {"base", extra or "base"}:
        draft = venv / f"{STAMP}{name}.new"
        draft.write_text(content)
        draft.rename(venv / (STAMP + name))


def prepare(venv: Path, extra: str, *, python: str) -> None:
    """Make the environment complete; return at once where it is."""
    if is_complete(venv, extra):
        return
    require_ours(venv)
    with locked(venv) as lock:
        if not is_complete(venv, extra):  # else another script has just done it
            install(venv, extra, python=python, lock=lock)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the options; `command` is what follows `--`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--caller", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--extra", default="")
    parser.add_argument("command", nargs="*")
    return parser.parse_args(argv)


def _terminated(signum: int, frame: object) -> NoReturn:
    sys.exit(128 + signum)


def main(argv: Sequence[str]) -> int:
    """Prepare the environment and become its Python; return the exit code where that fails."""
    options = parse(argv)
    venv = Path(os.path.abspath(os.environ.get("DIGIDEEP_VENV") or ROOT / ".venv"))
    signal.signal(signal.SIGTERM, _terminated)
    try:
        prepare(venv, options.extra, python=options.python)
    except SetupError as error:
        say(f"scripts/{options.caller}: error: {error}")
        return 2
    except OSError as error:
        say(f"scripts/{options.caller}: error: {venv}: {error.strerror or error}; free the place or set DIGIDEEP_VENV")
        return 2
    except KeyboardInterrupt:
        return 130
    if not options.command:
        sys.stdout.write(python_of(venv) + "\n")
        return 0
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.execv(python_of(venv), [python_of(venv), *options.command])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
