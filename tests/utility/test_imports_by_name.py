from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from digideep.errors import ConfigError, MissingExtraError, TrustError, UsageError
from digideep.utility.imports import import_file, import_module, is_allowed, resolve, searching, split_reference


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("user_"):
            del sys.modules[name]


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_a_package_allows_what_lies_below_it_and_nothing_that_begins_alike() -> None:
    assert is_allowed("digideep", ("digideep",))
    assert is_allowed("digideep.model.config", ("digideep",))
    assert not is_allowed("digideep_evil", ("digideep",))
    assert not is_allowed("os", ())


@pytest.mark.parametrize(
    "reference", ["os", "os:", ":system", "os:a.b", "os.:x", "a b:c", "../x:y", "os:system\n", None, 3]
)
def test_a_malformed_reference_is_refused(reference: object) -> None:
    with pytest.raises(UsageError, match=r"^/x: expected 'module:Name', found"):
        split_reference(reference, where="/x")


def test_a_module_that_is_not_allowed_is_not_imported(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    write(tmp_path, "user_canary.py", f"open({str(canary)!r}, 'w')")

    with (
        searching(after=[tmp_path]),
        pytest.raises(TrustError, match=r"found 'user_canary'; name it on the command line"),
    ):
        import_module("user_canary", where="/x")

    assert not canary.exists()


def test_a_module_is_found_in_the_directories_given_and_the_path_is_as_before(tmp_path: Path) -> None:
    write(tmp_path, "user_found.py", "VALUE = 3")
    path = list(sys.path)

    module = import_module("user_found", where="/x", allowed=["user_found"], search=[tmp_path])

    assert module.VALUE == 3
    assert sys.path == path
    assert not (tmp_path / "__pycache__").exists()


def test_a_missing_module_is_one_line() -> None:
    with pytest.raises(
        UsageError, match=r"^/x: expected a module that can be imported, found no 'user_none.x'; install"
    ):
        import_module("user_none.x", where="/x", allowed=["user_none"])


def test_a_missing_module_of_an_extra_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)

    with pytest.raises(MissingExtraError, match=r'pip install "digideep\[envpool\]"'):
        import_module("envpool.nothing", where="/x", allowed=["envpool"])


def test_a_module_missing_inside_a_users_module_is_told_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "user_deep.py", "\nimport user_not_there\n")

    with pytest.raises(UsageError) as caught:
        import_module("user_deep", where="/x", allowed=["user_deep"], search=[tmp_path])

    assert str(caught.value) == (
        f"{path}:2: expected code that runs, found ModuleNotFoundError: No module named 'user_not_there'; "
        f"correct it there"
    )


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax"),
        ("x = {}\n\nx['key']\n", 3, "KeyError: 'key'"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        ("raise ValueError\n", 1, "ValueError; correct it there"),
        ("x = 1\x00\n", 1, "SyntaxError: source code string cannot contain null bytes"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError: Expecting property name"),
    ],
)
def test_what_a_users_file_raises_is_one_line_with_file_and_line(
    tmp_path: Path, text: str, line: int, found: str
) -> None:
    path = write(tmp_path, "user_raises.py", text)

    with pytest.raises(UsageError) as caught:
        import_file(path, where="--params")

    assert str(caught.value).startswith(f"{path}:{line}: expected code that runs, found {found}")
    assert "\n" not in str(caught.value)


def test_our_own_errors_keep_their_class_and_get_file_and_line(tmp_path: Path) -> None:
    imports = "from digideep.utility.node import node\nfrom digideep.model.config import MLPConfig\n"
    path = write(tmp_path, "user_config.py", f"{imports}node(MLPConfig, shard=1)\n")

    with pytest.raises(
        ConfigError,
        match=rf"^{path}:3: MLPConfig: .*the unknown key 'shard'; did you mean 'shared'\?$",
    ):
        import_file(path, where="--params")


def test_a_file_finds_the_modules_beside_it_and_an_edited_file_is_read_again(tmp_path: Path) -> None:
    write(tmp_path, "user_beside.py", "VALUE = 1")
    path = write(tmp_path, "user_edited.py", "from user_beside import VALUE\nA = VALUE")

    first = import_file(path, where="--params").A
    write(tmp_path, "user_edited.py", "from user_beside import VALUE\nA = VALUE + 10  # longer now")
    second = import_file(path, where="--params").A

    assert (first, second) == (1, 11)
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize("name", ["json.py", "platform.py", "pytest.py", "digideep.py"])
def test_a_file_may_not_take_the_name_of_another_module(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, "VALUE = 1")

    with pytest.raises(UsageError, match=rf"^--params: expected a name that no other module has, found '{name}'"):
        import_file(path, where="--params")


@pytest.mark.parametrize("name", ["my-params.py", "3x.py", "class.py", "a b.py"])
def test_a_file_name_that_cannot_be_a_modules_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, "VALUE = 1")

    with pytest.raises(UsageError, match=r"^--params: expected a file name that can be a module's, found"):
        import_file(path, where="--params")


def test_a_name_that_a_module_lacks_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^/x: expected a name in module 'digideep.errors', found 'Nothing'"):
        resolve("digideep.errors:Nothing", where="/x")


def test_a_file_of_which_a_copy_is_on_the_path_is_the_same_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that runs its own code has such a copy."""
    (tmp_path / "copied").mkdir()
    for place in (tmp_path, tmp_path / "copied"):
        (place / "copied_params.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path / "copied")

    assert import_file(tmp_path / "copied_params.py", where="--params").A == 1
    (tmp_path / "copied" / "copied_params.py").write_text("A = 2\n")
    monkeypatch.delitem(sys.modules, "copied_params")
    with pytest.raises(UsageError, match="expected a name that no other module has"):
        import_file(tmp_path / "copied_params.py", where="--params")
