"""Reading a session in Python: its data, its policy, and what is never run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from digideep.agent.ppo.config import PPOConfig
from digideep.environment.config import EnvConfig, StatisticsConfig
from digideep.errors import CheckpointError, ShapeError, TrustError, UsageError
from digideep.model.config import MLPConfig
from digideep.pipeline.checkpoint import Checkpoint, CheckpointMeta, CheckpointStore, Component
from digideep.pipeline.layout import SessionPaths, read_meta
from digideep.pipeline.summary import Summary
from digideep.post import load
from digideep.post.policy import load_policy
from digideep.spec import ArraySpec, EnvSpec, spec_to_plain
from digideep.types import Chunk, ChunkMeta
from digideep.utility.node import build, node
from digideep.utility.statistics import Statistics

Maker = Callable[..., SessionPaths]

SPEC = EnvSpec(
    "Pendulum-v1",
    {"observation": ArraySpec("box", (3,), "float32", (-1.0, -1.0, -8.0), (1.0, 1.0, 8.0))},
    {"": ArraySpec("box", (1,), "float32", (-2.0,), (2.0,))},
    200,
)
PARAMS: dict[str, Any] = {
    "env": node(EnvConfig, model_name="Pendulum-v1", action_transform="rescale"),
    "runner": {"type": "digideep.pipeline.config:RunnerConfig", "n_epochs": 3, "on_epoch": None},
    "explorer": {"train": {"statistics": node(StatisticsConfig, observations=True)}},
    "agents": {"agent": node(PPOConfig, model=node(MLPConfig, hidden_sizes=(8,)))},
}


def _agent(params: Mapping[str, Any], *, seed: int, spec: EnvSpec = SPEC) -> Any:
    return build(
        params["agents"]["agent"], where="/agents/agent", name="agent", spec=spec, memory=None, device="cpu", seed=seed,
        monitor=lambda name, value: None,
    )  # fmt: skip


def _statistics() -> Statistics:
    statistics = Statistics(StatisticsConfig(observations=True), spec=SPEC, num_envs=2)
    rng = np.random.default_rng(3)
    arrays = {
        "/observations/observation": rng.normal(4.0, 3.0, (2, 9, 3)).astype(np.float32),
        "/masks": np.ones((2, 9), np.float32),
        "/rewards": np.zeros((2, 9), np.float32),
    }
    statistics.merge(Chunk(arrays, ChunkMeta(16, 16, 0, 0)))
    return statistics


def _save(paths: SessionPaths, number: int, *, params: Mapping[str, Any], drop: str = "") -> None:
    store = CheckpointStore(paths.checkpoints, session_id=read_meta(paths)["id"], run_id="test")
    states = {
        "agents.agent": _agent(params, seed=number).state_dict(),
        "statistics": _statistics().state_dict(),
        "runner": {"epoch": number, "env_spec": spec_to_plain(SPEC)},
    }
    components = [Component(name, name.partition(".")[0], 1, states[name]) for name in states if name != drop]
    meta = CheckpointMeta(number, number, 10 * number, 0, "exact", None, {}, {}, "cpu", "")
    store.save(number, components, meta=meta, logs={})


@pytest.fixture
def paths(new_session: Maker) -> SessionPaths:
    """A session with two checkpoints, the first of which is the better one."""
    paths = new_session(params=PARAMS)
    summary = Summary(state="stopped")
    for number, score in ((1, 5.0), (2, 3.0)):
        _save(paths, number, params=PARAMS)
        summary.record_checkpoint(number, epoch=number, frame=10 * number, train_return=score)
    summary.write(paths)
    return paths


def test_a_session_is_read_as_data(paths: SessionPaths) -> None:
    row = {
        "meta": {"epoch": 1, "frame": 10},
        "data": {"train/return": {"num": 1, "mean": 2.5, "std": 0, "min": 0, "max": 5}},
    }
    paths.varlog.write_text(json.dumps(row) + "\n" + json.dumps(row)[:40])  # the second line is torn
    paths.repeal.write_text(json.dumps([{"path": "/runner/n_epochs", "old": 3, "new": 7, "epoch": 1, "time": ""}]))

    loader = load(paths.root)

    assert loader.params["runner"]["n_epochs"] == 7
    assert loader.cpanel == {"seed": 1}
    assert loader.summary["state"] == "stopped"
    assert loader.meta["message"] == "a trial"
    assert loader.checkpoints == [
        {"name": "checkpoint-1", "number": 1, "epoch": 1, "frame": 10, "mean_return": 5.0},
        {"name": "checkpoint-2", "number": 2, "epoch": 2, "frame": 20, "mean_return": 3.0},
    ]
    assert loader.varlog()["train/return"].tolist() == [2.5]
    assert loader.varlog()["frame"].tolist() == [10]
    assert loader.prolog() == {}
    assert loader.monlog() == {}


def test_the_policy_takes_raw_observations_and_gives_the_environments_actions(paths: SessionPaths) -> None:
    raw = np.array([[0.5, -0.5, 3.0], [10.0, 4.0, -2.0]], dtype=np.float32)
    normalizer = _statistics().snapshot()
    output = _agent(PARAMS, seed=2).actor(normalizer).act({"observation": raw}, deterministic=True)

    policy = load(paths.root).policy()
    actions = policy.act(raw)

    assert policy.checkpoint == "checkpoint-2"
    assert policy.spec == SPEC
    np.testing.assert_allclose(actions, 2.0 * np.clip(output.actions[""], -1.0, 1.0), rtol=1e-4)
    one = policy.act(raw[1])
    assert one.shape == (1,)
    np.testing.assert_allclose(one, actions[1], rtol=1e-4)
    assert np.abs(policy.act(np.full((50, 3), 100.0), deterministic=False)).max() <= 2.0


def test_best_last_and_a_number_are_different_policies(paths: SessionPaths) -> None:
    loader, raw = load(paths.root), np.array([0.5, -0.5, 3.0])

    named = {which: loader.policy(which).checkpoint for which in ("best", "last", 1)}
    first, second = (loader.policy(number).act(raw) for number in (1, 2))

    assert named == {"best": "checkpoint-1", "last": "checkpoint-2", 1: "checkpoint-1"}
    assert not np.allclose(first, second)
    for unknown, error in ((3, CheckpointError), ("newest", UsageError), (True, UsageError)):
        with pytest.raises(error):
            loader.policy(unknown)


def test_the_best_one_is_found_although_the_summary_is_damaged(paths: SessionPaths) -> None:
    rows = [
        {"meta": {"epoch": number, "frame": 10 * number}, "data": {"train/return": {"mean": mean}}}
        for number, mean in ((1, 5.0), (2, 3.0))
    ]
    paths.varlog.write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths.summary.write_text("{")

    assert load(paths.root).load_checkpoint("best").number == 1


def test_a_policy_needs_nothing_of_what_only_its_critic_saw(paths: SessionPaths) -> None:
    shown, secret = SPEC.observations["observation"], ArraySpec("box", (1,), "float32", (-1.0,), (1.0,))
    spec = SPEC._replace(observations={"secret": secret, "shown": shown})
    model = node(MLPConfig, hidden_sizes=(8,), critic_observations=("secret",))
    params = {**PARAMS, "agents": {"agent": node(PPOConfig, model=model)}}
    parts = {
        "agents.agent": _agent(params, seed=1, spec=spec).state_dict(),
        "statistics": Statistics(StatisticsConfig(observations=True), spec=spec, num_envs=2).state_dict(),
        "runner": {"env_spec": spec_to_plain(spec)},
    }

    policy = load_policy(Checkpoint(1, paths.checkpoint(1), {}, parts), params, agent="agent", allowed=["digideep"])

    action = policy.act({"shown": [0.5, -0.5, 3.0]})
    np.testing.assert_array_equal(action, policy.act({"shown": [0.5, -0.5, 3.0], "secret": [0.7]}))
    with pytest.raises(ShapeError, match=r"expected the parts \['secret', 'shown'\], found \['secret'\]"):
        policy.act({"secret": [0.7]})


def test_an_observation_of_another_shape_is_named(paths: SessionPaths) -> None:
    policy = load(paths.root).policy()

    with pytest.raises(ShapeError, match=r"expected shapes .*\(3,\).*found .*\(2, 4\)"):
        policy.act(np.zeros((2, 4)))
    with pytest.raises(ShapeError, match="expected shapes"):
        policy.act(1.0)


def test_a_damaged_checkpoint_is_passed_over_only_where_none_was_named(
    paths: SessionPaths, caplog: pytest.LogCaptureFixture
) -> None:
    weights = paths.checkpoint(2) / "agents.agent.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    loader = load(paths.root)

    assert loader.policy().checkpoint == "checkpoint-1"
    assert "damaged and passed over" in caplog.text
    with pytest.raises(CheckpointError, match="checkpoint-2"):
        loader.policy(2)


@pytest.mark.parametrize("drop", ["agents.agent", "statistics", "runner"])
def test_a_checkpoint_without_a_part_that_a_policy_needs_is_refused(paths: SessionPaths, drop: str) -> None:
    _save(paths, 3, params=PARAMS, drop=drop)

    with pytest.raises(CheckpointError, match=f"expected the component '{drop}'"):
        load(paths.root).policy(3)


def test_another_agents_name_is_told_those_there_are(paths: SessionPaths) -> None:
    with pytest.raises(UsageError, match=r"expected one of \['agent'\], found 'agnet'"):
        load(paths.root).policy(agent="agnet")


def test_other_code_than_the_readers_is_one_warning(paths: SessionPaths) -> None:
    with open(paths.modules / "digideep" / "errors.py", "a", encoding="utf-8") as file:
        file.write("# edited\n")

    with pytest.warns(UserWarning, match=r"digideep/errors\.py differ") as caught:
        loader = load(paths.root)
    assert loader.policy().checkpoint == "checkpoint-2"
    assert len(caught) == 1


NETWORK = """
from dataclasses import dataclass
from typing import ClassVar
import torch
from digideep.utility.node import Config, setting

