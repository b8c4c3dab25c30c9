from __future__ import annotations

import json
import logging
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from digideep.errors import CheckpointError, EnvironmentFailure, NonFiniteError, UsageError
from digideep.pipeline.checkpoint import CheckpointMeta, CheckpointStore, Component, NoCheckpointError
from digideep.pipeline.filesystem import RealFileSystem
from digideep.utility.codec import CodecError

SESSION = "0b1c8a52-6f0e-4b54-9a8e-2f6f6c1b7d10"


def meta(number: int) -> CheckpointMeta:
    return CheckpointMeta(
        epoch=number // 2,
        cycle=number,
        frame=number * 64,
        episode=number * 3,
        exactness="exact",
        parent=None,
        versions={"numpy": "2.4"},
        threads={"torch": 1},
        device="cpu",
        params_sha256="ab" * 32,
    )


def components(number: int) -> list[Component]:
    rng = np.random.default_rng(number)
    return [
        Component(
            "agents.agent", "ppo", 1, {"policy": {"weight": rng.normal(size=(4, 3)).astype("float32")}, "lr": 0.1}
        ),
        Component("statistics", "running", 1, {"mean": rng.normal(size=4), "count": number}),
        Component("rng", "generators", 1, {"numpy": rng.bit_generator.state, "python": (3, (1, 2), None)}),
        Component("clocks", "clocks", 1, {"timers": {"total": 0.5 * number}, "window": np.ones(2)}),
    ]


def store_in(directory: Path, *, run_id: str = "run1") -> CheckpointStore:
    return CheckpointStore(directory / "checkpoints", session_id=SESSION, run_id=run_id)


def save(store: CheckpointStore, number: int, parts: Sequence[Component] | None = None) -> Path:
    return store.save(number, parts or components(number), meta=meta(number), logs={"varlog.jsonl": 10 * number})


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    path = save(store_in(tmp_path), 4)

    loaded = store_in(tmp_path, run_id="run2").load()

    assert path == loaded.path == tmp_path / "checkpoints" / "checkpoint-4"
    assert loaded.number == 4
    for component in components(4):
        np.testing.assert_equal(loaded.components[component.name], component.state)
    assert loaded.components["rng"]["python"] == (3, (1, 2), None)
    assert loaded.manifest["logs"] == {"varlog.jsonl": 40}
    assert loaded.manifest["frame"] == 256
    assert loaded.manifest["components"]["rng"] == {"kind": "generators", "version": 1, "files": []}


def test_clocks_stand_under_one_key_of_the_state_and_in_no_tensor_file(tmp_path: Path) -> None:
    path = save(store_in(tmp_path), 4)

    state = json.loads((path / "state.json").read_text())

    files = ["MANIFEST.json", "agents.agent.safetensors", "state.json", "statistics.safetensors"]
    assert sorted(os.listdir(path)) == files
    assert list(state) == ["agents.agent", "statistics", "rng", "clocks"]
    assert state["clocks"]["timers"] == {"total": 2.0}


def test_only_the_owner_can_read_a_checkpoint(tmp_path: Path) -> None:
    path = save(store_in(tmp_path), 4)

    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    first = save(store_in(tmp_path / "a", run_id="x"), 4)
    second = save(store_in(tmp_path / "b", run_id="y"), 4)

    assert tree(first) == tree(second)


def test_loading_and_saving_again_changes_no_byte(tmp_path: Path) -> None:
    first = save(store_in(tmp_path), 4)
    loaded = store_in(tmp_path).load()
    again = [Component(c.name, c.kind, c.version, loaded.components[c.name]) for c in components(4)]
    (tmp_path / "second").mkdir()

    second = save(store_in(tmp_path / "second"), 4, again)

    assert tree(first) == tree(second)


