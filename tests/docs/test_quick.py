"""Trainings that the documentation starts become short ones, and everything else stays as it was typed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def quick() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quick", Path(__file__).with_name("quick.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("--params p", "--params p --set number_epochs=4 total_frames=0 stop_return=null epoch_size=1"),
        (
            "--params=p --set seed=3 lr=1e-3",
            "--params=p --set number_epochs=4 total_frames=0 stop_return=null epoch_size=1 seed=3 lr=1e-3",
        ),
        (
            "--params p --set number_epochs=300",
            "--params p --set total_frames=0 stop_return=null epoch_size=1 number_epochs=8",
        ),
        ("--params p --set total_frames=999999", "--params p --set stop_return=null total_frames=20000"),
        ("--resume --set /runner/n_epochs=300", "--resume --set /runner/n_epochs=8"),
        ("--resume --load-checkpoint s", "--resume --load-checkpoint s"),
        ("--params p --describe --json", "--params p --describe --json"),
        ("--play --params p", "--play --params p"),
    ],
)
def test_goal_of_a_training_is_small(quick: ModuleType, typed: str, expected: str) -> None:
    assert quick.shortened(typed.split(" ")) == expected.split(" ")


def test_goal_in_json_is_small(quick: ModuleType) -> None:
    found = quick.shortened(["--params", "p", "--cpanel", '{"total_frames": 500000, "lr": 0.1}'])

    assert found == [
        "--params",
        "p",
        "--cpanel",
        '{"total_frames": 20000, "lr": 0.1}',
        "--set",
        "stop_return=null",
    ]
