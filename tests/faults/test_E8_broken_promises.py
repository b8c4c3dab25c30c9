"""What an environment returns that is not what it declared is named at once."""

from __future__ import annotations

import contextlib

import pytest
from failing_parts import NAME, explorer

from digideep.errors import EnvironmentFailure

CASES = {
    "shape": r"observation '/observations/a': expected shape \(3,\) of float32, found \(4,\) of float32",
    "dtype": r"observation '/observations/a': expected shape \(3,\) of float32, found \(3,\) of float64",
    "type": r"observation '/observations/a': expected a numpy array \(3,\) of float32, found list of 3",
    "space": r"observation '/observations/b': expected an integer from 0 to 2, found 3",
    "keys": r"observation: expected the keys \['a', 'b'\], found \['a'\]",
    "reward": r"reward: expected a number, found an array of shape \(2,\)",
    "text reward": r"reward: expected a number, found str 'much'",
    "flag": r"terminated: expected a bool, found float 1\.5",
    "truncated": r"truncated: expected a bool, found NoneType None",
    "info": r"info: expected a dict, found list \[\('metrics', \{\}\)\]",
    "metrics": r"info\['metrics'\]\['height'\]: expected a number, found str 'tall'",
}


@pytest.mark.parametrize(("fault", "num_workers"), [*((fault, 0) for fault in CASES), ("shape", 1), ("info", 1)])
def test_E8_what_is_not_as_declared_is_named_at_once(fault: str, num_workers: int) -> None:
    made = explorer(num_envs=1, num_workers=num_workers, kwargs={"fault": fault, "at": 2})

    with contextlib.closing(made), pytest.raises(EnvironmentFailure, match=CASES[fault]) as raised:
        made.update()

    assert str(raised.value).startswith(f"environment 0 ({NAME}, worker 0, seed ")
    assert "episode 0, step 2): " in str(raised.value)
    assert made._vec.tick == 2
