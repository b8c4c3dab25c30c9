from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

import digideep
from digideep.agent.ppo.config import PPOConfig
from digideep.errors import ConfigError, TrustError
from digideep.model.config import MLPConfig
from digideep.utility.node import (
    FLOAT32_LIMIT,
    Config,
    build,
    complete,
    configuration_class,
    configure,
    fields_of,
    is_node,
    node,
    nodes,
    setting,
)


@dataclass(frozen=True)
class Knobs(Config):
    """Fields of every kind."""

    builds: ClassVar[str] = f"{__name__}:Built"

    rate: float = setting(0.5, "a rate", unit="1/s", above=0.0, high=1.0)
    count: int = setting(1, "a count", low=1)
    flag: bool = setting(False, "a flag")
    limit: float | None = setting(None, "a limit")
    mode: Literal["fast", "slow"] = setting("fast", "a mode")
    workers: int | Literal["auto"] = setting(0, "processes", low=0)
    sizes: tuple[int, ...] = setting((4,), "sizes", low=1)
    options: dict[str, Any] = setting({}, "anything")


class Built:
    def __init__(self, config: Knobs, *, extra: int) -> None:
        self.config = config
        self.extra = extra


HERE = (__name__,)
REFERENCE = f"{__name__}:Knobs"


def test_a_node_is_plain_data_with_every_field_of_its_class() -> None:
    made = node(Knobs, rate=1, sizes=[8, 16])

    assert made == {
        "type": REFERENCE,
        "rate": 1.0,
        "count": 1,
        "flag": False,
        "limit": None,
        "mode": "fast",
        "workers": 0,
        "sizes": [8, 16],
        "options": {},
    }
    assert type(made["rate"]) is float


def test_a_node_read_back_is_the_configuration() -> None:
    made = node(Knobs, rate=0.25, workers="auto", options={"a": [1, {"b": None}]})

    config = configure(made, where="/x", allowed=HERE)

    assert config == Knobs(rate=0.25, workers="auto", options={"a": [1, {"b": None}]})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rate", "1", "/x/rate: expected number, found string '1'; write such a value"),
        ("rate", True, "/x/rate: expected number, found boolean true; write such a value"),
        (
            "rate",
            0.0,
            "/x/rate: expected a finite number above 0.0 and at most 1.0, found 0.0; choose one in that range",
        ),
        (
            "rate",
            float("nan"),
            "/x/rate: expected a finite number above 0.0 and at most 1.0, found nan; choose one in ",
        ),
        ("rate", 10**400, "/x/rate: expected a finite number above 0.0 and at most 1.0, found inf; choose one in that"),
        ("count", 1.0, "/x/count: expected integer, found number 1.0; write such a value"),
        ("count", None, "/x/count: expected integer, found null; write such a value"),
        ("count", 2**63, "/x/count: expected integer, found an integer beyond 64 bits; write such a value"),
        ("flag", 1, "/x/flag: expected boolean, found integer 1; write such a value"),
        ("limit", "none", "/x/limit: expected number or null, found string 'none'; write such a value"),
        ("mode", "fats", "/x/mode: expected one of 'fast', 'slow', found string 'fats'; write such a value"),
        ("workers", "all", "/x/workers: expected integer or 'auto', found string 'all'; write such a value"),
        ("workers", -1, "/x/workers: expected a finite number at least 0, found -1; choose one in that range"),
        ("sizes", [4, 0], "/x/sizes: expected a finite number at least 1, found 0; choose one in that range"),
        ("sizes", [4, "a"], "/x/sizes: expected list of integer, found list [4, 'a']; write such a value"),
        ("options", [], "/x/options: expected mapping, found list []; write such a value"),
    ],
)
def test_a_wrong_value_is_refused_with_path_and_both_types(field: str, value: object, message: str) -> None:
    tree = {"type": REFERENCE, field: value}

    with pytest.raises(ConfigError) as caught:
        configure(tree, where="/x", allowed=HERE)

    assert str(caught.value).startswith(message)


def test_an_unknown_key_is_told_the_nearest_known_one() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^/a: expected a key that exists, found the unknown key 'clip_parm'; did you mean 'clip_param'\?$",
    ):
        configure({"type": "digideep.agent.ppo.config:PPOConfig", "clip_parm": 0.1}, where="/a")


@pytest.mark.parametrize("reference", ["os:system", "digideep.utility.node:TYPE", "digideep.errors:DigideepError"])
def test_a_type_that_is_no_configuration_class_is_refused(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"^/a/type: expected a Config, found"):
        configure({"type": reference}, where="/a", allowed=("digideep", "os"))


