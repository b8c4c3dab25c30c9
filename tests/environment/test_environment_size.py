"""Sizes that no machine has: refused in one line, before anything is made."""

from __future__ import annotations

import time
from collections import namedtuple

import psutil
import pytest
from fakes_vec import ScriptEnv, explorer

from digideep.environment.config import ExplorerConfig
from digideep.errors import ConfigError, UsageError

Memory = namedtuple("Memory", "total")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ScriptEnv]:
    """Note every environment that is made."""
    envs: list[ScriptEnv] = []
    begin = ScriptEnv.__init__

    def noted(self: ScriptEnv, **kwargs: object) -> None:
        envs.append(self)
        begin(self, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ScriptEnv, "__init__", noted)
    return envs


def test_more_steps_than_memory_holds_are_refused_before_an_environment_is_made(made: list[ScriptEnv]) -> None:
    begun = time.monotonic()

    with pytest.raises(
        UsageError,
        match=r"^explorer/train: expected slabs that fit into memory \([\d.]+ GB\), found [\d.]+ GB for "
        r"num_envs=3 and n_steps=99999999999; lower them$",
    ):
        explorer(n_steps=99999999999)

    assert made == []
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("field", ["num_envs", "num_workers"])
def test_more_environments_or_processes_than_anybody_has_are_refused_by_range(field: str) -> None:
    with pytest.raises(ConfigError, match=rf"{field}.*99999999999"):
        ExplorerConfig(n_steps=1, **{field: 99999999999})


def test_many_environments_are_weighed_by_one_of_them(made: list[ScriptEnv], monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows of 68 bytes fit 2048 x 65 times, rows with an observation of 12 and an action of 8 do not.
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(10_000_000))

    with pytest.raises(UsageError, match="for num_envs=2048 and n_steps=64; lower them"):
        explorer(num_envs=2048, n_steps=64)

    assert len(made) == 1


@pytest.mark.parametrize("num_workers", [0, 1])
def test_few_environments_are_weighed_before_the_memory_is_touched(
    num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(40_000))

    with pytest.raises(UsageError, match="for num_envs=3 and n_steps=500; lower them"):
        explorer(num_workers=num_workers, n_steps=500)


def test_what_fits_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    # 3 x 501 rows of 88 bytes, and less than 2 kB beside them.
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(134_400))

    made = explorer(n_steps=500)
    made.close()

    assert made.num_envs == 3
