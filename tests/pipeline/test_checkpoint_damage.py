from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_meta import reseal

from digideep.errors import CheckpointError
from digideep.pipeline.checkpoint import CheckpointMeta, CheckpointStore, Component, NewerFormatError

META = CheckpointMeta(
    epoch=1,
    cycle=2,
    frame=3,
    episode=4,
    exactness="exact",
    parent=None,
    versions={"numpy": "2.4"},
    threads={"torch": 1},
    device="cpu",
    params_sha256="ab" * 32,
)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Two whole checkpoints, 1 and 2."""
    store = CheckpointStore(tmp_path / "checkpoints", session_id="session", run_id="run")
    for number in (1, 2):
        weights = np.random.default_rng(number).normal(size=(8, 8)).astype("float32")
        parts = [
            Component("agents.agent", "ppo", 1, {"w": weights, "b": np.arange(3)}),
            Component("memory.train", "rollbuffer", 1, {"rows": np.arange(50, dtype="int16")}),
            Component("runner", "runner", 1, {"epoch": number, "pending": ["test"]}),
        ]
        store.save(number, parts, meta=META, logs={"varlog.jsonl": 5})
    return store


def files_of(store: CheckpointStore) -> list[Path]:
    return sorted(store.path(2).iterdir())


def assert_noticed(store: CheckpointStore, what: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    assert store.verify(2) != [], what
    assert store.load().number == 1, what
    assert len(caplog.records) == 1, what
    with pytest.raises(CheckpointError):
        store.load(2)


def test_surplus_files_are_noticed(store: CheckpointStore, caplog: pytest.LogCaptureFixture) -> None:
    (store.path(2) / "extra.safetensors").write_bytes(b"")

    assert_noticed(store, "surplus", caplog)
    assert store.verify(2) == ["missing files: none; surplus files: extra.safetensors"]


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "device"])
@pytest.mark.parametrize("name", ["MANIFEST.json", "state.json", "agents.agent.safetensors"])
def test_what_is_no_regular_file_is_refused_without_hanging(
    store: CheckpointStore, kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.path(2) / name
    path.rename(store.directory / "aside")
    if kind == "link":
        path.symlink_to(store.directory / "aside")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")

    assert_noticed(store, kind, caplog)


@pytest.mark.parametrize("name", ["../aside", "/etc/hostname", ".hidden", "a/b", "MANIFEST.json", "", "x\ny"])
def test_file_names_that_lead_elsewhere_are_refused(store: CheckpointStore, name: str) -> None:
    def change(fields: dict[str, Any]) -> None:
        fields["files"][name] = fields["files"]["state.json"]

    reseal(store.path(2), change)

    (reason,) = store.verify(2)
    assert reason.startswith("MANIFEST.json: unusable value of files")
    assert "\n" not in reason


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another format": lambda fields: fields.update(format="other"),
    "version 0": lambda fields: fields.update(format_version=0),
    "version as text": lambda fields: fields.update(format_version="1"),
    "no session": lambda fields: fields.pop("session_id"),
    "session of another shape": lambda fields: fields.update(session_id="../x"),
    "negative frame": lambda fields: fields.update(frame=-1),
    "frame as float": lambda fields: fields.update(frame=1.5),
    "frame as flag": lambda fields: fields.update(frame=True),
    "no files": lambda fields: fields.pop("files"),
    "files as list": lambda fields: fields.update(files=[]),
    "state not listed": lambda fields: fields["files"].pop("state.json"),
    "short hash": lambda fields: fields["files"]["state.json"].update(sha256="00"),
    "size as text": lambda fields: fields["files"]["state.json"].update(bytes="1"),
    "file without record": lambda fields: fields["files"].update({"state.json": None}),
    "components as list": lambda fields: fields.update(components=[]),
    "component left out": lambda fields: fields["components"].pop("agents.agent"),
    "component without file": lambda fields: fields["components"]["agents.agent"].update(files=[]),
    "file of two components": lambda fields: fields["components"]["runner"].update(files=["agents.agent.safetensors"]),
    "component path": lambda fields: fields["components"].update({"../x": fields["components"].pop("runner")}),
    "log outside": lambda fields: fields.update(logs={"../../x": 1}),
    "log length": lambda fields: fields.update(logs={"x": -1}),
    "logs as list": lambda fields: fields.update(logs=[]),
    "parent as number": lambda fields: fields.update(parent=1),
    "another number": lambda fields: fields.update(number=5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_hostile_manifest_is_refused_even_where_its_hash_fits(
    store: CheckpointStore, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    reseal(store.path(2), lambda fields: CHANGES[name](fields) and None)

    assert_noticed(store, name, caplog)


def test_components_have_to_be_those_of_the_manifest(store: CheckpointStore) -> None:
    reseal(store.path(2), lambda fields: fields["components"].update(other={"kind": "x", "version": 1, "files": []}))

    with pytest.raises(CheckpointError, match="its components are not those of the manifest"):
        store.load(2)


def test_a_newer_format_is_refused_in_one_line_and_nothing_older_is_taken(store: CheckpointStore) -> None:
    reseal(store.path(2), lambda fields: fields.update(format_version=2))

    with pytest.raises(NewerFormatError, match=r"checkpoint-2: format_version 2 is newer than 1, which this") as caught:
        store.load()

    assert "\n" not in str(caught.value)
    assert store.load(1).number == 1


def test_a_newer_format_without_its_hash_says_so_too(store: CheckpointStore) -> None:
    path = store.path(2) / "MANIFEST.json"
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 2'))

    with pytest.raises(CheckpointError, match="format_version 2 is newer than 1"):
        store.load(2)


def test_deep_and_huge_json_is_refused(store: CheckpointStore) -> None:
    path = store.path(2) / "MANIFEST.json"
    path.write_text("[" * 100_000)
    assert "nested levels" in store.verify(2)[0]

    path.unlink()
    with path.open("wb") as file:
        file.truncate(100 << 20)
    assert "more than 4194304 bytes" in store.verify(2)[0]


def test_a_state_that_nobody_means_to_load_is_refused_and_never_parsed(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, size = store.path(2) / "state.json", 60 << 20
    with path.open("wb") as file:
        file.truncate(size)
    record = {"bytes": size, "sha256": sha256(path.read_bytes()).hexdigest()}
    reseal(store.path(2), lambda fields: fields["files"].update({"state.json": record}))
    monkeypatch.setattr("digideep.pipeline.verified.loads_json", lambda *a, **k: pytest.fail("parsed"))

    with pytest.raises(CheckpointError, match=r"state\.json: expected at most 16777216 bytes, found 62914560"):
        store.load(2)


def test_a_damaged_state_is_refused_by_its_hash_and_never_parsed(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store.path(2) / "state.json"
    path.write_text("[" * path.stat().st_size)
    monkeypatch.setattr("digideep.pipeline.verified.loads_json", lambda *a, **k: pytest.fail("parsed"))

    with pytest.raises(CheckpointError, match=r"state\.json: its sha256 is"):
        store.load(2)


def test_names_in_damaged_files_cannot_forge_output(store: CheckpointStore) -> None:
    (store.path(2) / "x\n\x1b[31mok").write_text("")

    (reason,) = store.verify(2)

    assert "\n" not in reason
    assert "\x1b" not in reason


def test_verifying_changes_nothing_and_gives_every_reason(store: CheckpointStore) -> None:
    for name in ("state.json", "agents.agent.safetensors"):
        (store.path(2) / name).write_bytes(b"x")
    before = {path: path.stat().st_mtime_ns for path in store.directory.rglob("*")}

    reasons = store.verify(2)

    assert sorted(reason.partition(":")[0] for reason in reasons) == ["agents.agent.safetensors", "state.json"]
    assert {path: path.stat().st_mtime_ns for path in store.directory.rglob("*")} == before