def test_a_number_is_written_once(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    path = save(store, 4)
    before = tree(path), path.stat().st_ino

    again = save(store, 4, components(5))

    assert again == path
    assert (tree(path), path.stat().st_ino) == before


def test_a_damaged_checkpoint_is_written_anew(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    path = save(store, 4)
    (path / "state.json").write_text("{}")

    save(store, 4)

    assert store.verify(4) == []
    assert os.listdir(store.directory) == ["checkpoint-4"]


def test_a_save_holds_the_state_as_of_the_call(tmp_path: Path) -> None:
    store, weight = store_in(tmp_path), np.zeros(3)
    save(store, 1, [Component("agents.agent", "ppo", 1, {"w": weight})])
    weight[:] = 1.0
    save(store, 2, [Component("agents.agent", "ppo", 1, {"w": weight})])
    weight[:] = 2.0

    assert store.load(1).components["agents.agent"]["w"].tolist() == [0.0, 0.0, 0.0]
    assert store.load(2).components["agents.agent"]["w"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["agents.agent", "statistics"])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_never_committed(tmp_path: Path, name: str, poison: float) -> None:
    store, weight = store_in(tmp_path), np.ones((3, 4))
    weight[1, 2] = poison

    with pytest.raises(NonFiniteError, match=rf"{name}: expected finite numbers, found \S+ at \(1, 2\) of /w"):
        save(store, 1, [Component(name, "x", 1, {"w": weight})])

    assert store.numbers() == []
    assert not (tmp_path / "checkpoints").exists()


def test_large_finite_numbers_are_no_alarm(tmp_path: Path) -> None:
    weights = {"a": np.full(9, 3e38, dtype=np.float32), "b": np.full(9, 6e4, dtype=np.float16), "c": np.zeros((0, 2))}

    save(store_in(tmp_path), 1, [Component("agents.agent", "ppo", 1, weights)])

    assert store_in(tmp_path).verify(1) == []


def test_infinity_in_an_environments_state_is_its_own_business(tmp_path: Path) -> None:
    save(store_in(tmp_path), 1, [Component("explorer.train", "explorer", 1, {"best": np.array([-np.inf])})])

    assert store_in(tmp_path).load().components["explorer.train"]["best"].tolist() == [-np.inf]


def test_a_state_that_cannot_be_stored_names_component_and_place(tmp_path: Path) -> None:
    with pytest.raises(CodecError, match=r"agents\.agent at /net/0: expected plain data"):
        save(store_in(tmp_path), 1, [Component("agents.agent", "agent", 1, {"net": [object()]})])

    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(("state", "found"), [([object()], "at /env/0: expected plain data"), ("x", "at most 5 bytes")])
def test_environments_whose_state_cannot_be_stored_are_the_users_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: Any, found: str
) -> None:
    monkeypatch.setattr("digideep.pipeline.contents.STATE_LIMIT_BYTES", 5)

    with pytest.raises(EnvironmentFailure, match=f"explorer.train: state of the environments: .*{found}.*num_envs"):
        save(store_in(tmp_path), 1, [Component("explorer.train", "explorer", 1, {"env": state})])

    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    "names", [["../x"], ["a/b"], [".hidden"], [""], ["manifest"], ["state"], ["a", "A"], ["a" * 101]]
)
def test_component_names_that_are_no_file_names_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(CodecError, match="expected a unique dotted name"):
        save(store_in(tmp_path), 1, [Component(name, "x", 1, None) for name in names])


