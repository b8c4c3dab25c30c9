from __future__ import annotations

import pytest

from digideep.errors import UsageError
from digideep.utility.tree import get, has, join, replace, split

TREE = {"runner": {"n_epochs": 3, "on_epoch": None}, "agents": {"agent": {"lr": 0.1, "sizes": [1, 2], "extra": {}}}}


def test_a_path_names_a_leaf_or_a_whole_mapping() -> None:
    assert get(TREE, "/agents/agent/lr", where="x") == 0.1
    assert get(TREE, "/runner", where="x") == {"n_epochs": 3, "on_epoch": None}
    assert has(TREE, "/runner/on_epoch")
    assert not has(TREE, "/agents/agent/sizes/0")


def test_an_unknown_path_is_told_the_nearest_one_with_the_same_beginning() -> None:
    with pytest.raises(
        UsageError,
        match=(
            r"^--set: expected a path that exists, found the unknown path "
            r"'/runner/n_epoch'; did you mean '/runner/n_epochs'\?$"
        ),
    ):
        get(TREE, "/runner/n_epoch", where="--set")


@pytest.mark.parametrize("path", ["", "runner", "/", "runner/x", "/a/", "//a", "/a//b"])
def test_a_malformed_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match=r"^--set: expected a path such as '/runner/n_epochs', found"):
        split(path, where="--set")


def test_replacing_leaves_the_old_tree_as_it_was_and_shares_the_rest() -> None:
    changed = replace(TREE, "/agents/agent/lr", 0.2, where="x")

    assert changed["agents"]["agent"]["lr"] == 0.2
    assert TREE["agents"]["agent"]["lr"] == 0.1
    assert changed["runner"] is TREE["runner"]


def test_replacing_below_a_leaf_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown path '/runner/n_epochs/x'"):
        replace(TREE, "/runner/n_epochs/x", 1, where="x")


def test_slashes_and_tildes_in_keys_survive() -> None:
    tree = {"a": {"b/c~d": 1}}
    path = join("/a", "b/c~d")

    assert path == "/a/b~1c~0d"
    assert get(tree, path, where="x") == 1
    assert has(tree, path)
