"""Importing a module does nothing but define names, and the light ones do not pay for torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "digideep"
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in PACKAGE.rglob("*.py")
)

# What these import, directly or not, holds no torch.
WITHOUT_TORCH = (
    "digideep.types", "digideep.spec", "digideep.errors", "digideep.utility", "digideep.memory", "digideep.environment",
    "digideep.params", "digideep.pipeline.cli", "digideep.pipeline.options", "digideep.pipeline.layout",
    "digideep.launch", "digideep.autoresume", "digideep.check_resume", "digideep.main", "digideep.sessions",
    "digideep.testing", "digideep.post",
)  # fmt: skip
# What is needed before the command line is known to be right.
WITHOUT_LIBRARIES = (
    "digideep",
    "digideep.main",
    "digideep.errors",
    "digideep.pipeline.cli",
    "digideep.pipeline.options",
)
LIBRARIES = ("torch", "gymnasium", "numpy")

# Imports one module and says what changed besides. The second form imports torch first, once, and gives each module a
# fork of its own: a process in which nothing of digideep has been imported, without 1.5 s of waiting for torch.
OBSERVE = """
import contextlib, io, json, os, sys, threading

# gymnasium sets this when it is imported.
os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "hide"

def observe(name):
    before = (list(sys.path), set(os.listdir()), threading.active_count(), dict(os.environ))
    __import__(name)
    after = (list(sys.path), set(os.listdir()), threading.active_count(), dict(os.environ))
    libraries = [library for library in ("torch", "gymnasium", "numpy") if library in sys.modules]
    return {
        "sys.path": after[0] == before[0],
        "files": sorted(after[1] - before[1]),
        "threads": after[2] - before[2],
        "children": open(f"/proc/self/task/{os.getpid()}/children").read() if os.path.exists("/proc/self") else "",
        "environment": sorted(set(after[3].items()) ^ set(before[3].items())),
        "libraries": libraries,
    }
"""
FRESH = (
    OBSERVE
    + """
answer = os.fdopen(int(sys.argv[2]), "w")
json.dump(observe(sys.argv[1]), answer)
"""
)
FORKED = (
    OBSERVE
    + """
import torch
sys.stdout.flush()
for name in sys.argv[1:]:
    read, write = os.pipe()
    output = os.open(os.path.join(os.environ["OUTPUTS"], name), os.O_CREAT | os.O_RDWR)
    child = os.fork()
    if child == 0:
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = 1
        try:
            with os.fdopen(write, "w") as answer:
                json.dump(observe(name), answer)
            status = 0
        finally:
            if status:
                import traceback
                traceback.print_exc()
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    said = os.pread(output, 100_000, 0).decode()
    print(json.dumps({"name": name, "said": said, "seen": json.loads(text) if text else None}), flush=True)
"""
)


def is_below(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in names)


LEARNERS = ("digideep.testing.q_agent", "digideep.testing.q_losses")
LIGHT = [
    name
    for name in MODULES
    if name == "digideep" or name.endswith("config") or (is_below(name, WITHOUT_TORCH) and name not in LEARNERS)
]
HEAVY = [name for name in MODULES if name not in LIGHT]


def import_fresh(name: str, directory: Path) -> dict[str, Any]:
    """Import a module in a new interpreter and return what was seen and said."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", FRESH, name, str(write)],
        cwd=directory,
        pass_fds=[write],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    os.close(write)
    with os.fdopen(read) as answer:
        seen = answer.read()
    said, _ = process.communicate(timeout=60)
    return {"said": said, "seen": json.loads(seen) if seen else None}


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Import every module of the package, two at a time, and return what each did, by name."""
    directory = tmp_path_factory.mktemp("empty")
    outputs = tmp_path_factory.mktemp("outputs")
    with ThreadPoolExecutor(2) as pool:
        heavy = pool.submit(import_forked, HEAVY, directory=directory, outputs=outputs)
        light = pool.map(lambda name: import_fresh(name, directory), LIGHT)
        return {**dict(zip(LIGHT, light, strict=True)), **heavy.result()}


def import_forked(names: list[str], *, directory: Path, outputs: Path) -> dict[str, dict[str, Any]]:
    process = subprocess.run(
        [sys.executable, "-c", FORKED, *names],
        cwd=directory,
        env={**os.environ, "OUTPUTS": str(outputs)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("module", MODULES)
def test_import_does_nothing_else(module: str, observations: dict[str, dict[str, Any]]) -> None:
    observation = observations[module]

    assert observation["said"] == ""
    seen = {**observation["seen"], "libraries": None}
    expected = {"sys.path": True, "files": [], "threads": 0, "children": "", "environment": [], "libraries": None}
    assert seen == expected


@pytest.mark.parametrize("module", LIGHT)
def test_light_module_does_not_import_torch(module: str, observations: dict[str, dict[str, Any]]) -> None:
    assert "torch" not in observations[module]["seen"]["libraries"]


@pytest.mark.parametrize("module", [name for name in MODULES if name in WITHOUT_LIBRARIES])
def test_command_line_imports_no_library(module: str, observations: dict[str, dict[str, Any]]) -> None:
    assert observations[module]["seen"]["libraries"] == []


@pytest.mark.parametrize(
    ("source", "key", "expected"),
    [
        ("print('loaded')", "said", "loaded\n"),
        ("import sys\nsys.path.append('x')", "sys.path", False),
        ("open('made', 'w').close()", "files", ["made"]),
        ("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()", "threads", 1),
        ("import os\nos.environ['SET_BY_IMPORT'] = '1'", "environment", [["SET_BY_IMPORT", "1"]]),
        ("import gymnasium", "libraries", ["gymnasium", "numpy"]),
    ],
)
def test_import_that_does_something_is_noticed(source: str, key: str, expected: object, tmp_path: Path) -> None:
    (tmp_path / "noisy_module.py").write_text(source)

    observation = import_fresh("noisy_module", tmp_path)

    assert ({**observation, **observation["seen"]})[key] == expected


def test_import_that_fails_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "failing_module.py").write_text("raise ValueError('at import')")

    observation = import_fresh("failing_module", tmp_path)

    assert observation["seen"] is None
    assert "ValueError: at import" in observation["said"]