@dataclass(frozen=True)
class NetConfig(Config):
    builds: ClassVar[str] = "my_net_of_a_test:Net"
    width: int = setting(4, "width")

class Net(torch.nn.Module):
    def __init__(self, config, *, observations, outputs):
        super().__init__()
        self.body = torch.nn.Linear(3, config.width)
        self.policy, self.value = torch.nn.Linear(config.width, outputs), torch.nn.Linear(config.width, 1)
    def forward(self, observations):
        hidden = torch.tanh(self.body(observations["observation"]))
        return self.policy(hidden), self.value(hidden)[..., 0]
"""

USE = """
import sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
sys.dont_write_bytecode = True
import numpy as np
from digideep.agent.modules import named_arrays
from digideep.agent.policy import build_policy
from digideep.errors import TrustError
from digideep.pipeline.checkpoint import CheckpointMeta, CheckpointStore, Component
from digideep.pipeline.layout import SessionPaths, read_meta
from digideep.pipeline.trust import sign
from digideep.post import load
from digideep.spec import spec_from_plain

paths = SessionPaths(Path(sys.argv[1]))
store = CheckpointStore(paths.checkpoints, session_id=read_meta(paths)["id"], run_id="test")
parts = dict(store.load(1).components)

def use(**options):
    try:
        print(load(paths.root, **options).policy(2).act(np.zeros(3)).shape)
    except TrustError as error:
        print("untrusted", error.exit_code, "my_net_of_a_test" in str(error), "my_net_of_a_test" in sys.modules)

