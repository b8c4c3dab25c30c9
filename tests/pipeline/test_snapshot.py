"""Copies of code: what is in them, what is left out, and how they compare with what is installed."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from digideep.errors import StorageError, UsageError
from digideep.pipeline import codetree, fsio, snapshot
from digideep.pipeline.codetree import code_hash, exact_hashes, files_of
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.snapshot import (
    Source,
    changed_packages,
    differing_files,
    find_sources,
    locate,
    read_contents,
    save_modules,
    stamp_template,
)

Maker = Callable[..., SessionPaths]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of the user's with data, caches, version control, and links; importable."""
    root = tmp_path / "code" / "tug_game"
    for name in ("__init__.py", "levels/one.txt", "__pycache__/x.pyc", ".git/config", ".venv/a.py", "old.pyc"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    (tmp_path / "code" / "secret.txt").write_text("outside")
    (root / "outside.txt").symlink_to(tmp_path / "code" / "secret.txt")
    (root / "up").symlink_to(tmp_path / "code")
    (root / "again").symlink_to(root)
    (root / "inside.txt").symlink_to(root / "levels" / "one.txt")
    os.mkfifo(root / "pipe")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    yield root
    sys.modules.pop("tug_game", None)


@pytest.fixture
def paths(tmp_path: Path) -> SessionPaths:
    (tmp_path / "session_1").mkdir()
    return SessionPaths(tmp_path / "session_1")


def _names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def test_a_copy_holds_code_and_data_but_no_caches_no_version_control_and_nothing_from_outside(
    package: Path, paths: SessionPaths
) -> None:
    save_modules(paths, find_sources(["tug_game.levels"]))

    assert _names(paths.modules / "tug_game") == ["__init__.py", "inside.txt", "levels/one.txt"]
    assert (paths.modules / "tug_game" / "inside.txt").read_text() == "# levels/one.txt\n"
    assert not (paths.modules / "tug_game" / "inside.txt").is_symlink()
    assert (paths.modules / "digideep" / "errors.py").read_bytes() == Path("digideep/errors.py").resolve().read_bytes()


def test_a_single_file_is_copied_as_one(tmp_path: Path, paths: SessionPaths) -> None:
    (tmp_path / "my_params.py").write_text("cpanel = {}\n")

    contents = save_modules(paths, find_sources([], files=[tmp_path / "my_params.py"]), options=["--resume"])

    assert (paths.modules / "my_params.py").read_text() == "cpanel = {}\n"
    assert contents.copied["my_params"]["files"] == {"my_params.py": hashlib.sha256(b"cpanel = {}\n").hexdigest()}
    assert read_contents(paths.modules) == contents
    assert differing_files(paths.modules, trusted=True) == []


def test_a_directory_of_sessions_inside_a_package_is_not_copied_into_a_session(
    package: Path, paths: SessionPaths
) -> None:
    for name in ("meta.json", "saam.py", "checkpoints/checkpoint-1/state.json"):
        (package / "runs" / "session_7" / name).parent.mkdir(parents=True, exist_ok=True)
        (package / "runs" / "session_7" / name).write_text("{}")

    assert [file.relative for file in files_of(package, name="tug_game")] == [
        "tug_game/__init__.py",
        "tug_game/inside.txt",
        "tug_game/levels/one.txt",
    ]


def test_a_package_that_does_not_fit_is_listed_and_a_change_of_it_is_noticed(
    package: Path, paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "big.bin").write_bytes(bytes(3 << 20))
    monkeypatch.setattr(snapshot, "BYTES_LIMIT", 3 << 20)

    contents = save_modules(paths, find_sources(["tug_game"]))

    assert not (paths.modules / "tug_game").exists()
    assert set(contents.copied) == {"digideep"}
    assert contents.listed["tug_game"]["files"]["tug_game/big.bin"] == hashlib.sha256(bytes(3 << 20)).hexdigest()
    assert changed_packages(contents) == []
    (package / "levels" / "one.txt").write_text("another level")
    assert changed_packages(contents) == ["tug_game"]
    assert differing_files(paths.modules, trusted=True) == []


def test_every_changed_new_and_removed_file_is_named(package: Path, paths: SessionPaths) -> None:
    save_modules(paths, find_sources(["tug_game"]))
    assert differing_files(paths.modules, trusted=True) == []

    (package / "__init__.py").write_text("# edited\n")
    (package / "new.py").write_text("")
    (paths.modules / "tug_game" / "inside.txt").unlink()

    assert differing_files(paths.modules, trusted=True) == [
        "tug_game/__init__.py",
        "tug_game/inside.txt",
        "tug_game/new.py",
    ]


def test_a_module_that_is_not_installed_any_more_differs_as_a_whole(package: Path, paths: SessionPaths) -> None:
    save_modules(paths, find_sources(["tug_game"]))

    package.rename(package.with_name("renamed"))

    assert differing_files(paths.modules, trusted=True) == ["tug_game"]


def test_the_hash_does_not_depend_on_order_and_notices_every_byte_and_name(tmp_path: Path) -> None:
    first = code_hash({"a/b.py": "00", "c.py": "11"})

    assert first == code_hash({"c.py": "11", "a/b.py": "00"})
    assert len({first, code_hash({"a/b.py": "01", "c.py": "11"}), code_hash({"a/d.py": "00", "c.py": "11"})}) == 3
    assert code_hash({"a": "00 b", "c": ""}) != code_hash({"a": "00", "b\0 c": ""})


def test_exact_hashes_see_caches_and_empty_directories_and_refuse_links(tmp_path: Path) -> None:
    (tmp_path / "m" / "__pycache__").mkdir(parents=True)
    (tmp_path / "m" / "__pycache__" / "x.pyc").write_bytes(b"1")
    (tmp_path / "m" / "empty").mkdir()

    assert set(exact_hashes(tmp_path / "m")) == {"/", "__pycache__/", "__pycache__/x.pyc", "empty/"}
    (tmp_path / "m" / "link").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="found a link or a device"):
        exact_hashes(tmp_path / "m")


