"""H2: configuration cannot name code: each text of a session in turn is replaced by the name of a canary."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cold import Cold
from hostile import leaves, replaced, rewrite_file, rewrite_manifest

from digideep.pipeline.layout import SessionPaths
from digideep.utility.yaml12 import dumps_yaml, loads_yaml

NAMES = ("canary_module:Canary", "canary_module", "canary_module:Canary-v0")
CODES = {0, 2, 5, 6}


@pytest.fixture
def paths(trained: Path, tmp_path: Path) -> SessionPaths:
    """A session beside a module that leaves a file when it is imported, in every place where it could be found."""
    root = tmp_path / "s"
    shutil.copytree(trained, root)
    code = f"open({str(tmp_path / 'canary')!r}, 'w').close()\nclass Canary: pass\n"
    for directory in (tmp_path, tmp_path / "code", root, root / "modules"):
        directory.mkdir(exist_ok=True)
        (directory / "canary_module.py").write_text(code)
    return SessionPaths(root)


def _attempt(warm: Cold, paths: SessionPaths, *parts: str) -> list[str]:
    """Return what the canary did, or how a program ended that should have refused or not cared.

    With the names of parts these are read from Python; without any the session is played.
    """
    place, session = paths.root.parent, str(paths.root)
    played = ("main", "--load-checkpoint", session, "--play", "--episodes", "1", "--dry-run")
    program = ("load", session, *parts) if parts else played
    answer = warm.ask(*program, cwd=place, env={"PYTHONPATH": str(place / "code")}, watch=[str(place)])
    ran = [line for line in answer.seen if "canary" in line]
    ran += ["a file was left"] if (place / "canary").exists() else []
    well = not ran and answer.code in CODES and "Traceback" not in answer.err
    return [] if well else [f"{program[0]}: {answer.code} {ran} {answer.err[-300:]}"]


def test_H2_no_text_of_the_parameters_names_code(warm: Cold, paths: SessionPaths) -> None:
    tree: dict[str, Any] = loads_yaml(paths.params.read_text(), where="params")
    places, wrong = list(leaves(tree)), list[str]()
    for number, place in enumerate(places):
        paths.params.write_text(dumps_yaml(replaced(tree, place, NAMES[number % 3])))
        wrong += [
            f"{'/'.join(map(str, place))}: {line}"
            for line in _attempt(warm, paths, *(["policy"] if number % 2 else []))
        ]

    assert len(places) >= 25
    assert wrong == []


def test_H2_no_change_of_a_session_names_code(warm: Cold, paths: SessionPaths) -> None:
    changes: list[tuple[str, Any]] = [
        ("/env/from_module", "canary_module"),
        ("/env/model_name", "canary_module:Canary-v0"),
        ("/env/env_kwargs", {"entry_point": "canary_module:Canary"}),
        ("/env/play_env_kwargs", {"entry_point": "canary_module:Canary", "vector_entry_point": "canary_module:Canary"}),
        ("/env/play_env_kwargs", {"additional_wrappers": ["canary_module:Canary"], "type": "canary_module:Canary"}),
        ("/env/info_keys", ["canary_module:Canary"]),
        ("/runner/init_from", "canary_module:Canary"),
        ("/runner/on_epoch", "canary_module:Canary"),
        ("/agents/agent/model", {"type": "canary_module:Canary"}),
        ("/agents/canary_module:Canary", {"type": "canary_module:Canary"}),
        ("/engine/device", "canary_module:Canary"),
        ("/engine/chosen", {"device": "canary_module:Canary", "type": "canary_module:Canary"}),
        ("/memory/train", {"type": "canary_module:Canary"}),
    ]
    wrong: list[str] = []
    for path, new in changes:
        paths.repeal.write_text(json.dumps([{"path": path, "old": None, "new": new, "epoch": 0, "time": ""}]))
        wrong += [f"{path}: {line}" for line in _attempt(warm, paths)]

    assert wrong == []


def test_H2_an_environment_that_makes_others_by_name_is_code(cold: Cold, paths: SessionPaths) -> None:
    wrong: list[str] = []
    for name in ("GymV21Environment-v0", "GymV26Environment-v0", "shimmy:GymV26Environment-v0"):
        changes = {"/env/model_name": name, "/env/env_kwargs": {"env_id": "canary_module:Canary-v0"}}
        entries = [{"path": path, "old": None, "new": new, "epoch": 0, "time": ""} for path, new in changes.items()]
        paths.repeal.write_text(json.dumps(entries))
        answer = cold.ask("main", "--load-checkpoint", str(paths.root), "--play", cwd=paths.root.parent)
        if answer.code != 6 or "module 'gym'" not in answer.err:
            wrong.append(f"{answer}")

    assert wrong == []


def test_H2_no_text_of_a_checkpoint_names_code(warm: Cold, paths: SessionPaths) -> None:
    checkpoint = paths.checkpoint(1)
    manifest, state = (json.loads((checkpoint / name).read_text()) for name in ("MANIFEST.json", "state.json"))
    whole = {name: (checkpoint / name).read_bytes() for name in ("MANIFEST.json", "state.json")}
    manifest_places = [place for place in leaves(manifest) if place[0] not in ("manifest_sha256", "files")]
    state_places = [place for place in leaves(state) if not str(place[-1]).startswith("clock")]
    wrong: list[str] = []
    for number, place in enumerate(manifest_places):
        rewrite_manifest(checkpoint, {place[0]: replaced(manifest, place, NAMES[number % 3])[place[0]]})
        wrong += [f"manifest {place}: {line}" for line in _attempt(warm, paths, "checkpoints")]
        (checkpoint / "MANIFEST.json").write_bytes(whole["MANIFEST.json"])
    for number, place in enumerate(state_places[:: max(1, len(state_places) // 12)]):
        rewrite_file(checkpoint, "state.json", json.dumps(replaced(state, place, NAMES[number % 3])).encode())
        wrong += [f"state {place}: {line}" for line in _attempt(warm, paths, "policy")]
        for name, content in whole.items():
            (checkpoint / name).write_bytes(content)

    assert manifest_places and state_places
    assert wrong == []


@pytest.mark.parametrize("name", ["meta.json", "cpanel.json", "summary.json", "modules/contents.json"])
def test_H2_no_text_of_another_file_names_code(warm: Cold, paths: SessionPaths, name: str) -> None:
    file = paths.root / name
    content = json.loads(file.read_text())
    places = [place for place in leaves(content) if "files" not in place and place[-1] != "id"]
    wrong: list[str] = []
    for number, place in enumerate(places[:: max(1, len(places) // 8)]):
        file.write_text(json.dumps(replaced(content, place, NAMES[number % 3])))
        wrong += [f"{place}: {line}" for line in _attempt(warm, paths, "params", "summary", "checkpoints")]

    assert places
    assert wrong == []
