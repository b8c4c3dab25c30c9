"""H4: no way out of the session folder: names that lead elsewhere are refused, and nothing outside is touched."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cold import Cold, entries
from hostile import rewrite_manifest

from digideep import sessions
from digideep.errors import CheckpointError, UsageError
from digideep.pipeline.checkpoint import CheckpointStore
from digideep.pipeline.layout import SessionPaths, check_session
from digideep.pipeline.snapshot import differing_files

OUT = [
    "../../outside", "/etc/passwd", "..", ".", "", "a/b", "a\0b", "~/x", "x" * 300, "-rf", ".hidden", "a\nb",
    "\u2215etc", "checkpoint-1/../../x", "a\\b",
]  # fmt: skip
LEADING_OUT = ["../../outside", "/etc/passwd", "..", "checkpoint-1/../../x", "monitor/../../x", "", "a\0b"]
NEARLY = [
    "checkpoint-1 ", "checkpoint-01", "checkpoint--1", "checkpoint-1\n", "checkpoint-", "checkpoint-1e3",
    "checkpoint-9999999999999999999", "checkpoint-\u0661",
]  # fmt: skip


@pytest.fixture
def paths(trained: Path, tmp_path: Path) -> SessionPaths:
    """A trained session of somebody else's, beside a directory that must stay as it is."""
    shutil.copytree(trained, tmp_path / "place" / "s")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "state.json").write_text("{}")
    return SessionPaths(tmp_path / "place" / "s")


def _refuses(paths: SessionPaths, changes: dict[str, object]) -> bool:
    """Whether a checkpoint is refused after its manifest was changed and sealed again."""
    checkpoint = paths.checkpoint(1)
    whole = (checkpoint / "MANIFEST.json").read_bytes()
    rewrite_manifest(checkpoint, changes)
    try:
        CheckpointStore(paths.checkpoints, session_id="", run_id="look").load(1)
    except CheckpointError:
        return True
    finally:
        (checkpoint / "MANIFEST.json").write_bytes(whole)
    return False


def test_H4_a_manifest_cannot_name_files_elsewhere(paths: SessionPaths) -> None:
    fields = json.loads((paths.checkpoint(1) / "MANIFEST.json").read_text())
    files, components, logs = fields["files"], fields["components"], fields["logs"]
    record, taken = files["state.json"], list[str]()
    for name in OUT:
        changes: list[dict[str, object]] = [
            {"files": {**files, name: record}},
            {"files": {name if key == "state.json" else key: value for key, value in files.items()}},
            {"components": {**components, name: {"kind": "x", "version": 1, "files": []}}},
            {"components": {**components, "rng": {"kind": "x", "version": 1, "files": [name]}}},
        ]
        taken += [f"{name!r} {list(change)}" for change in changes if not _refuses(paths, change)]
    taken += [f"log {name!r}" for name in LEADING_OUT if not _refuses(paths, {"logs": {**logs, name: 0}})]

    assert taken == []
    assert not _refuses(paths, {}), "what is changed by nothing is whole"


@pytest.mark.parametrize("name", NEARLY)
def test_H4_names_that_are_nearly_those_of_checkpoints_are_foreign(paths: SessionPaths, name: str) -> None:
    shutil.copytree(paths.checkpoint(1), paths.checkpoints / name)

    assert CheckpointStore(paths.checkpoints, session_id="", run_id="look").numbers() == [0, 1]


def test_H4_links_among_checkpoints_are_neither_read_nor_followed(
    warm: Cold, paths: SessionPaths, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    for name in ("checkpoint-7", ".tmp-1-x", ".trash-1-x", ".superseded-1", "notes"):
        (paths.checkpoints / name).symlink_to(outside)
    before = entries(outside)

    ended = warm.ask("main", "--load-checkpoint", str(paths.root), "--resume", cwd=paths.root.parent)

    assert ended.code == 0, ended
    assert "resumes from checkpoint-1" in ended.err
    assert entries(outside) == before


@pytest.mark.parametrize("name", ["../outside", "/etc", "..", "a/b", "", ".", "x" * 200, "evil\n"])
def test_H4_the_table_of_modules_cannot_name_files_elsewhere(paths: SessionPaths, name: str) -> None:
    file = paths.modules / "contents.json"
    content = json.loads(file.read_text())
    for table in ("copied", "listed"):
        changed = {**content[table], name: {"source": "/etc", "files": {"x": "0"}}}
        file.write_text(json.dumps({**content, table: changed}))
        with pytest.raises(UsageError, match=r"contents\.json"):
            differing_files(paths.modules)


def test_H4_what_a_session_says_about_this_machine_is_not_looked_at(paths: SessionPaths, tmp_path: Path) -> None:
    trap = tmp_path / "outside" / "trap"
    trap.mkdir()
    os.mkfifo(trap / "__init__.py")
    (trap / "code.py").write_text("x = 1\n")
    file = paths.modules / "contents.json"
    content = json.loads(file.read_text())
    content["copied"]["trap"] = {"source": str(trap), "files": {"trap/code.py": "0" * 64}}
    shutil.copytree(paths.modules / "digideep" / "params", paths.modules / "trap")
    file.write_text(json.dumps(content))

    assert "trap" in differing_files(paths.modules)
    assert "trap/code.py" in differing_files(paths.modules, trusted=True)


@pytest.mark.parametrize("name", ["session_1/../session_2", "session_1/.", "./session_1", "session_1//"])
def test_H4_a_path_with_detours_is_the_place_it_leads_to(
    new_session: Callable[..., SessionPaths], tmp_path: Path, name: str
) -> None:
    new_session("session_1")
    new_session("session_2")

    assert check_session(tmp_path / name).root.parent == tmp_path


@pytest.mark.parametrize("name", ["checkpoints", "modules", "running.lock", "varlog.jsonl", "signature.json", "monitor",
                                  "evaluations", "crash", "tensorboard", "videos"])  # fmt: skip
def test_H4_links_out_of_the_session_are_not_followed(
    new_session: Callable[..., SessionPaths], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = new_session()
    outside = tmp_path / "outside"
    outside.mkdir()
    if (paths.root / name).exists():
        (paths.root / name).rename(tmp_path / "former")
    (paths.root / name).symlink_to(outside)

    codes = [sessions.main([command, str(paths.root)]) for command in ("show", "fsck")]

    assert codes == [2, 2]
    assert name in capsys.readouterr().err
    assert list(outside.iterdir()) == []


def test_H4_results_of_a_play_lie_where_they_were_asked_for(warm: Cold, paths: SessionPaths, tmp_path: Path) -> None:
    before = entries(paths.root)
    named = ["main", "--load-checkpoint", str(paths.root), "--play", "--episodes", "1"]

    ended = warm.ask(*named, "--output", str(tmp_path / "results"), cwd=tmp_path)
    refused = warm.ask(*named, "--output", str(paths.meta / "below"), cwd=tmp_path)

    assert (ended.code, refused.code) == (0, 2), (ended, refused)
    assert (tmp_path / "results" / "results.json").exists()
    assert entries(paths.root) == before