def test_more_code_than_digideep_writes_is_refused_without_reading_it(tmp_path: Path) -> None:
    with open(tmp_path / "huge.py", "wb") as file:
        file.truncate(1 << 42)

    with pytest.raises(UsageError, match="bytes of code, found more"):
        exact_hashes(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codetree, "FILES_LIMIT", 3)
    for number in range(4):
        (tmp_path / f"{number}.py").write_text("")

    with pytest.raises(UsageError, match="at most 3 files"):
        files_of(tmp_path, name="x")


def test_the_standard_library_is_never_copied_and_nothing_is_imported_to_find_a_module(package: Path) -> None:
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")

    sources = find_sources(["json", "tug_game", "digideep.params.cartpole_ppo"])

    assert [source.name for source in sources] == ["digideep", "tug_game"]
    assert locate("os.path") is None
    assert "tug_game" not in sys.modules


def test_a_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match=r"--save-modules: expected an importable module, found none called 'no_such'"):
        find_sources(["no_such"])


def test_a_failed_copy_leaves_nothing(package: Path, paths: SessionPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot, "publish_json", fail)

    with pytest.raises(StorageError, match="ENOSPC"):
        save_modules(paths, [Source("tug_game", package)])
    assert not paths.modules.exists()


def test_space_is_measured_before_a_failed_copy_is_removed(
    package: Path, paths: SessionPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot, "_copy", fail)
    monkeypatch.setattr(fsio.RealFileSystem, "free_bytes", lambda self, _: 0 if paths.modules.exists() else 1 << 20)

    with pytest.raises(StorageError, match=r"found ENOSPC .*, 0 bytes free; free some space"):
        save_modules(paths, [Source("tug_game", package)])


@pytest.mark.parametrize("content", ["{}", '{"copied": []}', "[]", "{"])
def test_malformed_contents_are_one_line(new_session: Maker, content: str) -> None:
    paths = new_session()
    (paths.modules / "contents.json").write_text(content)

    with pytest.raises(UsageError, match=r"contents\.json"):
        differing_files(paths.modules)


def test_contents_cannot_lead_out_of_the_session(new_session: Maker) -> None:
    paths = new_session()
    contents = fsio.read_json(paths.modules / "contents.json")
    for name in ("..", "../../etc", "/etc", ""):
        contents["copied"] = {name: {"source": "/etc", "files": {}}}
        (paths.modules / "contents.json").unlink()
        fsio.publish_json(paths.modules / "contents.json", contents)
        with pytest.raises(UsageError, match="expected a table of modules"):
            read_contents(paths.modules)


def test_stamping_replaces_whatever_has_the_name(paths: SessionPaths, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    paths.saam.symlink_to(tmp_path / "victim")
    os.mkfifo(paths.init)

    stamp_template(paths)

    assert (tmp_path / "victim").read_text() == "untouched"
    assert "open_loader" in paths.saam.read_text()
    assert paths.init.is_file()
    assert sorted(path.name for path in paths.root.iterdir()) == ["README.md", "__init__.py", "saam.py"]


def test_a_table_of_modules_that_were_never_copied_does_not_make_us_read_the_disk(
    new_session: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = new_session()
    contents = fsio.read_json(paths.modules / "contents.json")
    contents["copied"].update(
        {name: {"source": f"/x/{name}", "files": {}} for name in ("torch", "numpy", "antigravity")}
    )
    (paths.modules / "contents.json").unlink()
    fsio.publish_json(paths.modules / "contents.json", contents)
    read: list[int] = []
    monkeypatch.setattr(snapshot, "hashes_of", lambda files: read.append(sum(file.bytes for file in files)) or {})

    assert {"torch", "antigravity"} <= set(differing_files(paths.modules))
    assert sum(read) <= 4 * codetree.BYTES_LIMIT


def test_directories_nested_without_end_are_refused(new_session: Maker) -> None:
    paths = new_session()
    deep = paths.modules / "digideep" / Path(*["d"] * 500)
    deep.mkdir(parents=True)

    with pytest.raises(UsageError, match="at most 60 nested directories"):
        differing_files(paths.modules)
    assert len(exact_hashes(paths.modules)) > 500
