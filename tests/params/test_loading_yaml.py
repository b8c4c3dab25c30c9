"""A YAML file may name a parameter module by its path; it is no consent to what lies anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from digideep.errors import TrustError, UsageError
from digideep.params.loading import LoadedParams, load_params
from digideep.pipeline.cli import parse
from digideep.pipeline.options import SessionOptions

MODULE = """
import user_sizes
from digideep.params import cartpole_ppo

cpanel = {**cartpole_ppo.cpanel, "n_steps": user_sizes.STEPS}
gen_params = cartpole_ppo.gen_params
"""


@pytest.fixture(autouse=True)
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a parameter module and what it imports, below the current one; no trace of them afterwards."""
    directory = tmp_path / "here" / "two"
    directory.mkdir(parents=True)
    (directory / "user_pole.py").write_text(MODULE)
    (directory / "user_sizes.py").write_text("STEPS = 48\n")
    monkeypatch.chdir(directory.parent)
    yield directory
    for name in [name for name in sys.modules if name.startswith("user_")]:
        del sys.modules[name]


def load(name: str) -> LoadedParams:
    options = parse(["--params", name])
    assert isinstance(options, SessionOptions)
    return load_params(options)


@pytest.mark.parametrize("name", ["user_pole.py", "./user_pole.py", "../two/user_pole.py", "{two}/user_pole.py"])
def test_a_path_begins_beside_the_file_that_has_it(name: str, two: Path) -> None:
    (two / "pole.yaml").write_text(f"params: {name.format(two=two)}\ncpanel: {{seed: 5}}\n")

    loaded = load("two/pole.yaml")

    assert (loaded.preset, loaded.module, loaded.path) == ("user_pole", "user_pole", two / "pole.yaml")
    assert (loaded.cpanel["n_steps"], loaded.cpanel["seed"]) == (48, 5)
    assert sorted(path.name for path in loaded.files) == ["user_pole.py", "user_sizes.py"]


def test_a_path_and_a_name_are_the_same_module(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two)
    (two / "a.yaml").write_text("params: user_pole.py\n")
    (two / "b.yaml").write_text("params: user_pole\n")

    found = [load(name) for name in ("a.yaml", "b.yaml", "user_pole.py", "user_pole")]

    assert len({loaded.fingerprint for loaded in found}) == 1
    assert [sorted(path.name for path in loaded.files) for loaded in found] == [["user_pole.py", "user_sizes.py"]] * 4


def test_a_file_that_does_not_lie_below_the_current_directory_is_not_run(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (two.parent / "user_link.py").symlink_to(two / "user_pole.py")
    (two.parent / "pole.yaml").write_text("params: two/user_pole.py\n")
    (two.parent / "link.yaml").write_text("params: user_link.py\n")
    elsewhere = two.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "user_link.py").symlink_to(two / "user_pole.py")
    (elsewhere / "link.yaml").write_text("params: user_link.py\n")
    monkeypatch.chdir(elsewhere)

    for name in ("../pole.yaml", "../link.yaml", "link.yaml"):
        with pytest.raises(TrustError, match=r"params: expected a file below the current directory, found .*user_pole"):
            load(name)
    assert not [name for name in sys.modules if name.startswith("user_")]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("user_none.py", UsageError, "expected a Python file, found none at .*two/user_none.py; check the path"),
        ("sub/pole", UsageError, "expected a dotted name or a .py file, found 'sub/pole'; name one of them"),
        ('"a\\0b.py"', UsageError, "expected a dotted name or a .py file, found"),
        ("user_pole", TrustError, "in the current directory, found 'user_pole'; write the path of its .py file, which"),
        ("antigravity", TrustError, "in the current directory, found 'antigravity'; write the path of its .py file"),
    ],
)
def test_what_cannot_be_taken_is_one_line(name: str, error: type[Exception], message: str, two: Path) -> None:
    (two / "pole.yaml").write_text(f"params: {name}\n")

    with pytest.raises(error, match=f"two/pole.yaml: params: .*{message}"):
        load("two/pole.yaml")
    assert not {"user_pole", "antigravity"} & set(sys.modules)
