from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pytest

from digideep.errors import ConfigError, TrustError, UsageError
from digideep.params import cartpole_ppo
from digideep.params.overrides import (
    apply_repeal,
    field_at,
    merge_strict,
    origins_of,
    read_value,
    repeal_changes,
    validate,
)
from digideep.pipeline.config import SerialEngineConfig
from digideep.pipeline.options import SessionOptions
from digideep.utility.differences import first_difference
from digideep.utility.node import Config, node, setting
from digideep.utility.tree import get, join, replace

TREE = cartpole_ppo.gen_params(cartpole_ppo.cpanel)
AGENT = TREE["agents"]["agent"]
MODEL = AGENT["model"]


def leaves(tree: Mapping[str, Any], *, parent: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = join(parent, key)
        if isinstance(value, Mapping):
            yield from leaves(value, parent=path)
        else:
            yield path, value


def repealed(changes: dict[str, Any]) -> dict[str, Any]:
    return apply_repeal(TREE, changes, epoch=0, time="t").tree


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("1e-4", float, 1e-4),
        ("3", float, 3.0),
        ("3", int, 3),
        ("true", bool, True),
        ("null", float | None, None),
        ("0.5", float | None, 0.5),
        ("3", str, "3"),
        ("true", str, "true"),
        ("null", str, "null"),
        ("null", str | None, None),
        ('"null"', str | None, "null"),
        ("[not json", str, "[not json"),
        ("auto", int | Literal["auto"], "auto"),
        ("2", int | Literal["auto"], 2),
        ("stop", Literal["stop", "reset"], "stop"),
        ("[64, 32]", tuple[int, ...], [64, 32]),
        ('{"gravity": 9.8}', dict[str, Any], {"gravity": 9.8}),
        ("NO", Any, "NO"),
        ("", str, ""),
    ],
)
def test_text_is_read_as_the_type_the_key_has(text: str, annotation: Any, value: object) -> None:
    found = read_value(text, annotation, where="--set")

    assert found == value
    assert type(found) is type(value)


def test_text_that_fits_no_type_is_told_as_what_it_looks_like() -> None:
    assert read_value("1.5", int, where="--set") == 1.5
    assert read_value("abc", int, where="--set") == "abc"
    with pytest.raises(UsageError, match=r"^--set: expected JSON, found"):
        read_value("{a", dict[str, Any], where="--set")
    with pytest.raises(UsageError, match=r"^--set: expected a number of reasonable length"):
        read_value("9" * 5000, int, where="--set")


def test_an_unknown_knob_is_told_the_nearest_known_one() -> None:
    with pytest.raises(
        ConfigError, match=r"^--cpanel: .*found the unknown key 'clip_parm'; did you mean 'clip_param'\?$"
    ):
        merge_strict(cartpole_ppo.cpanel, {"clip_parm": 0.1}, fields={}, where="--cpanel")


def test_a_knob_without_field_has_the_type_of_its_default() -> None:
    cpanel = {"depth": 2, "name": "x", "rate": 0.5, "on": True, "parts": [1], "extra": {}, "free": None}

    merged = merge_strict(cpanel, {"depth": 3, "rate": 1, "parts": ["a"], "free": [None]}, fields={}, where="w")

    assert merged == {**cpanel, "depth": 3, "rate": 1.0, "parts": ["a"], "free": [None]}
    for key, value in (("depth", 1.5), ("name", 1), ("rate", "1"), ("on", 0), ("parts", 1), ("extra", [])):
        with pytest.raises(ConfigError, match=rf"^w: {key}: expected"):
            merge_strict(cpanel, {key: value}, fields={}, where="w")


def test_a_knob_has_the_type_and_range_of_its_field_not_of_its_default() -> None:
    fields = {key: field_at(TREE, f"/agents/agent/{key}") for key in ("lr_final", "lr")}
    known = {key: field for key, field in fields.items() if field is not None}

    assert merge_strict({"lr": 1, "lr_final": 0.5}, {"lr_final": None}, fields=known, where="w") == {
        "lr": 1,
        "lr_final": None,
    }
    with pytest.raises(ConfigError, match=r"^w: lr: expected a finite number at least 0.0 and at most .*, found -1.0"):
        merge_strict({"lr": 1, "lr_final": None}, {"lr": -1}, fields=known, where="w")


def test_a_leaf_is_changed_and_the_entry_says_from_what() -> None:
    tree, entries = apply_repeal(TREE, {"/agents/agent/lr": 1}, epoch=7, time="2026-11-29T16:11:05Z")

    assert first_difference(TREE, tree) == "/agents/agent/lr: 0.001, 1.0"
    assert entries == [
        {"path": "/agents/agent/lr", "old": 0.001, "new": 1.0, "epoch": 7, "time": "2026-11-29T16:11:05Z"}
    ]
    assert type(entries[0]["new"]) is float