def test_a_type_outside_the_allowed_packages_is_not_imported() -> None:
    with pytest.raises(TrustError, match=r"^/a/type: expected a module that is trusted, found 'antigravity'"):
        configure({"type": "antigravity:X"}, where="/a")


def test_a_node_of_another_family_is_refused_where_one_is_expected() -> None:
    with pytest.raises(
        ConfigError, match=r"/model/type: expected a MLPConfig, found digideep.agent.ppo.config:PPOConfig"
    ):
        configuration_class(node(PPOConfig), where="/model", expected=MLPConfig)


def test_a_mapping_without_type_is_told_what_a_node_is() -> None:
    with pytest.raises(ConfigError, match=r"^/a: expected a node with the key 'type', found \{'x': 1\}; add 'type'"):
        configure({"x": 1}, where="/a")


def test_build_makes_the_object_that_the_class_names() -> None:
    built = build(node(Knobs, count=3), where="/x", allowed=HERE, extra=7)

    assert isinstance(built, Built)
    assert (built.config.count, built.extra) == (3, 7)


def test_complete_fills_nodes_in_nodes_and_leaves_mappings_of_the_user_alone() -> None:
    tree = {
        "type": "digideep.agent.ppo.config:PPOConfig",
        "model": {"type": "digideep.model.config:MLPConfig", "shared": True},
    }
    env = {"type": "digideep.environment.config:EnvConfig", "env_kwargs": {"type": "antigravity:X"}}

    agent, environment = complete(tree, where="/a"), complete(env, where="/env")

    assert agent["model"] == node(MLPConfig, shared=True)
    assert agent["gamma"] == 0.99
    assert environment["env_kwargs"] == {"type": "antigravity:X"}


def test_complete_finds_a_misspelt_key_in_a_node_inside_a_node() -> None:
    tree = {
        "type": "digideep.agent.ppo.config:PPOConfig",
        "model": {"type": "digideep.model.config:MLPConfig", "shard": 1},
    }

    with pytest.raises(
        ConfigError,
        match=r"^/a/model: expected a key that exists, found the unknown key 'shard'; did you mean 'shared'\?$",
    ):
        complete(tree, where="/a")


def test_nodes_come_before_the_nodes_inside_them() -> None:
    tree = {
        "agents": {"agent": node(PPOConfig, model=node(MLPConfig))},
        "env": {"type": "hard", "env_kwargs": node(MLPConfig)},
    }

    found = [path for path, _ in nodes(tree)]

    assert found == ["/agents/agent", "/agents/agent/model"]


def test_only_a_reference_makes_a_mapping_a_node() -> None:
    assert is_node({"type": "a.b:C"})
    assert not any(map(is_node, ({"type": "hard"}, {"type": 1}, {}, "a:B", None, {"type": "a.b:C\n"})))


def test_fields_say_what_they_are() -> None:
    field = fields_of(Knobs)["rate"]

    assert (field.annotation, field.doc, field.unit) == (float, "a rate", "1/s")
    assert field.check(1, where="rate") == 1.0


def test_values_that_no_file_could_hold_are_refused() -> None:
    for value in (object(), float("inf"), {1: 2}, b"x", "\ud800"):
        with pytest.raises(ConfigError, match=r"^Knobs/options/a: expected (plain data|text), found"):
            node(Knobs, options={"a": value})


def test_a_field_without_default_has_to_be_given() -> None:
    with pytest.raises(ConfigError, match=r"^/x: expected the key 'size', which has no default, found none; add it$"):
        configure({"type": f"{__name__}:Bare"}, where="/x", allowed=HERE)


@dataclass(frozen=True)
class Bare(Config):
    """A field without default."""

    size: int


@pytest.mark.parametrize("name", ["agent", "model", "testing"])
def test_every_number_that_a_network_or_its_learning_computes_with_stays_within_float32(name: str) -> None:
    package = Path(digideep.__file__).parent / name
    found: list[str] = []
    for path in package.rglob("*config.py"):
        module = importlib.import_module(
            ".".join(("digideep", *path.relative_to(package.parent).with_suffix("").parts))
        )
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, Config):
                numbers = {key: field for key, field in fields_of(cls).items() if "float" in str(field.annotation)}
                found += [f"{cls.__name__}/{key}" for key, field in numbers.items() if not _is_within(field.limits)]

    assert found == []
    assert np.isfinite(np.float32(FLOAT32_LIMIT) * np.float32(1e8))


def _is_within(limits: Mapping[str, Any]) -> bool:
    low, high, above = (limits[key] for key in ("low", "high", "above"))
    least = above if low is None else low
    return high is not None and high <= FLOAT32_LIMIT and least is not None and least >= -FLOAT32_LIMIT