use()
sys.path.append(str(paths.modules))
spec = spec_from_plain(parts["runner"]["env_spec"])
network = {"type": "my_net_of_a_test:NetConfig", "width": 4}
policy = build_policy(network, spec, seed=1, where="/", allowed=("digideep", "my_net_of_a_test"))
parts["agents.agent"] = {"policy": named_arrays(policy)}
meta = CheckpointMeta(2, 2, 2, 0, "exact", None, {}, {}, "cpu", "")
store.save(2, [Component(name, "part", 1, state) for name, state in parts.items()], meta=meta, logs={})
sys.path.pop()
for name in [name for name in sys.modules if name == "my_net_of_a_test"]:
    del sys.modules[name]
use()
use(trust_session=True)
del sys.modules["my_net_of_a_test"]
sys.path.remove(str(paths.modules))
sign(paths, modules=["my_net_of_a_test"])
sys.dont_write_bytecode = False
use()
use()
"""


def test_a_network_of_the_users_own_is_used_from_the_session_once_it_is_trusted(new_session: Maker) -> None:
    own = {**PARAMS["agents"]["agent"], "model": {"type": "my_net_of_a_test:NetConfig", "width": 4}}
    paths = new_session("own", params={**PARAMS, "agents": {"agent": own}})
    (paths.modules / "my_net_of_a_test.py").write_text(NETWORK)
    _save(paths, 1, params=PARAMS)

    done = subprocess.run(
        [sys.executable, "-P", "-c", USE, str(paths.root)], capture_output=True, text=True, cwd=paths.root
    )

    assert done.stderr == ""
    refused = "untrusted 6 True False"
    assert done.stdout.splitlines() == [refused, refused, "(1,)", "(1,)", "(1,)"]
    assert list(paths.modules.rglob("__pycache__")) == []


def test_a_module_named_by_an_untrusted_session_is_not_imported(paths: SessionPaths) -> None:
    paths.repeal.write_text(
        json.dumps([{"path": "/agents/agent/type", "old": "", "new": "antigravity:Agent", "epoch": 0, "time": ""}])
    )

    with pytest.raises(TrustError, match="antigravity"):
        load(paths.root).policy()
    assert "antigravity" not in sys.modules


def test_an_environment_of_the_users_own_is_not_needed_to_act(paths: SessionPaths) -> None:
    paths.repeal.write_text(
        json.dumps([{"path": "/env/from_module", "old": None, "new": "antigravity", "epoch": 0, "time": ""}])
    )

    assert load(paths.root).policy().act(np.zeros(3)).shape == (1,)
    assert "antigravity" not in sys.modules


def test_importing_a_session_imports_only_the_standard_library_until_its_loader_is_used(paths: SessionPaths) -> None:
    program = (
        "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "import session_1 as session\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before} - {'session_1'}\n"
        "print(sorted(loaded - set(sys.stdlib_module_names)), 'loader' in dir(session))\n"
        "print(session.loader.summary['state'], session.loader is session.loader, 'torch' in sys.modules)\n"
        "try: session.something\nexcept AttributeError as error: print(error)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(paths.root.parent)], capture_output=True, text=True, cwd=paths.root
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[] True",
        "stopped True False",
        "module 'session_1' has no attribute 'something'",
    ]
