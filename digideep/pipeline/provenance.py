"""Where the code of a session came from: commits, uncommitted changes, versions, machine.

Environment variables are never looked at. Everything here is bounded in time and size, and a machine without git, or
code outside version control, simply has less to tell.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import selectors
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from digideep.pipeline.snapshot import Source
from digideep.utility.device import cpu_model, granted_cores

__all__ = ["Provenance", "collect_provenance", "describe_machine", "installed_versions", "without_secrets"]

PATCH_LIMIT = 1 << 20
TIME_LIMIT_S = 2.0

_DISTRIBUTIONS = (
    *("digideep", "torch", "numpy", "gymnasium", "safetensors", "PyYAML", "tensorboard", "psutil", "nvidia-ml-py"),
    *("rich", "ale-py", "mujoco", "dm-control", "shimmy", "box2d", "box2d-py", "minigrid", "gymnasium-robotics"),
    *("envpool", "opencv-python-headless", "ray"),
)
_SECRET = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|authorization|bearer\s|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|aws_|AKIA[0-9A-Z]{12}|gh[pousr]_\w{16}|github_pat_|glpat-|hf_\w{16}|sk-[\w-]{16}|xox[abprs]-|eyJ[\w-]{10,}\."
    r"|://[^/\s:@]+:[^/\s@]+@",
    re.IGNORECASE,
)
_SECRET_FILE = re.compile(
    r"(^|/)(\.env[^/]*|\.netrc|\.pgpass|\.npmrc|\.pypirc|id_(rsa|dsa|ecdsa|ed25519)[^/]*|[^/]*\.(pem|key|p12|pfx)"
    r"|[^/]*(secret|credential)[^/]*)$",
    re.IGNORECASE,
)
_LEFT_OUT = "[left out: looks like a secret]"


class Provenance(NamedTuple):
    """Commits by module (`commit`, `changed`), and the uncommitted changes of their repositories as a patch."""

    commits: Mapping[str, Mapping[str, Any]]
    patch: str


def installed_versions(names: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Python and of the installed packages that matter, and of distributions called `names`."""
    versions = {"python": platform.python_version()}
    for name in (*_DISTRIBUTIONS, *names):
        try:
            versions[name] = importlib.metadata.version(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue
    return versions


def describe_machine() -> dict[str, Any]:
    """Return host, operating system, type of CPU and the cores that this process may use."""
    return {"host": socket.gethostname(), "os": platform.platform(), "cpu": cpu_model(), "cores": granted_cores()}


def collect_provenance(sources: Sequence[Source], *, time_limit_s: float = TIME_LIMIT_S) -> Provenance:
    """Return the commits of `sources` and the uncommitted changes of the repositories they are tracked in.

    What git has not answered within `time_limit_s`, all calls together, is missing.
    """
    deadline = time.monotonic() + time_limit_s
    commits: dict[str, dict[str, Any]] = {}
    patches: dict[str, str] = {}
    for source in sources:
        directory = source.path if source.path.is_dir() else source.path.parent
        file = "__init__.py" if source.path.is_dir() else source.path.name
        # An environment inside a checkout lies in a repository without being part of it.
        if _git(directory, "ls-files", "--error-unmatch", "--", file, deadline=deadline) is None:
            continue
        answer = _git(directory, "rev-parse", "--show-toplevel", "HEAD", deadline=deadline)
        if answer is None or len(lines := answer.splitlines()) != 2:
            continue
        top, commit = lines
        if top not in patches:
            patches[top] = _git(Path(top), "diff", *_DIFF_OPTIONS, "HEAD", deadline=deadline) or ""
        commits[source.name] = {"commit": commit, "changed": bool(patches[top])}
    return Provenance(commits, _joined(without_secrets(patch) for patch in patches.values() if patch))


_DIFF_OPTIONS = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short")


def _joined(patches: Iterable[str]) -> str:
    content = "".join(patch if patch.endswith("\n") else patch + "\n" for patch in patches).encode()
    if len(content) <= PATCH_LIMIT:
        return content.decode()
    note = "[cut: more than 1 MB of changes]\n"
    kept = content[: PATCH_LIMIT - len(note)]
    return kept[: kept.rfind(b"\n") + 1].decode(errors="replace") + note


def without_secrets(patch: str) -> str:
    """Return a patch in which lines that look like secrets are replaced by a note, and all lines of files that do."""
    lines: list[str] = []
    secret_file = in_key = False
    for line in patch.splitlines():
        if line.startswith("diff --git "):
            secret_file = bool(_SECRET_FILE.search(line.rpartition(" b/")[2]))
            in_key = False
        is_content = line[:1] in ("+", "-", " ") and not line.startswith(("+++ ", "--- "))
        in_key = in_key or "-----BEGIN " in line
        if (is_content or line.startswith("@@")) and (secret_file or in_key or _SECRET.search(line)):
            lines.append(f"{line[:1] if is_content else '@@ '}{_LEFT_OUT}")
        else:
            lines.append(line)
        in_key = in_key and "-----END " not in line
    return "\n".join(lines) + "\n" if lines else ""


def _git(directory: Path, *arguments: str, deadline: float) -> str | None:
    """Return what git prints, at most a little over the limit of a patch; None where it fails or is late."""
    # No hook, pager, fsmonitor or lock: a look at a repository runs nothing of it and changes nothing in it.
    command = ["git", "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false"]
    if time.monotonic() >= deadline:
        return None
    try:
        process = subprocess.Popen(
            [*command, "-C", str(directory), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None  # no git here
    with process:
        content = _read_until(process, deadline=deadline)
        if content is None or len(content) > PATCH_LIMIT:
            process.kill()
        elif process.wait() != 0:
            content = None
    return None if content is None else content.decode("utf-8", "replace")


def _read_until(process: subprocess.Popen[bytes], *, deadline: float) -> bytes | None:
    if process.stdout is None:
        return None
    content = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(content) <= PATCH_LIMIT:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            content += piece
    return bytes(content)
