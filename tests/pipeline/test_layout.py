"""Where sessions lie, what they are called, and what is said of a directory that is none."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from digideep.errors import CheckpointError, UsageError
from digideep.pipeline import places
from digideep.pipeline.layout import (
    SessionPaths,
    check_session,
    checkpoint_number,
    is_volatile,
    new_session_directory,
    resolve_checkpoint,
    session_root,
    template_directory,
)

NOW = datetime(2026, 11, 29, 16, 11, 5, tzinfo=UTC)
Maker = Callable[..., SessionPaths]


def test_paths_are_those_of_the_contract() -> None:
    paths = SessionPaths(Path("/runs/session_1"))

    assert str(paths.varlog) == "/runs/session_1/varlog.jsonl"
    assert str(paths.checkpoint(1200)) == "/runs/session_1/checkpoints/checkpoint-1200"
    assert paths.name == "session_1"


def test_a_named_place_comes_before_the_environment_variable_and_that_before_tmp(tmp_path: Path) -> None:
    environ = {"DIGIDEEP_SESSIONS": str(tmp_path / "variable")}

    assert session_root(tmp_path / "named", environ=environ) == tmp_path / "named"
    assert session_root(environ=environ) == tmp_path / "variable"
    assert session_root(environ={}, create=False) == Path("/tmp/digideep_sessions")
    assert (tmp_path / "named").is_dir()


def test_the_default_place_is_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "DEFAULT_ROOT", tmp_path / "digideep_sessions")

    root = session_root(environ={})

    assert root == tmp_path / "digideep_sessions"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert session_root(environ={}) == root


def test_another_users_default_place_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "DEFAULT_ROOT", tmp_path / "digideep_sessions")
    (tmp_path / "digideep_sessions").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 54321)

    assert session_root(environ={}) == tmp_path / "digideep_sessions-54321"


def test_a_link_where_the_default_place_should_be_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "DEFAULT_ROOT", tmp_path / "digideep_sessions")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "digideep_sessions").symlink_to(tmp_path / "elsewhere")

    assert session_root(environ={}).name.startswith("digideep_sessions-")


@pytest.mark.parametrize("name", ["x" * 300, "file/below", "loop/below", "closed/below", "closed/below/deeper"])
def test_a_place_that_cannot_be_is_one_line_with_the_option(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "closed").mkdir(mode=0o500 if os.geteuid() else 0o700)
    if not os.geteuid() and name.startswith("closed"):
        name = "file/below"

    with pytest.raises(UsageError, match=r"^--session-path: expected a directory that can be made, found [A-Z]"):
        session_root(tmp_path / name)
    with pytest.raises(UsageError, match=r"^DIGIDEEP_SESSIONS: expected a directory that can be made, found [A-Z]"):
        session_root(environ={"DIGIDEEP_SESSIONS": str(tmp_path / name)})


@pytest.mark.parametrize("option", ["--load-checkpoint", "init_from"])
@pytest.mark.parametrize("name", ["x" * 300, "nothing", "loop", "checkpoints/checkpoint-3"])
def test_a_checkpoint_that_cannot_be_is_told_with_the_option_that_named_it(
    tmp_path: Path, name: str, option: str
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    with pytest.raises(UsageError, match=r"expected a session") as caught:
        resolve_checkpoint(tmp_path / name, option=option)

    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith((f"{option}: ", str(tmp_path)))


def test_nothing_is_made_where_nothing_should_be_left(tmp_path: Path) -> None:
    assert session_root(tmp_path / "a" / "b", create=False) == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("bad", ["", "with\0nul"])
def test_a_place_that_cannot_be_is_a_usage_error(bad: str) -> None:
    with pytest.raises(UsageError, match="--session-path: expected a path"):
        session_root(bad)


def test_a_file_is_no_place_for_sessions(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="found a file"):
        session_root(tmp_path / "file")


def test_places_that_a_reboot_empties_are_known(tmp_path: Path) -> None:
    assert is_volatile(Path("/tmp/digideep_sessions"))
    assert is_volatile(Path("/dev/shm/x"))
    assert not is_volatile(Path("/home/somebody/runs"))
    assert not is_volatile(Path("/tmpfoo/runs"))


def test_sessions_of_one_second_are_distinct(tmp_path: Path) -> None:
    names: list[str] = []
    barrier = threading.Barrier(16)

    def make() -> None:
        barrier.wait()
        names.append(new_session_directory(tmp_path, None, NOW).name)

    threads = [threading.Thread(target=make) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(names, key=len)[0] == "session_20261129161105"
    assert set(names) == {"session_20261129161105", *(f"session_20261129161105_{n}" for n in range(2, 17))}


def test_an_existing_name_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    new_session_directory(tmp_path, "tug-lr0.1", NOW)

    with pytest.raises(UsageError, match=r"expected a new name, found .*tug-lr0.1; .*--autoresume or --resume"):
        new_session_directory(tmp_path, "tug-lr0.1", NOW)


@pytest.mark.parametrize("name", ["", "../x", "/abs", "1st", "a b", "x" * 82, "a/b", "a\nb", "-a", ".a"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--session-name: expected"):
        new_session_directory(tmp_path / "root", name, NOW)

    assert list((tmp_path / "root").iterdir()) == []


def test_checkpoint_names_are_matched_as_a_whole() -> None:
    names = ["checkpoint-0", "checkpoint-12", "checkpoint-012", "checkpoint-1x", "xcheckpoint-1", "checkpoint-1\n"]

    assert [checkpoint_number(name) for name in names] == [0, 12, None, None, None, None]


def test_a_session_is_recognised(new_session: Maker) -> None:
    paths = new_session()

    assert check_session(str(paths.root) + "/").root == paths.root


@pytest.mark.parametrize("name", ["meta.json", "cpanel.json", "params.yaml", "repeal.json"])
@pytest.mark.parametrize("what", ["missing", "link", "fifo", "directory", "outside"])
def test_a_file_that_is_no_regular_file_is_one_line(new_session: Maker, name: str, what: str) -> None:
    file = new_session().root / name
    file.rename(file.with_suffix(".kept"))
    if what == "link":
        file.symlink_to("/etc/passwd")
    elif what == "outside":
        file.symlink_to(file.with_suffix(".kept"))
    elif what == "fifo":
        os.mkfifo(file)
    elif what == "directory":
        file.mkdir()

    with pytest.raises(UsageError) as caught:
        check_session(file.parent)

    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["meta.json", "cpanel.json", "repeal.json"])
@pytest.mark.parametrize("content", ["", "{", "3", '{"a": 1, "a": 2}', "[" * 5000, '{"format": NaN}', "\x00"])
def test_a_malformed_file_is_one_line_that_names_it(new_session: Maker, name: str, content: str) -> None:
    paths = new_session()
    (paths.root / name).write_text(content)

    with pytest.raises(UsageError, match=name.replace(".", r"\.")) as caught:
        check_session(paths.root)

    assert "\n" not in str(caught.value)


def test_a_later_version_is_refused(new_session: Maker) -> None:
    paths = new_session()
    paths.meta.write_text(json.dumps({**json.loads(paths.meta.read_text()), "version": 2}))

    with pytest.raises(UsageError, match="expected a version up to 1, found 2; it needs a newer digideep"):
        check_session(paths.root)


def test_a_link_in_place_of_a_directory_of_the_session_is_refused(new_session: Maker, tmp_path: Path) -> None:
    paths = new_session()
    (tmp_path / "outside").mkdir()
    paths.checkpoints.symlink_to(tmp_path / "outside")

    with pytest.raises(UsageError, match=r"checkpoints: expected a directory, found a link"):
        check_session(paths.root)


def _checkpoint(paths: SessionPaths, number: int) -> Path:
    paths.checkpoint(number).mkdir(parents=True)
    (paths.checkpoint(number) / "MANIFEST.json").write_text("{}")
    return paths.checkpoint(number)


def test_a_checkpoint_or_its_session_may_be_named(new_session: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = new_session()
    _checkpoint(paths, 7)
    monkeypatch.chdir(paths.checkpoints)

    assert resolve_checkpoint(paths.root) == (paths, None)
    assert resolve_checkpoint(paths.checkpoint(7)) == (paths, 7)
    assert resolve_checkpoint("checkpoint-7") == (paths, 7)
    assert resolve_checkpoint("..") == (paths, None)


def test_a_checkpoint_that_is_not_there_is_told_with_those_that_are(new_session: Maker) -> None:
    paths = new_session()
    _checkpoint(paths, 7)
    (paths.checkpoints / "checkpoint-9").symlink_to(paths.checkpoint(7))
    (paths.checkpoints / "checkpoint-8").mkdir()

    with pytest.raises(CheckpointError, match=r"checkpoint-3: expected a checkpoint, .*; there are 7"):
        resolve_checkpoint(paths.checkpoint(3))
    with pytest.raises(CheckpointError, match="found a file or a link"):
        resolve_checkpoint(paths.checkpoint(9))
    with pytest.raises(CheckpointError, match=r"expected MANIFEST\.json in it"):
        resolve_checkpoint(paths.checkpoint(8))


def test_a_path_that_is_neither_is_a_usage_error(new_session: Maker, tmp_path: Path) -> None:
    paths = new_session()
    paths.checkpoints.mkdir()

    for path in ("", tmp_path / "nowhere", tmp_path, paths.meta, paths.checkpoints):
        with pytest.raises(UsageError):
            resolve_checkpoint(path)


def test_the_template_is_found_beside_the_package_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_checkout = template_directory()
    package = tmp_path / "digideep"
    shutil.copytree(in_checkout, package / "sessions_template")
    monkeypatch.setattr(places, "__file__", str(package / "pipeline" / "places.py"))

    assert {"__init__.py", "saam.py", "README.md"} <= {path.name for path in in_checkout.iterdir()}
    assert template_directory() == package / "sessions_template"
