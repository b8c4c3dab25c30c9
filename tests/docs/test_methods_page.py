"""docs/methods.md says of every method and space what happens when it is tried."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from digideep.params.source import presets

_SPEC = importlib.util.spec_from_file_location("spaces_of_methods", Path(__file__).with_name("spaces_of_methods.py"))
assert _SPEC is not None and _SPEC.loader is not None
spaces_of_methods = importlib.util.module_from_spec(_SPEC)
sys.modules["spaces_of_methods"] = spaces_of_methods
_SPEC.loader.exec_module(spaces_of_methods)


@pytest.mark.parametrize("page", ["README.md", "docs/methods.md"])
def test_every_preset_stands_in_the_table_of_methods(page: str) -> None:
    text = (Path(__file__).resolve().parents[2] / page).read_text(encoding="utf-8")

    rows = [line for line in text.splitlines() if line.startswith("| ")]

    assert [name for name in presets() if not any(f"`{name.rpartition('.')[2]}`" in row for row in rows)] == []


def test_the_table_of_spaces_is_what_was_tried() -> None:
    assert spaces_of_methods.stored() == spaces_of_methods.rendered()


@pytest.mark.parametrize(
    ("method", "space", "message"),
    [
        (
            "DQN",
            "actions: `Box`",
            "action space: expected one discrete action for DQN, found box of shape (2,); "
            "use another method, such as PPO",
        ),
        (
            "DQN",
            "actions: `Dict` or `Tuple` of `Box`",
            "action space: expected one discrete action for DQN, found box of shape (2,) in 'arm', "
            "box of shape (2,) in 'hand/0'; use another method, such as PPO",
        ),
        *(
            (
                method,
                "actions: `Discrete`",
                f"action space: expected a box of real numbers for {method.partition(' ')[0]}, found discrete of "
                "shape () and dtype int64; use another method, such as PPO",
            )
            for method in ("DDPG", "TD3", "SAC of 2018", "SAC")
        ),
        (
            "SAC",
            "actions: `Dict` or `Tuple` of several kinds",
            "action space: slot '1': expected a box of real numbers for SAC, found discrete of shape () and dtype "
            "int64; use another method, such as PPO",
        ),
        (
            "TD3",
            "actions: `Box` without bounds",
            "/env/action_transform: expected finite bounds for 'rescale', found low (-inf,) and high (inf,) in "
            "action ''; use 'clip' or 'none', and a method that takes such actions, as PPO and A2C do",
        ),
    ],
)
def test_a_method_that_cannot_do_a_space_names_it_and_what_to_do(method: str, space: str, message: str) -> None:
    assert spaces_of_methods.tried(method, space) == message
