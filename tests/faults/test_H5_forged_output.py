"""H5: names cannot forge output: whatever stands in them, a line stays one line and a terminal stays as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cold import Cold

from digideep import sessions
from digideep.errors import one_line
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.summary import Summary

Maker = Callable[..., SessionPaths]
Output = pytest.CaptureFixture[str]

# What ends a line, moves the cursor, changes colours, rings, hides, or changes the direction of text.
FORGING = {
    "newline": "\n", "return": "\r", "both": "\r\n", "escape": "\x1b[2J\x1b[1;31m", "title": "\x1b]0;x\x07",
    "c1 escape": "\x9b31m", "backspaces": "\b\b\b", "bell": "\a", "form feed": "\f", "vertical tab": "\v", "null": "\0",
    "delete": "\x7f", "next line": "\x85", "line separator": "\u2028", "paragraph separator": "\u2029",
    "right to left": "\u202e", "isolate": "\u2067", "left mark": "\u200e", "zero width": "\u200b", "joiner": "\u200d",
    "byte order mark": "\ufeff", "soft hyphen": "\xad", "tags": "\U000e0041", "arabic mark": "\u061c",
    "annotation": "\ufff9", "word joiner": "\u2060", "file separator": "\x1c",
}  # fmt: skip
FORBIDDEN = set("".join(FORGING.values())) - set("[]0123456789;mJx2")


@pytest.mark.parametrize("kind", FORGING)
def test_H5_one_line_is_one_line_whatever_is_in_it(kind: str) -> None:
    text = one_line(f"before{FORGING[kind]}session: /forged")

    assert not set(text) & FORBIDDEN
    assert text.startswith("before") and text.endswith("session: /forged")
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize(
    "kinds", [["newline"], ["escape"], ["right to left"], [kind for kind in FORGING if kind != "null"]]
)
def test_H5_errors_about_a_forging_name_are_one_line(cold: Cold, tmp_path: Path, kinds: list[str]) -> None:
    name = f"x{''.join(FORGING[kind] for kind in kinds)}digideep: error: forged"
    new = ["--params", "digideep.params.cartpole_ppo"]
    commands = [
        ["main", "--params", name],
        ["main", *new, name],
        ["main", *new, f"--{name}"],
        ["main", *new, "--set", f"{name}=1"],
        ["main", *new, "--set", f"seed={name}"],
        ["main", *new, "--set", f"/runner/{name}=1"],
        ["main", *new, "--cpanel", json.dumps({name: 1})],
        ["main", *new, "--cpanel", json.dumps({"seed": name})],
        ["main", *new, "--set", f"model_name={name}"],
        ["main", "--load-checkpoint", name, "--resume"],
        ["sessions", "show", name],
        ["play", "--model", name],
        ["check", "--model", f"{name}:X-v0"],
    ]
    found: list[str] = []
    for argv in commands:
        answer = cold.ask(*argv, cwd=tmp_path)
        if answer.code != 2 or set(answer.err.rstrip("\n")) & FORBIDDEN or answer.err.count("\n") != 1 or answer.out:
            found.append(f"{argv}: {answer}")

    assert found == []


def test_H5_names_and_reasons_of_a_session_cannot_forge_output(new_session: Maker, capsys: Output) -> None:
    everything = "".join(FORGING.values()) + "fake  done"
    paths = new_session("session\n\x1b[31mred\u202e")
    Summary(state="failed", reason=f"reason{everything}", exactness=everything).write(paths)
    meta = json.loads(paths.meta.read_text())
    paths.meta.write_text(
        json.dumps({**meta, "preset": everything, "message": everything, "runs": [{everything: everything}]})
    )
    (paths.root.parent / "x\x07.d").mkdir()

    for arguments in (["list", str(paths.root.parent)], ["show", str(paths.root)], ["last", str(paths.root.parent)]):
        for json_option in ([], ["--json"]):
            assert sessions.main([*arguments, *json_option]) == 0
            out = capsys.readouterr().out
            assert not set(out) & (FORBIDDEN - set("\n"))
            assert all(not line.startswith("fake") for line in out.splitlines())


def test_H5_a_name_that_is_no_text_does_not_stop_the_list(new_session: Maker) -> None:
    paths = new_session()
    os.rename(paths.root, os.fsencode(paths.root.parent) + b"/session_\xff")

    done = subprocess.run(
        [sys.executable, "-m", "digideep.sessions", "list", str(paths.root.parent)], capture_output=True, text=True
    )

    assert done.returncode == 0
    assert "session_\\udcff" in done.stdout


def test_H5_an_environment_cannot_forge_the_lines_of_a_run(warm: Cold, tmp_path: Path) -> None:
    """Its id is what the module says; its error, its metric names and its output are what it likes."""
    (tmp_path / "forger.py").write_text(
        "import gymnasium, sys\n"
        "class Forger(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return self.observation_space.sample() * 0, {}\n"
        "    def step(self, action):\n"
        "        print('session: /forged'); print('saved /forged')\n"
        "        self.t = getattr(self, 't', 0) + 1\n"
        "        if self.t > 20: raise ValueError('x\\nsaved /forged\\r\\x1b[2J\\u202e')\n"
        "        told = {'metrics': {'a\\nsaved /forged': 1.0}}\n"
        "        return self.observation_space.sample() * 0, 1.0, True, False, told\n"
        "gymnasium.register('Forger-v0', entry_point=Forger)\n"
    )
    sets = ["num_envs=1", "n_steps=8", "epoch_size=1", "number_epochs=9", "total_frames=0", "stop_return=null"]
    argv = ["--params", "digideep.params.cartpole_ppo", "--set", "model_name=forger:Forger-v0", *sets]

    ended = warm.ask("main", *argv, "test_activate=false", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})

    assert ended.code == 7, ended
    lines = ended.out.splitlines()
    assert "forged" not in ended.out
    assert all(line.startswith(("session: ", "saved ")) for line in lines)
    assert not set(ended.err) & (FORBIDDEN - set("\n\r"))
    assert ended.err.splitlines()[-1].startswith("digideep: error: ")
    report = next((tmp_path / "sessions").glob("*/report.log")).read_text()
    assert not any(line.startswith("saved /forged") for line in report.splitlines() if "Error" not in line)


@pytest.mark.parametrize("where", ["directory", "variable"])
def test_H5_no_session_is_made_in_a_place_that_could_not_be_told(cold: Cold, tmp_path: Path, where: str) -> None:
    place = tmp_path / "a\nsession: forged"
    place.mkdir()
    new = ["main", "--params", "digideep.params.cartpole_ppo"]

    if where == "directory":
        found = cold.complaints(*new, "--session-path", "sessions", cwd=place)
    else:
        found = cold.complaints(*new, cwd=tmp_path, env={"DIGIDEEP_SESSIONS": str(place)}, heavy=["gymnasium"])

    assert found == []
