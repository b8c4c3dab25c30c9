from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from digideep.params import cartpole_ppo
from digideep.params.describe import describe, list_presets
from digideep.pipeline.options import SessionOptions

OPTIONS = SessionOptions(params="digideep.params.cartpole_ppo", assignments=(("lr", "1"),))


def test_a_description_has_every_knob_with_value_type_unit_and_meaning() -> None:
    knobs = {knob["name"]: knob for knob in json.loads(describe(OPTIONS, as_json=True))}

    assert list(knobs) == list(cartpole_ppo.cpanel)
    assert knobs["lr"] == {
        "name": "lr",
        "value": 1.0,
        "type": "number",
        "unit": "",
        "meaning": "learning rate at frame 0",
        "path": "/agents/agent/lr",
    }
    assert (knobs["save_interval"]["unit"], knobs["save_interval"]["path"]) == ("epochs", "/runner/save_int")
    assert (knobs["num_workers"]["type"], knobs["stop_return"]["type"]) == ("integer or 'auto'", "number or null")
    assert all(knob["meaning"] for knob in knobs.values())


def test_a_description_for_people_is_a_table_with_one_line_a_knob() -> None:
    lines = describe(OPTIONS, as_json=False).splitlines()

    assert lines[0].split() == ["knob", "value", "type", "unit", "meaning"]
    assert [line.split()[0] for line in lines[1:]] == list(cartpole_ppo.cpanel)
    assert next(line for line in lines if line.startswith("lr ")).split()[:3] == ["lr", "1.0", "number"]


def changed(tmp_path: Path, way: str) -> SessionOptions:
    """Options that set /agents/agent/target_kl to 0.02 in one of the ways that there are."""
    preset, path = str(OPTIONS.params), "/agents/agent/target_kl"
    if way == "a file":
        (tmp_path / "changed.yaml").write_text(f"params: {preset}\nrepeal: {{{path}: 0.02}}\n")
        return SessionOptions(params=str(tmp_path / "changed.yaml"))
    if way == "--repeal":
        return SessionOptions(params=preset, repeal={path: 0.02})
    return SessionOptions(params=preset, assignments=((path, "0.02"),))


@pytest.mark.parametrize("way", ["--repeal", "--set", "a file"])
def test_a_description_shows_the_values_that_changes_by_path_bring(tmp_path: Path, way: str) -> None:
    options = changed(tmp_path, way)

    knobs = {knob["name"]: knob["value"] for knob in json.loads(describe(options, as_json=True))}
    lines = describe(options, as_json=False).splitlines()

    assert (knobs["target_kl"], knobs["clip_param"]) == (0.02, cartpole_ppo.cpanel["clip_param"])
    assert next(line for line in lines if line.startswith("target_kl")).split()[1] == "0.02"
    assert list(knobs) == list(cartpole_ppo.cpanel)


def test_a_description_ends_with_what_was_changed_by_path_and_has_no_knob() -> None:
    options = SessionOptions(params=OPTIONS.params, repeal={"/explorer/eval/n_episodes": 3, "/env/env_kwargs/x": 1})

    *_, first, second = json.loads(describe(options, as_json=True))

    assert (first["name"], first["value"], first["path"]) == ("/explorer/eval/n_episodes", 3, first["name"])
    assert (first["type"], first["unit"], bool(first["meaning"])) == ("integer", "episodes", True)
    assert (second["name"], second["value"]) == ("/env/env_kwargs/x", 1)


def test_a_description_shows_a_node_that_was_replaced_and_the_knobs_in_it() -> None:
    model = {"type": "digideep.model.config:MixedConfig", "hidden_sizes": [16]}
    options = SessionOptions(params=OPTIONS.params, repeal={"/agents/agent/model": model})

    knobs = {knob["name"]: knob for knob in json.loads(describe(options, as_json=True))}

    assert knobs["hidden_sizes"]["value"] == [16]
    assert knobs["/agents/agent/model"]["value"]["type"] == model["type"]


def test_a_description_says_of_knobs_of_critics_that_dqn_takes_none() -> None:
    def told(preset: str) -> dict[str, str]:
        options = SessionOptions(params=f"digideep.params.{preset}")
        return {knob["name"]: knob["meaning"] for knob in json.loads(describe(options, as_json=True))}

    dqn, ppo = told("classic_dqn"), told("cartpole_ppo")

    assert dqn["critic_hidden_sizes"] == "none: the network of action values has no critic; null alone"
    assert dqn["critic_observations"] == "none: the network of action values has no critic; [] alone"
    assert "only the value function" in ppo["critic_observations"]


def test_presets_are_listed_for_people_and_for_programs() -> None:
    listed = json.loads(list_presets(as_json=True))

    assert {"name": "digideep.params.cartpole_ppo", "meaning": cartpole_ppo.__doc__.split("\n")[0]} in listed  # type: ignore[union-attr]
    assert [line.split()[0] for line in list_presets(as_json=False).splitlines()] == [one["name"] for one in listed]


def test_the_program_describes_and_lists_without_heavy_imports() -> None:
    code = (
        "import sys\n"
        "from digideep.main import main\n"
        "codes = [main(['--list-params']), main(['--params', 'digideep.params.cartpole_ppo', '--describe'])]\n"
        "print(codes, [m for m in ('torch', 'gymnasium', 'numpy') if m in sys.modules], file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "[0, 0] []\n"
    assert done.stdout.startswith("digideep.params.acrobot_ppo")
    assert "\nclip_param " in done.stdout
