from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from digideep.errors import ConfigError, MissingExtraError, TrustError, UsageError
from digideep.params import cartpole_ppo
from digideep.params.loading import LoadedParams, load_params
from digideep.pipeline.cli import from_keywords, parse
from digideep.pipeline.options import SessionOptions
from digideep.utility.yaml12 import dumps_yaml

PRESET = "digideep.params.cartpole_ppo"
MINE = """
from digideep.params.cartpole_ppo import cpanel as base, gen_params as gen
from user_parts import NetConfig
from digideep.utility.node import node

print("loaded")
cpanel = {**base, "number_epochs": 0, "width": 32, "depth": 2}
knobs = {"width": "/agents/agent/model/units"}

def gen_params(cpanel):
    params = gen(cpanel)
    params["agents"]["agent"]["model"] = node(NetConfig, units=cpanel["width"])
    return params
"""
PARTS = """
from dataclasses import dataclass
from typing import ClassVar
from digideep.utility.node import Config, setting

@dataclass(frozen=True)
class NetConfig(Config):
    builds: ClassVar[str] = "user_nets:Net"
    units: int = setting(64, "units of the layer", unit="units", low=1)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory, and no trace of the modules in it afterwards."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("user_"):
            del sys.modules[name]


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def load(*argv: str) -> LoadedParams:
    request = parse(["--params", *argv])
    assert isinstance(request, SessionOptions)
    return load_params(request, time="now")


def test_a_preset_loads_as_it_is() -> None:
    loaded = load(PRESET)

    assert (loaded.preset, loaded.module, loaded.path) == ("cartpole_ppo", PRESET, None)
    assert loaded.cpanel == cartpole_ppo.cpanel
    assert loaded.base == loaded.params == cartpole_ppo.gen_params(cartpole_ppo.cpanel)
    assert (loaded.entries, loaded.modules, loaded.files, loaded.search) == ([], (), (), ())


def test_later_sources_overrule_earlier_ones() -> None:
    cpanel = "cpanel: {lr: 1e-4, seed: 2, gamma: 0.9}"
    repeal = "repeal: {/runner/grace_s: 2, /runner/save_int: 2, /runner/keep_last: 2}"
    write("trial.yaml", f"params: {PRESET}\n{cpanel}\n{repeal}\n")

    loaded = load(
        *("trial.yaml", "--cpanel", '{"seed": 3, "gae_lambda": 0.8}', "--repeal", '{"/runner/save_int": 3}'),
        *("--set", "gamma=0.5", "/runner/keep_last=4"),
    )

    assert [loaded.cpanel[key] for key in ("lr", "seed", "gamma", "gae_lambda")] == [1e-4, 3, 0.5, 0.8]
    assert [loaded.params["runner"][key] for key in ("grace_s", "save_int", "keep_last")] == [2.0, 3, 4]
    assert loaded.params == {**loaded.base, "runner": loaded.params["runner"]}
    assert {entry["path"]: (entry["old"], entry["new"], entry["epoch"], entry["time"]) for entry in loaded.entries} == {
        "/runner/save_int": (5, 3, 0, "now"),
        "/runner/keep_last": (3, 4, 0, "now"),
        "/runner/grace_s": (20.0, 2.0, 0, "now"),
    }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--set", "lr=1", "lr=2"], "--set: lr: expected every key once, found it twice"),
        (["--cpanel", '{"lr": 1}', "--set", "lr=2"], "--set: lr: expected every key once, found it twice"),
        (["--set", "lr=1", "/agents/agent/lr=2"], "--set: expected every key once, found 'lr' and its path"),
        (
            ["--cpanel", '{"clip_parm": 1}'],
            "--cpanel: expected a key that exists, found the unknown key 'clip_parm'; did you mean 'clip_param'?",
        ),
        (
            ["--set", "clip_parm=1"],
            "--set: expected a key that exists, found the unknown key 'clip_parm'; did you mean 'clip_param'?",
        ),
        (["--set", "lr=fast"], "--set: lr: expected number, found string 'fast'"),
        (["--set", "num_envs=1.5"], "--set: num_envs: expected integer, found number 1.5"),
        (["--set", "num_envs=0"], "--set: num_envs: expected a finite number at least 1 and at most 65536, found 0"),
        (["--set", "exact=yes"], "--set: exact: expected boolean, found string 'yes'"),
        (["--set", "on_env_error=rest"], "--set: on_env_error: expected one of 'stop', 'reset', found string 'rest'"),
        (["--cpanel", '{"seed": null}'], "--cpanel: seed: expected integer, found null"),
        (["--cpanel", '{"seed": true}'], "--cpanel: seed: expected integer, found boolean true"),
        (["--cpanel", '{"engine": "fast"}'], "--cpanel: engine: expected mapping, found string 'fast'"),
        (["--cpanel", '{"engine": {"num_threads": 2}}'], "/engine: expected a node with the key 'type'"),
        (
            ["--set", "number_epochs=3"],
            "number_epochs, total_frames: expected exactly one of them above 0, found 3",
        ),
        (
            ["--set", "total_frames=0"],
            "number_epochs, total_frames: expected exactly one of them above 0, found 0",
        ),
        (["--set", "test_win_size=0"], "--set: test_win_size: expected a finite number at least 1, found 0"),
        (["--set", "n_steps=0"], "--set: n_steps: expected a finite number at least 1, found 0"),
        (["--cpanel", '{"n_steps": 0}'], "--cpanel: n_steps: expected a finite number at least 1, found 0"),
        (["--set", "/runner=1"], "--set: /runner: expected a node with the key 'type', found integer 1"),
        (["--repeal", '{"/runner": 1}'], "--repeal: /runner: expected a node with the key 'type', found integer 1"),
        (["--save-modules", "json", "user_none"], "--save-modules: expected an importable module, found none called"),
        (
            ["--set", "/runner/n_epoch=3"],
            "--set: expected a path that exists, found the unknown path "
            "'/runner/n_epoch'; did you mean '/runner/n_epochs'?",
        ),
        (["--set", "/=3"], "--set: expected a path such as '/runner/n_epochs', found '/'"),
        (
            ["--set", "from_module=user_none"],
            "/env/from_module: expected a module that can be imported, found no",
        ),
        (["--set", "from_module=a-b"], "/env/from_module: expected a dotted module name, found 'a-b'"),
        (["--set", "model_name=user_none:X-v0"], "/env/model_name: expected a module that can be imported, found no"),
        (["--set", "on_epoch=user_none"], "/runner/on_epoch: expected 'module:Name', found 'user_none'"),
        (["--set", "on_epoch=os:nope"], "/runner/on_epoch: expected a name in module 'os', found 'nope'"),
        (["--set", "on_epoch=os:name"], "/runner/on_epoch: expected a function, found 'os:name', a str; name one"),
        (["--set", "/runner/on_epoch=os:nope"], "/runner/on_epoch: expected a name in module 'os', found 'nope'"),
        (["--set", "on_epoch=user_none:f"], "/runner/on_epoch: expected a module that can be imported, found no"),
    ],
)
def test_bad_changes_are_one_line_with_the_fix(argv: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(PRESET, *argv)

    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert list(Path().iterdir()) == []


def test_an_environment_package_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shimmy", None)

    with pytest.raises(MissingExtraError, match=r'pip install "digideep\[dm\]"'):
        load(PRESET, "--set", "from_module=shimmy")


@pytest.mark.parametrize("name", ["user_mine", "user_mine.py", "./user_mine.py", "sub/../user_mine.py"])
def test_a_users_module_loads_by_name_and_by_path(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("sub/x", "")
    write("user_mine.py", MINE)
    write("user_parts.py", PARTS)
    write("user_nets.py", "raise RuntimeError('built only when it is needed')")
    path = list(sys.path)

    loaded = load(name, "--set", "width=8", "depth=3")

    assert (loaded.preset, loaded.module, loaded.cpanel["depth"]) == ("user_mine", "user_mine", 3)
    assert loaded.params["agents"]["agent"]["model"] == {"type": "user_parts:NetConfig", "units": 8}
    assert loaded.knobs["width"] == "/agents/agent/model/units"
    assert {"user_parts", "user_nets"} <= set(loaded.allowed)
    assert set(loaded.files) == {here / f"user_{name}.py" for name in ("mine", "parts", "nets")}
    assert (loaded.search, sys.path) == ((here,), path)
    assert capsys.readouterr().out == "", "what a module prints is no documented line"
    assert not list(here.rglob("__pycache__"))


def test_a_users_own_knob_has_type_and_range_of_what_it_configures() -> None:
    write("user_mine.py", MINE)
    write("user_parts.py", PARTS)
    write("user_nets.py", "")

    with pytest.raises(ConfigError, match=r"^--set: width: expected a finite number at least 1, found 0"):
        load("user_mine.py", "--set", "width=0")
    with pytest.raises(ConfigError, match=r"^--set: depth: expected integer, found number 1.5"):
        load("user_mine.py", "--set", "depth=1.5")


def test_defaults_may_leave_the_goal_to_the_command_line() -> None:
    text = f"from {PRESET} import cpanel as base, gen_params\ncpanel = {{**base, 'total_frames': 0}}\n"
    write("user_open.py", text)

    loaded = load("user_open.py", "--set", "number_epochs=2", "lr=1")

    assert loaded.params["runner"]["n_epochs"] == 2
    with pytest.raises(ConfigError, match=r"^number_epochs, total_frames: expected exactly one of them above 0"):
        load("user_open.py")
    with pytest.raises(ConfigError, match=r"^--set: number_epochs: expected integer, found number 1.5"):
        load("user_open.py", "--set", "number_epochs=1.5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def gen_params(c): return {}\n",
            "{file}:1: expected a dictionary called 'cpanel', found none; define it",
        ),
        ("cpanel = {}\n", "{file}:1: expected a function 'gen_params(cpanel)', found none; define it there"),
        ("cpanel = []\ndef gen_params(c): ...\n", "{file}:1: expected a dictionary called 'cpanel', found a list"),
        (
            "cpanel = {'a': open}\ndef gen_params(c): ...\n",
            "{file}: cpanel/a: expected plain data, found builtin",
        ),
        (
            "cpanel = {}\ndef gen_params(c):\n    return c['x']\n",
            "{file}:3: expected code that runs, found KeyError",
        ),
        ("cpanel = {}\ndef gen_params(c): return 3\n", "{file}: gen_params: expected a mapping, found int"),
        ("cpanel = {}\ndef gen_params(c): return {}\n", "params: expected a mapping at '/env', found none"),
        ("cpanel = {'number_epochs': 'x', 'total_frames': 'x'}\ndef gen_params(c): return {}\n", "params: expected a"),
        ("cpanel = {\n", "{file}:1: expected code that runs, found SyntaxError: '{{' was never closed"),
        ("import user_absent\n", "{file}:1: expected code that runs, found ModuleNotFoundError: No module named"),
        ("import sys\nsys.exit(0)\n", "{file}:2: expected code that runs, found SystemExit: 0"),
        (
            "from digideep.utility.node import node\nfrom digideep.model.config import MLPConfig\ncpanel = {}\n"
            "def gen_params(c):\n    return node(MLPConfig, activation='tan')\n",
            "{file}:5: MLPConfig/activation: expected one of 'tanh', 'relu'",
        ),
    ],
)
def test_a_module_that_is_none_of_parameters_is_told_with_file_and_line(text: str, message: str, here: Path) -> None:
    write("user_bad.py", text)

    with pytest.raises(UsageError) as caught:
        load("user_bad.py")

    assert str(caught.value).startswith(message.format(file=here / "user_bad.py"))
    assert [path.name for path in here.iterdir()] == ["user_bad.py"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digideep.params.cartpole_pp", "found no 'digideep.params.cartpole_pp'; did you mean '" + PRESET + "'"),
        ("cartpole_ppo", "found no 'cartpole_ppo'; did you mean '" + PRESET + "'"),
        ("digideep.params.cartpole-ppo", "; did you mean '" + PRESET + "'"),
        ("user_absent", "found no 'user_absent'; --list-params lists the presets"),
        ("user_absent.py", "expected a Python file, found none at"),
        ("user_absent.yaml", "expected a readable YAML file, found No such file or directory"),
        ("sub/user_absent", "expected a dotted name, a .py or a .yaml file, found 'sub/user_absent'"),
        ("json.decoder", "expected a dictionary called 'cpanel', found none"),
    ],
)
def test_a_name_that_is_no_parameter_module_is_one_line(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(name)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_yaml_file_may_hold_a_whole_tree(here: Path) -> None:
    tree = cartpole_ppo.gen_params(cartpole_ppo.cpanel)
    write("whole.yaml", dumps_yaml({"params": tree, "repeal": {"/runner/seed": 4}}))

    loaded = load("whole.yaml", "--set", "/runner/grace_s=1")

    assert (loaded.preset, loaded.module, loaded.path, loaded.cpanel) == ("whole", None, here / "whole.yaml", {})
    assert loaded.base == tree
    assert (loaded.params["runner"]["seed"], loaded.params["runner"]["grace_s"]) == (4, 1.0)
    with pytest.raises(UsageError, match=r"^lr: expected a path, since .*whole.yaml has no control panel"):
        load("whole.yaml", "--set", "lr=1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected the keys params, cpanel and repeal, found no mapping"),
        ("cpanel: {lr: 1}", "params: expected the name of a module or a whole tree, found none"),
        ("params: 3", "params: expected the name of a module or a whole tree, found '3'"),
        (f"params: {PRESET}\ncpnel: {{}}", "unknown key 'cpnel'; did you mean 'cpanel'?"),
        (f"params: {PRESET}\ncpanel: [1]", "cpanel: expected a mapping, found '[1]'"),
        (f"params: {PRESET}\ncpanel: {{lrr: 1}}", "unknown key 'lrr'; did you mean 'lr'?"),
        (f"params: {PRESET}\ncpanel: {{lr: '1'}}", "lr: expected number, found string '1'"),
        (f"params: {PRESET}\nrepeal: {{/runner/n_epoch: 1}}", "unknown path '/runner/n_epoch'; did you mean"),
        ("params: {env: {}}", "params: expected a mapping at '/runner', found none"),
        (f"params: {PRESET}\nparams: x", "expected every key once, found 'params' twice in line 2"),
    ],
)
def test_a_bad_yaml_file_is_one_line(text: str, message: str) -> None:
    write("bad.yaml", text)

    with pytest.raises(UsageError) as caught:
        load("bad.yaml")

    assert message in str(caught.value)


def test_no_knob_is_a_float_by_accident_in_yaml() -> None:
    write("a.yaml", f"params: {PRESET}\ncpanel: {{lr: 1e-4, model_name: NO}}\n")

    loaded = load("a.yaml")

    assert (loaded.cpanel["lr"], loaded.cpanel["model_name"]) == (1e-4, "NO")


@pytest.mark.parametrize(
    "text",
    [
        f"params: {PRESET}\ncpanel: {{from_module: antigravity}}",
        f"params: {PRESET}\ncpanel: {{model_name: 'antigravity:X-v0'}}",
        f"params: {PRESET}\ncpanel: {{on_epoch: 'antigravity:fly'}}",
        f"params: {PRESET}\ncpanel: {{engine: {{type: 'antigravity:X'}}}}",
        f"params: {PRESET}\nrepeal: {{/agents/agent/type: 'antigravity:X'}}",
        f"params: {PRESET}\nrepeal: {{/agents/agent/model: {{type: 'antigravity:X'}}}}",
        f"params: {PRESET}\nrepeal: {{/runner/on_epoch: 'antigravity:fly'}}",
        f"params: {PRESET}\nrepeal: {{/env/from_module: antigravity}}",
    ],
)
def test_a_file_cannot_name_code_that_nobody_vouched_for(text: str) -> None:
    write("foreign.yaml", text)

    with pytest.raises(TrustError, match=r"foreign.yaml.*found 'antigravity'; name it with --set, or go to"):
        load("foreign.yaml")

    assert "antigravity" not in sys.modules


def test_a_json_file_is_no_consent_either() -> None:
    write("knobs.json", json.dumps({"from_module": "antigravity"}))
    write("paths.json", json.dumps({"/runner/on_epoch": "antigravity:fly"}))

    for argv in (["--cpanel", "@knobs.json"], ["--repeal", "@paths.json"]):
        with pytest.raises(TrustError, match="antigravity"):
            load(PRESET, *argv)


def test_a_file_may_name_what_lies_below_the_current_directory_or_what_the_command_line_names_too(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("user_env.py", "")
    write("a.yaml", f"params: {PRESET}\ncpanel: {{from_module: user_env}}\n")
    source = Path("a.yaml").resolve()

    assert load("a.yaml").cpanel["from_module"] == "user_env"
    monkeypatch.syspath_prepend(str(source.parent))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(TrustError, match="found 'user_env'"):
        load(str(source))
    assert load(str(source), "--set", "from_module=user_env").cpanel["from_module"] == "user_env"


def test_what_the_command_line_names_is_consent() -> None:
    write("user_env.py", "")

    loaded = load(PRESET, "--set", "from_module=user_env")

    assert "user_env" in loaded.allowed
    assert [os.path.basename(path) for path in loaded.files] == ["user_env.py"]


def test_python_loads_what_the_command_line_loads() -> None:
    changes: dict[str, Any] = {"lr": 1, "hidden_sizes": (8, 8)}

    loaded = load_params(from_keywords(PRESET, changes, repeal={"/runner/seed": 2}), time="now")

    assert loaded.cpanel["hidden_sizes"] == [8, 8]
    assert loaded.params == load(PRESET, "--set", "lr=1", "hidden_sizes=[8,8]", "/runner/seed=2").params
    with pytest.raises(ConfigError, match=r"^cpanel: env_kwargs/f: expected plain data, found builtin_function"):
        load_params(from_keywords(PRESET, {"env_kwargs": {"f": len}}))


def test_the_fingerprint_depends_on_what_was_asked_for_and_not_on_how() -> None:
    write("a.yaml", f"params: {PRESET}\ncpanel: {{lr: 1}}\n")
    same = [load(PRESET, "--set", "lr=1"), load(PRESET, "--cpanel", '{"lr": 1.0}'), load("a.yaml")]
    other = [
        load(PRESET),
        load(PRESET, "--set", "lr=1", "/runner/seed=2"),
        load("digideep.params.acrobot_ppo", "--set", "lr=1"),
    ]

    assert len({loaded.fingerprint for loaded in same}) == 1
    assert len({loaded.fingerprint for loaded in (same[0], *other)}) == 4
    assert all(len(loaded.fingerprint) == 12 and int(loaded.fingerprint, 16) >= 0 for loaded in same)
