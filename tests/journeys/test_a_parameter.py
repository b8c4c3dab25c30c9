"""A parameter from the command line to the loss that uses it, one spelling at every hop."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import digideep
from digideep.agent.ppo import losses
from digideep.agent.ppo.agent import PPOAgent
from digideep.errors import UsageError
from digideep.memory.config import RollBufferConfig
from digideep.params.loading import load_params
from digideep.pipeline.cli import parse
from digideep.pipeline.options import SessionOptions
from digideep.spec import ArraySpec, EnvSpec
from digideep.utility.node import build, configure, node
from digideep.utility.yaml12 import dumps_yaml, loads_yaml

ARGV = ["--params", "digideep.params.cartpole_ppo", "--cpanel", '{"clip_param": 0.1}']
SPEC = EnvSpec(
    id="CartPole-v1",
    observations={"observation": ArraySpec("box", (4,), "float32")},
    actions={"": ArraySpec("discrete", (), "int64", n=(2,))},
)


def options(*argv: str) -> SessionOptions:
    request = parse(argv)
    assert isinstance(request, SessionOptions)
    return request


def test_the_command_line_is_read_before_anything_is_imported() -> None:
    code = (
        f"from digideep.pipeline.cli import parse\nimport sys\nparse({ARGV!r})\nprint('digideep.params' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
    assert options(*ARGV).cpanel == {"clip_param": 0.1}


def test_a_parameter_arrives_in_the_tree_as_plain_data() -> None:
    loaded = load_params(options(*ARGV))

    agent = loaded.params["agents"]["agent"]

    assert loaded.cpanel["clip_param"] == 0.1
    assert (agent["type"], agent["clip_param"]) == ("digideep.agent.ppo.config:PPOConfig", 0.1)


def test_what_is_on_disk_reads_back_equal_to_the_tree() -> None:
    loaded = load_params(options(*ARGV))

    assert loads_yaml(dumps_yaml(loaded.base), where="params.yaml") == loaded.base
    assert json.loads(json.dumps(loaded.cpanel)) == loaded.cpanel


def test_a_parameter_arrives_in_the_configuration_of_the_agent_that_is_built() -> None:
    loaded = load_params(options(*ARGV))
    memory = build(node(RollBufferConfig), where="/memory/train", name="train")

    agent = build(
        loaded.params["agents"]["agent"],
        where="/agents/agent",
        allowed=loaded.allowed,
        name="agent",
        spec=SPEC,
        memory=memory,
        device="cpu",
        seed=1,
        monitor=lambda name, value: None,
    )

    assert isinstance(agent, PPOAgent)
    assert agent.config.clip_param == 0.1
    assert configure(loaded.params["agents"]["agent"], where="x") == agent.config


def test_the_parameter_is_spelt_alike_at_every_hop() -> None:
    root = Path(digideep.__file__).parent
    hops = [
        "params/ppo.py",
        "params/cartpole_ppo.py",
        "agent/ppo/config.py",
        "agent/ppo/losses.py",
        "agent/ppo/agent.py",
    ]

    assert "clip_param" in inspect.signature(losses.clipped_surrogate).parameters
    assert all("clip_param" in (root / hop).read_text() for hop in hops)


@pytest.mark.parametrize(
    ("cpanel", "message"),
    [
        (
            '{"clip_parm": 0.1}',
            "--cpanel: expected a key that exists, found the unknown key 'clip_parm'; did you mean 'clip_param'?",
        ),
        ('{"clip_param": "0.1"}', "--cpanel: clip_param: expected number, found string '0.1'; write such a value"),
        (
            '{"clip_param": 0}',
            "--cpanel: clip_param: expected a finite number above 0.0 and at most 1e+30, found 0.0; choose",
        ),
    ],
)
def test_a_wrong_parameter_stops_at_the_second_hop(cpanel: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_params(options(*ARGV[:2], "--cpanel", cpanel))

    assert str(caught.value).startswith(message)


def test_the_program_says_so_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    argv = [*ARGV[:2], "--set", "clip_parm=0.1", "--session-path", str(tmp_path / "sessions")]

    done = subprocess.run(
        [sys.executable, "-m", "digideep.main", *argv], capture_output=True, text=True, cwd=tmp_path, check=False
    )

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "digideep: error: --set: expected a key that exists, found the unknown key "
        "'clip_parm'; did you mean 'clip_param'?\n"
    )
    assert list(tmp_path.iterdir()) == []
