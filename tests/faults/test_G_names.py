"""G: parameter modules, environments, sessions and places that cannot be: one line, exit code 2, nothing left."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cold import Cold

NEW = ["--params", "digideep.params.cartpole_ppo"]
VALID = "cpanel = {'seed': 1}\ndef gen_params(cpanel): "


def _hole(path: Path) -> None:
    with open(path, "wb") as stream:
        stream.truncate(1 << 36)


# Files of parameters that are none, by their name; the text is what they hold.
PYTHON: Mapping[str, str] = {
    "empty.py": "", "syntax_error.py": "def (", "zeros.py": "x = 1\0", "raises.py": "raise ValueError('a\\nb\\x1b[2J')",
    "exits.py": "import sys; sys.exit(0)", "stops.py": "raise GeneratorExit", "recursive.py": "def f(): f()\nf()",
    "own_error.py": "class Own(BaseException): pass\nraise Own('x')", "nested.py": "x = " + "(" * 5000 + ")" * 5000,
    "lacks_module.py": "import none_at_all", "lacks_cpanel.py": "def gen_params(cpanel): return {}",
    "lacks_gen.py": "cpanel = {}", "cpanel_list.py": "cpanel = []\ndef gen_params(c): return {}",
    "gen_number.py": "cpanel = {}\ngen_params = 3", "gen_arguments.py": "cpanel = {}\ndef gen_params(): return {}",
    "returns_number.py": f"{VALID} return 3", "returns_none.py": f"{VALID} pass", "raises_later.py": f"{VALID} 1 / 0",
    "exits_later.py": f"{VALID} raise SystemExit(0)", "returns_nothing.py": f"{VALID} return {{}}",
    "cpanel_nan.py": "cpanel = {'a': float('nan')}\ndef gen_params(c): return {}",
    "cpanel_object.py": "cpanel = {'a': object()}\ndef gen_params(c): return {}",
    "cpanel_keys.py": "cpanel = {1: 2}\ndef gen_params(c): return {}",
    "cpanel_itself.py": "cpanel = {}\ncpanel['a'] = cpanel\ndef gen_params(c): return {}",
    "returns_itself.py": "cpanel = {}\nt = {}\nt['t'] = t\ndef gen_params(c): return t",
    "knobs_wrong.py": "from digideep.params.cartpole_ppo import cpanel, gen_params\nknobs = {'seed': '/nowhere'}",
    "class.py": "", "a b.py": "", "1st.py": "", "my-params.py": "", "json.py": "", "torch.py": "",
}  # fmt: skip
YAML: Mapping[str, str] = {
    "empty.yaml": "", "a_list.yaml": "- a", "a_number.yaml": "3", "no_params.yaml": "cpanel: {}",
    "null.yaml": "params:",
    "unknown_key.yaml": "parms: x", "tab.yaml": "params:\n\t- a", "two.yaml": "params: a\n---\nparams: b",
    "twice.yaml": "params: a\nparams: b", "alias.yaml": "a: &a [1]\nparams: *a", "tag.yaml": "params: !!str x",
    "code.yaml": "params: !!python/object/apply:os.system ['touch canary']", "merge.yaml": "<<: {params: a}",
    "open.yaml": "params: [a", "quote.yaml": 'params: "a', "digits.yaml": "params: " + "9" * 5000,
    "no_module.yaml": "params: digideep.params.none_at_all", "cpanel_list.yaml": f"params: {NEW[1]}\ncpanel: [1]",
    "bad_knob.yaml": f"params: {NEW[1]}\ncpanel: {{sed: 3}}", "bad_type.yaml": f"params: {NEW[1]}\ncpanel: {{seed: x}}",
    "bad_path.yaml": f"params: {NEW[1]}\nrepeal: {{seed: 3}}", "no_tree.yaml": "params: {}",
    "half_a_tree.yaml": "params: {env: {type: 'digideep.environment.config:EnvConfig'}}",
    "knobs_without_panel.yaml": "params: {env: {}}\ncpanel: {seed: 3}",
    "octal.yaml": f"params: {NEW[1]}\ncpanel: {{seed: 0o8}}",
}  # fmt: skip
KINDS: Mapping[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
    "gigabytes": _hole,
    "no_text": lambda path: path.write_bytes(b"\xff\xfe\0"),
}


def test_G_files_of_parameters_that_are_none_are_told_by_name(cold: Cold, tmp_path: Path) -> None:
    found: list[str] = []
    for name, text in {**PYTHON, **YAML}.items():
        (tmp_path / name).write_text(text)
        found += cold.complaints("main", f"--params={name}", cwd=tmp_path)
        (tmp_path / name).unlink()

    assert found == []


@pytest.mark.parametrize("suffix", [".py", ".yaml"])
def test_G_something_else_in_place_of_a_file_of_parameters_is_told(cold: Cold, tmp_path: Path, suffix: str) -> None:
    found: list[str] = []
    for kind, make in KINDS.items():
        path = tmp_path / f"params_{kind}{suffix}"
        make(path)
        found += cold.complaints("main", "--params", str(path), cwd=tmp_path, names=[path.name])

    assert found == []


def test_G_code_behind_a_file_is_nobodys_consent(cold: Cold, tmp_path: Path) -> None:
    (tmp_path / "os.yaml").write_text("params: os")
    (tmp_path / "tree.yaml").write_text("params: {env: {type: 'os:system'}}")
    (tmp_path / "knobs.json").write_text('{"from_module": "antigravity"}')

    found = cold.complaints("main", "--params", "os.yaml", cwd=tmp_path, code=6, names=["'os'"])
    found += cold.complaints("main", "--params", "tree.yaml", cwd=tmp_path, code=6, names=["'os'"])
    found += cold.complaints("main", *NEW, "--cpanel", "@knobs.json", cwd=tmp_path, code=6, names=["antigravity"])

    assert found == []


MODEL_NAMES = [
    "", " ", "CartPol-v1", "cartpole-v1", "CartPole-v9", "CartPole-v1 ", "CartPole-v01", "CartPole_v1",
    "CartPole-v1-v1",
    "CartPole-vx", "x" * 300, "../x", "/etc/passwd", "a:b:c", ":CartPole-v1", "CartPole-v1:", "none_at_all:X-v0",
    "os:NoSuch-v0", "a b:X-v0", "ALE/Pong-v9", "ALE/Nothing-v5", "Hopper-v2", "LunarLander-v2",
    "\u202eCartPole-v1", "\0",
]  # fmt: skip


def test_G_an_environment_that_is_not_there_is_told_without_torch(cold: Cold, tmp_path: Path) -> None:
    found: list[str] = []
    for name in MODEL_NAMES:
        argv = [*NEW, "--cpanel", json.dumps({"model_name": name})]
        found += cold.complaints("main", *argv, cwd=tmp_path, names=["model_name"], heavy=["gymnasium"])
    for name in ("none_at_all", "../x", "", "a-b", "x" * 300):
        argv = [*NEW, "--set", f'from_module="{name}"']
        found += cold.complaints("main", *argv, cwd=tmp_path, names=["from_module"], heavy=["gymnasium"])
    for kwargs in ('{"nothing": 1}', '{"max_episode_steps": 3}', '{"id": "x"}', '{"entry_point": "os:system"}'):
        argv = [*NEW, "--set", f"env_kwargs={kwargs}"]
        found += cold.complaints("main", *argv, cwd=tmp_path, names=["env_kwargs"], heavy=["gymnasium"])

    assert found == []


def test_G_a_checkpoint_to_begin_from_that_is_not_there_is_told(cold: Cold, tmp_path: Path) -> None:
    found: list[str] = []
    for path in ("none", "/", "/dev/null", ".", "~nobody_at_all/x", "x" * 300, "\\u0000"):
        argv = [*NEW, "--set", f'init_from="{path}"']
        found += cold.complaints("main", *argv, cwd=tmp_path, heavy=["gymnasium"])

    assert found == []


def _places(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    os.mkfifo(tmp_path / "fifo")
    return {
        "a file": tmp_path / "file", "below a file": tmp_path / "file" / "x", "a loop": tmp_path / "loop" / "x",
        "a fifo": tmp_path / "fifo", "a device": Path("/dev/null"), "below a device": Path("/dev/null/x"),
        "too long": tmp_path / ("x" * 300), "much too long": tmp_path / "/".join(["x" * 200] * 30),
        "no file system for it": Path("/proc/x"), "a file system without files": Path("/sys/x"),
    }  # fmt: skip


@pytest.mark.parametrize("how", ["--session-path", "DIGIDEEP_SESSIONS"])
def test_G_a_place_where_no_session_can_be_made_is_told(cold: Cold, tmp_path: Path, how: str) -> None:
    found: list[str] = []
    for place in _places(tmp_path).values():
        argv, env = [*NEW, "--session-path", str(place)], {}
        if how == "DIGIDEEP_SESSIONS":
            argv, env = NEW, {how: str(place)}
        told = cold.complaints("main", *argv, cwd=tmp_path, env=env, names=[how], heavy=["gymnasium", "tensorboard"])
        found += told

    assert found == []


def test_G_an_existing_name_is_refused_with_the_ways_out(cold: Cold, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    found: list[str] = []
    for kind in ("directory", "file", "fifo", "dangling", "loop"):
        argv = [*NEW, "--session-path", str(tmp_path), "--session-name", kind]
        names = ["--session-name", "--autoresume"]
        found += cold.complaints("main", *argv, cwd=tmp_path, names=names, heavy=["gymnasium", "tensorboard"])

    assert found == []


def test_G_a_failed_start_leaves_no_place_that_it_has_made(cold: Cold, tmp_path: Path) -> None:
    argv = [*NEW, "--session-path", str(tmp_path / "a" / "b" / "c"), "--save-modules", "none_at_all"]

    found = cold.complaints("main", *argv, cwd=tmp_path, heavy=["gymnasium"])

    assert found == []


@pytest.mark.skipif(os.geteuid() != 0, reason="expected the right to mount: only root has it")
@pytest.mark.parametrize("state", ["read-only", "full"])
def test_G_a_place_that_cannot_be_written_is_told(cold: Cold, tmp_path: Path, state: str) -> None:
    place = tmp_path / "mounted"
    place.mkdir()
    size = "size=64k,nr_inodes=3" if state == "full" else "size=1m"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        if state == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        else:
            (place / "filler").write_bytes(bytes(40_000))
            (place / "last").touch()
        argv = [*NEW, "--session-path", str(place), "--session-name", "x"]
        code = 2
        answer = cold.ask("main", *argv, cwd=tmp_path)
        assert answer.code == code and "--session-path" in answer.err and answer.error, answer
        assert sorted(os.listdir(place)) in ([], ["filler", "last"])
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("limit", [12, 13, 14, 15, 16, 18, 20, 24])
def test_G_too_few_open_files_are_told_with_the_limit_to_raise(warm: Cold, tmp_path: Path, limit: int) -> None:
    sets = ["num_envs=2", "n_steps=8", "number_epochs=1", "total_frames=0", "num_workers=2", "stop_return=null"]
    argv = [*NEW, "--set", *sets, "epoch_size=1", "test_activate=false"]

    ended = warm.ask("main", *argv, cwd=tmp_path, limits={"NOFILE": limit})

    last = ended.err.splitlines()[-1]
    assert ended.code in (0, 2, 9), ended
    assert ended.code == 0 or (last.startswith("digideep: error: ") and "ulimit -n" in last), ended


def test_G_no_directory_for_temporary_files_is_told(warm: Cold, tmp_path: Path) -> None:
    (tmp_path / "dry_params.py").write_text(
        "import tempfile\n"
        "from digideep.params.cartpole_ppo import cpanel, gen_params\n"
        "def none(): raise FileNotFoundError(2, 'No usable temporary directory found in [/tmp]')\n"
        "tempfile.tempdir, tempfile._get_default_tempdir = None, none\n"
    )

    ended = warm.ask("main", "--params", "dry_params.py", "--dry-run", cwd=tmp_path)

    assert (ended.code, ended.err.count("\n")) == (2, 1), ended
    assert "TMPDIR" in ended.err