def test_a_whole_node_is_replaced_and_completed_before_what_lies_in_it() -> None:
    engine = {"type": "digideep.pipeline.config:SerialEngineConfig"}

    tree = repealed({"/engine/num_threads": 2, "/engine": engine})

    assert tree["engine"] == node(SerialEngineConfig, num_threads=2)


def test_a_goal_can_be_exchanged_for_the_other_in_one_command() -> None:
    tree = repealed({"/runner/n_epochs": 4, "/runner/total_frames": 0})

    assert (tree["runner"]["n_epochs"], tree["runner"]["total_frames"]) == (4, 0)
    with pytest.raises(ConfigError, match="found 4 and 500000; set the one that is not your goal to 0"):
        repealed({"/runner/n_epochs": 4})


def test_mappings_of_the_user_and_what_was_chosen_take_new_keys() -> None:
    tree, entries = apply_repeal(TREE, {"/env/env_kwargs/gravity": 9, "/engine/chosen/threads": 1}, epoch=0, time="t")

    assert tree["env"]["env_kwargs"] == {"gravity": 9}
    assert tree["engine"]["chosen"] == {"threads": 1}
    assert [entry["old"] for entry in entries] == [None, None]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "/runner/n_epoch",
            3,
            "--repeal: expected a path that exists, found the unknown path "
            "'/runner/n_epoch'; did you mean '/runner/n_epochs'?",
        ),
        (
            "/agent/agent/lr",
            3,
            "--repeal: expected a path that exists, found the unknown path "
            "'/agent/agent/lr'; did you mean '/agents/agent/lr'?",
        ),
        ("/explorer/test/statistics/rewards", True, "--repeal: expected a path that exists, found the unknown path"),
        ("/agents/agent/lr", "3", "--repeal: /agents/agent/lr: expected number, found string '3'"),
        ("/agents/agent/lr", None, "--repeal: /agents/agent/lr: expected number, found null"),
        (
            "/agents/agent/gamma",
            2,
            "--repeal: /agents/agent/gamma: expected a finite number at least 0.0 and",
        ),
        ("/runner", 3, "--repeal: /runner: expected a node with the key 'type', found integer 3"),
        (
            "/agents/agent/model",
            {},
            "--repeal: /agents/agent/model: expected a node with the key 'type', found",
        ),
        ("/explorer", {}, "--repeal: /explorer: expected a leaf or a node, found a group of nodes"),
        ("/engine", {"type": "os:system"}, "/engine/type: expected a Config, found os:system"),
        (
            "/runner/type",
            "digideep.model.config:MLPConfig",
            "/runner: expected a key that exists, found the unknown key 'seed'",
        ),
        (
            "/agents/agent/memory",
            "trian",
            "/agents/agent/memory: expected the name of a memory, found 'trian'",
        ),
        ("/runner/type", 3, "/runner/type: expected 'module:Name', found '3'"),
        ("/runner/on_epoch", "garbage", "/runner/on_epoch: expected 'module:Name', found 'garbage'"),
        ("/env/env_kwargs/x", float("nan"), "--repeal: /env/env_kwargs/x: expected plain data, found float 'nan'"),
        ("runner", 3, "--repeal: expected a path such as '/runner/n_epochs', found 'runner'"),
    ],
)
def test_a_change_that_makes_no_valid_tree_is_refused(path: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        apply_repeal(TREE, {path: value}, epoch=0, time="t", allowed=("digideep", "os"))

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "change",
    [
        {"/runner/type": "antigravity:X"},
        {"/agents/agent/model": {"type": "antigravity:X"}},
        {"/engine": {"type": "antigravity:X"}},
        {"/runner/on_epoch": "antigravity:fly"},
    ],
)
def test_a_change_cannot_name_code_that_nobody_vouched_for(change: dict[str, Any]) -> None:
    with pytest.raises(TrustError, match="antigravity"):
        repealed(change)


def test_configuration_cannot_name_code_anywhere() -> None:
    """Every text in the tree is replaced by the name of a module that must not be imported."""
    for path, value in leaves(TREE):
        if isinstance(value, str):
            changed = replace(TREE, path, "antigravity:Canary", where="x")
            try:
                validate(changed)
            except (ConfigError, TrustError):
                continue
            assert path == "/env/model_name", path
    assert "antigravity" not in sys.modules


def test_texts_behind_set_are_read_as_the_tree_has_them() -> None:
    options = SessionOptions(
        repeal={"/runner/seed": 5},
        assignments=(("/agents/agent/lr", "1"), ("lr", "2"), ("/runner/stop_return", "null"), ("/env/model_name", "3")),
    )

    changes = repeal_changes(options, TREE)

    assert changes == {
        "/runner/seed": 5,
        "/agents/agent/lr": 1.0,
        "/runner/stop_return": None,
        "/env/model_name": "3",
    }
    assert type(changes["/agents/agent/lr"]) is float


def test_a_path_twice_is_an_error_whatever_brings_it() -> None:
    for options in (
        SessionOptions(assignments=(("/runner/seed", "1"), ("/runner/seed", "2"))),
        SessionOptions(repeal={"/runner/seed": 1}, assignments=(("/runner/seed", "1"),)),
    ):
        with pytest.raises(UsageError, match=r"^--set: /runner/seed: expected every key once, found it twice"):
            repeal_changes(options, TREE)


