from __future__ import annotations

import json
import subprocess
import sys

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