@pytest.mark.parametrize("logs", [{"../x": 1}, {"/x": 1}, {"a//b": 1}, {"": 1}, {"x": -1}, {"x": True}, {"a\\b": 1}])
def test_log_names_lead_nowhere_else(tmp_path: Path, logs: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="logs: expected a relative file"):
        store_in(tmp_path).save(1, components(1), meta=meta(1), logs=logs)


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", "a\n"])
def test_run_ids_that_are_no_file_names_are_refused(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(UsageError, match="run id: expected letters"):
        CheckpointStore(tmp_path, session_id=SESSION, run_id=run_id)


def test_a_number_that_no_path_can_name_is_none_of_ours(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    save(store, 4)
    (store.directory / f"checkpoint-{10**19}").mkdir()

    assert store.numbers() == [4]
    assert store.load().manifest["number"] == 4


def test_numbers_are_those_of_directories_and_ascend(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for name in ("checkpoint-10", "checkpoint-9", "checkpoint-0", "checkpoint-01", "checkpoint-1x", "checkpoint--1"):
        (store.directory / name).mkdir(parents=True)
    (store.directory / "checkpoint-٣").mkdir()
    (store.directory / "checkpoint-7").write_text("a file")
    (store.directory / "checkpoint-8").symlink_to("checkpoint-9")
    (store.directory / ".tmp-11-run").mkdir()

    assert store.numbers() == [0, 9, 10]


def test_none_ever_saved_differs_from_all_damaged(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with pytest.raises(NoCheckpointError):
        store.load()
    for number in (1, 2):
        (save(store, number) / "state.json").unlink()

    with pytest.raises(
        CheckpointError, match=r"all 2 damaged: checkpoint-2: missing files: state\.json.*checkpoint-1: "
    ) as e:
        store.load()

    assert not isinstance(e.value, NoCheckpointError)


def test_falling_back_warns_once_for_each_checkpoint_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_in(tmp_path)
    for number in (1, 2, 3):
        save(store, number)
    (store.path(3) / "state.json").write_text("")
    (store.path(2) / "MANIFEST.json").unlink()

    with caplog.at_level(logging.WARNING):
        loaded = store.load()

    assert loaded.number == 1
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "checkpoint-3: state.json: expected" in caplog.messages[0]
    assert "checkpoint-2: MANIFEST.json: missing" in caplog.messages[1]


def test_a_checkpoint_asked_for_by_number_never_falls_back(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    for number in (1, 2):
        save(store, number)
    (store.path(2) / "state.json").write_text("")

    with pytest.raises(CheckpointError, match=r"checkpoint-2: state\.json"):
        store.load(2)
    with pytest.raises(CheckpointError, match="checkpoint-5: expected a checkpoint, found only: 1, 2"):
        store.load(5)
    assert store.load(1).number == 1


def test_a_session_that_was_copied_elsewhere_loads(tmp_path: Path) -> None:
    save(store_in(tmp_path), 4)
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "elsewhere" / "checkpoints")
    shutil.rmtree(tmp_path / "checkpoints")

    assert store_in(tmp_path / "elsewhere").load().number == 4
    assert str(tmp_path) not in (tmp_path / "elsewhere/checkpoints/checkpoint-4/MANIFEST.json").read_text()


def test_a_checkpoint_of_another_session_is_refused(tmp_path: Path) -> None:
    save(store_in(tmp_path), 4)
    other = CheckpointStore(tmp_path / "checkpoints", session_id="another", run_id="r")
    anybody = CheckpointStore(tmp_path / "checkpoints", session_id="", run_id="r")

    with pytest.raises(CheckpointError, match=f"it belongs to the session {SESSION}, not to another"):
        other.load()
    assert anybody.load().number == 4


def test_checkpoints_behind_a_link_are_refused(tmp_path: Path) -> None:
    save(store_in(tmp_path), 4)
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "checkpoints").symlink_to(tmp_path / "checkpoints")

    with pytest.raises(CheckpointError, match="found no directory, or only a link to one"):
        store_in(tmp_path / "session").load()


@pytest.mark.parametrize("change", [{"frame": 1.5}, {"episode": -1}, {"device": None}, {"versions": []}, {"parent": 3}])
def test_what_the_reader_would_refuse_is_not_announced(tmp_path: Path, change: dict[str, Any]) -> None:
    store = store_in(tmp_path)

    with pytest.raises(CheckpointError, match="unusable value of"):
        store.save(1, components(1), meta=meta(1)._replace(**change), logs={})

    assert os.listdir(store.directory) == []


def test_a_store_without_a_session_only_reads(tmp_path: Path) -> None:
    anybody = CheckpointStore(tmp_path / "checkpoints", session_id="", run_id="r")

    with pytest.raises(CheckpointError, match="unusable value of session_id"):
        save(anybody, 1)


def test_a_checkpoint_that_training_removes_while_it_is_read_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class RacingFileSystem(RealFileSystem):
        """Retention of the training process runs just as the reader opens its first file."""

        raced = False

        def open_for_reading(self, path: Path) -> int:
            if not self.raced:
                self.raced = True
                save(training, 2)
                training.retain(keep_last=1, keep_best=0, keep_every=0, best=[])
            return super().open_for_reading(path)

    training = store_in(tmp_path)
    save(training, 1)
    reader = CheckpointStore(tmp_path / "checkpoints", session_id=SESSION, run_id="play", fs=RacingFileSystem())

    loaded = reader.load()

    assert loaded.number == 2
    assert caplog.records == []