def test_changes_of_a_file_come_before_those_of_the_command_line() -> None:
    options = SessionOptions(repeal={"/runner/seed": 5}, assignments=(("/runner/save_int", "6"),))

    changes = repeal_changes(options, TREE, before={"/runner/seed": 1, "/runner/save_int": 1, "/runner/grace_s": 1.0})

    assert changes == {"/runner/seed": 5, "/runner/save_int": 6, "/runner/grace_s": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agents": {}}, "params: expected a name and a node in '/agents', found nothing; add one"),
        ({"engine": None}, "params: expected a mapping at '/engine', found null"),
        ({"agnets": {}}, "params: expected a key that exists, found the unknown key 'agnets'; did you mean 'agents'?"),
        (
            {"explorer": {"train": TREE["explorer"]["train"]}},
            "params: expected a path that exists, found the unknown path '/explorer/test'",
        ),
        ({"env": TREE["runner"]}, "/env/type: expected a EnvConfig, found digideep.pipeline.config:RunnerConfig"),
        (
            {"engine": TREE["memory"]["train"]},
            "/engine/type: expected a EngineConfig, found digideep.memory.config:Roll",
        ),
        ({"memory": {"train": MODEL}}, "/memory/train/type: expected a MemoryConfig, found digideep.model.config:MLP"),
        ({"agents": {"agent": MODEL}}, "/agents/agent/type: expected a AgentConfig, found digideep.model.config:MLP"),
        (
            {"agents": {"agent": {**AGENT, "model": TREE["memory"]["train"]}}},
            "/agents/agent/model/type: expected the configuration of a network, found digideep.memory.config:Roll",
        ),
        (
            {"agents": {"agent": {**AGENT, "model": {"hidden_sizes": [8]}}}},
            "/agents/agent/model: expected a node with the key 'type', found {'hidden_sizes': [8]}",
        ),
        (
            {"explorer": {**TREE["explorer"], "train": {**TREE["explorer"]["train"], "statistics": MODEL}}},
            "/explorer/train/statistics/type: expected a StatisticsConfig, found digideep.model.config:MLP",
        ),
        (
            {"explorer": {**TREE["explorer"], "train": {**TREE["explorer"]["train"], "statistics": {}}}},
            "/explorer/train/statistics: expected a node with the key 'type', found {}",
        ),
        ({"agents": {"agent": {"lr": 1}}}, "/agents/agent: expected a node with the key 'type', found {'lr': 1}"),
    ],
)
def test_a_tree_with_a_wrong_part_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate({**TREE, **change})

    assert str(caught.value).startswith(message)


def test_a_tree_may_leave_out_what_has_a_default() -> None:
    short = {**TREE, "engine": {"type": "digideep.pipeline.config:SerialEngineConfig"}}

    assert validate(short) == TREE
    assert get(validate(short), "/engine/num_threads", where="x") == "auto"


@dataclasses.dataclass(frozen=True)
class OwnNetConfig(Config):
    """A user's network, which knows of no base but `Config`."""

    width: int = setting(8, "units")


def test_a_network_of_the_user_needs_no_other_base_than_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "__spec__", None)
    monkeypatch.setitem(sys.modules, "own_nets", sys.modules[__name__])
    model = {"type": "own_nets:OwnNetConfig", "width": 4}

    tree = validate({**TREE, "agents": {"agent": {**AGENT, "model": model}}}, allowed=("digideep", "own_nets"))

    assert tree["agents"]["agent"]["model"] == model


@pytest.mark.parametrize(
    ("goal", "advice"),
    [
        ({"n_epochs": 3, "total_frames": 5}, "found 3 and 5; set the one that is not your goal to 0"),
        ({"n_epochs": 0, "total_frames": 0}, "found 0 and 0; set one of them"),
    ],
)
def test_two_goals_or_none_are_told_in_the_words_of_the_user(goal: dict[str, int], advice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate({**TREE, "runner": {**TREE["runner"], **goal}})

    assert str(caught.value) == (
        "/runner/n_epochs: expected exactly one of number_epochs (/runner/n_epochs) and total_frames "
        f"(/runner/total_frames) above 0, {advice}"
    )


@pytest.mark.parametrize("change", ["/runner", "/agents/agent/lr", "/runner/n_epoch", "/explorer"])
def test_a_change_by_path_is_told_with_the_option_that_brought_it(change: str) -> None:
    def told(options: SessionOptions) -> str:
        with pytest.raises(UsageError) as caught:
            apply_repeal(TREE, repeal_changes(options, TREE), epoch=0, time="t", origins=origins_of(options))
        return str(caught.value)

    assert told(SessionOptions(assignments=((change, "[1]"),))).startswith("--set: ")
    assert told(SessionOptions(repeal={change: [1]})).startswith("--repeal: ")
