"""A start that fails leaves nothing behind: no session, no directory for sessions, no key, no temporary file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cold import Cold
from ledger import Tally

PRESET = "digideep.params.cartpole_ppo"
NEW = ["--params", PRESET, "--session-path", "made/for/sessions"]
FILES = {
    "syntax.py": "cpanel = {\n",
    "raises.py": "raise RuntimeError('not today')\n",
    "empty.py": "",
    "no_function.py": "cpanel = {'seed': 1}\n",
    "wrong_function.py": "cpanel = {'seed': 1}\ndef gen_params():\n    return {}\n",
    "broken.yaml": "params: [\n",
    "number.yaml": "3\n",
    "broken.json": "{",
    "taken": "",
}
BAD = {
    "an unknown option": [*NEW, "--sede", "3"],
    "an unknown knob": [*NEW, "--set", "sede=3"],
    "a knob of another type": [*NEW, "--set", "seed=three"],
    "a knob out of range": [*NEW, "--set", "gamma=2.0"],
    "two goals": [*NEW, "--set", "number_epochs=5", "total_frames=100"],
    "no goal": [*NEW, "--set", "number_epochs=0", "total_frames=0"],
    "a knob twice": [*NEW, "--set", "seed=1", "seed=2"],
    "an unknown path": [*NEW, "--set", "/runner/sede=3"],
    "malformed JSON": [*NEW, "--cpanel", "{"],
    "a malformed file of JSON": [*NEW, "--cpanel", "@broken.json"],
    "a missing file of JSON": [*NEW, "--repeal", "@missing.json"],
    "an unknown preset": ["--params", "digideep.params.cartpole_pop", "--session-path", "made"],
    "a missing params file": ["--params", "missing.py", "--session-path", "made"],
    "a params file with a syntax error": ["--params", "syntax.py", "--session-path", "made"],
    "a params file that raises": ["--params", "raises.py", "--session-path", "made"],
    "an empty params file": ["--params", "empty.py", "--session-path", "made"],
    "a params file without gen_params": ["--params", "no_function.py", "--session-path", "made"],
    "a gen_params without argument": ["--params", "wrong_function.py", "--session-path", "made"],
    "broken YAML": ["--params", "broken.yaml", "--session-path", "made"],
    "YAML that is a number": ["--params", "number.yaml", "--session-path", "made"],
    "an unknown environment": [*NEW, "--set", "model_name=CartPoel-v1"],
    "an environment of a missing module": [*NEW, "--set", "model_name=missing_module:Env-v0"],
    "a missing module": [*NEW, "--set", "from_module=missing_module"],
    "an argument that the environment lacks": [*NEW, "--cpanel", json.dumps({"env_kwargs": {"colour": "red"}})],
    "a missing module to save": [*NEW, "--save-modules", "missing_module"],
    "a name that is none": [*NEW, "--session-name", "../x"],
    "a file instead of a directory": ["--params", PRESET, "--session-path", "taken"],
    "a directory below a file": ["--params", PRESET, "--session-path", "taken/sessions"],
    "an absent device": [*NEW, "--device", "cuda:63"],
    "nothing to load": ["--load-checkpoint", "made/session_1", "--resume"],
    "something else to load": ["--load-checkpoint", "taken", "--resume"],
    "two modes": [*NEW, "--play", "--resume"],
}
SLOW = ("device", "environment", "module", "directory")
"""Words in the kinds that are refused only after the environment was looked at, which takes Gymnasium."""


@pytest.mark.parametrize("kind", BAD)
def test_C6_a_start_that_fails_leaves_nothing_behind(cold: Cold, tmp_path: Path, kind: str, tally: Tally) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    heavy = ["gymnasium"] if any(word in kind for word in SLOW) else []

    problems = cold.complaints("main", *BAD[kind], cwd=tmp_path, heavy=heavy)

    tally["failed starts"] += 1
    assert problems == []


def test_C6_an_existing_session_is_neither_used_nor_changed(cold: Cold, tmp_path: Path) -> None:
    made = ["--params", PRESET, "--session-path", "sessions", "--session-name", "there"]
    assert cold.ask("main", *made, "--create-session-only", cwd=tmp_path).code == 0

    assert cold.complaints("main", *made, cwd=tmp_path, names=["there"], heavy=["gymnasium"]) == []


def test_C6_a_dry_run_leaves_nothing_behind(cold: Cold, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))

    answer = cold.ask(
        "main", *NEW, "--dry-run", "--set", "number_epochs=1", "total_frames=0", "num_workers=2", cwd=tmp_path
    )

    assert (answer.code, answer.out.splitlines()[0]) == (0, "session: none (dry run)")
    assert sorted(tmp_path.rglob("*")) == before
