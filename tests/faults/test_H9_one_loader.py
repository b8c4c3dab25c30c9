"""H9: one loader: nothing runs data as code, neither in what is written nor in what happens."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from cold import Cold
from hostile import PRESET, SETS
from test_layers import BESIDE, FORBIDDEN_CALLS, FORBIDDEN_MODULES, IMPORTS_BY_NAME, PATHS, ROOT, word_faults

# Each kind of statement that the rules have to find, in the form in which it would be written.
FORBIDDEN = [
    "import pickle", "from pickle import loads", "import marshal", "import shelve", "import dill", "import cloudpickle",
    "import joblib", "import ctypes", "import cffi", "from _pickle import loads", "import jsonpickle",
    "eval('1')", "exec('1')", "compile('1', 'x', 'exec')", "import builtins\nbuiltins.exec('1')",
    "import os\nos.system('ls')", "import os\nos.popen('ls')", "from os import system\nsystem('ls')",
    "import subprocess\nsubprocess.run('ls', shell=True)", "import subprocess\nsubprocess.getoutput('ls')",
    "import torch\ntorch.load('x')", "import torch\ntorch.jit.load('x')", "import torch\ntorch.hub.load('x', 'y')",
    "from torch import load\nload('x')", "import yaml\nyaml.load(x)", "import yaml\nyaml.full_load(x)",
    "import yaml\nyaml.unsafe_load(x)", "import yaml\nyaml.load_all(x)",
    "import numpy\nnumpy.load('x', allow_pickle=True)",
    "import pandas\npandas.read_pickle('x')", "import importlib\nimportlib.import_module(x)", "__import__(x)",
    "import runpy\nrunpy.run_path(x)", "import importlib.util\nimportlib.util.spec_from_file_location('x', 'y')",
    "import importlib.machinery\nimportlib.machinery.SourceFileLoader('x', 'y')", 
    "import pkgutil\npkgutil.resolve_name(x)",
    "import zipimport", "import code\ncode.InteractiveInterpreter()",
]  # fmt: skip


@pytest.mark.parametrize("source", FORBIDDEN)
def test_H9_every_way_to_run_data_is_found_in_the_source(source: str) -> None:
    assert list(word_faults("digideep.pipeline.anything", ast.parse(source))) != []


def test_H9_no_source_runs_data_outside_of_the_one_loader() -> None:
    found = [
        fault for module, path in PATHS.items() for fault in word_faults(module, ast.parse(path.read_text("utf-8")))
    ]
    beside = [
        fault
        for path in BESIDE
        for fault in word_faults(str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8")))
        if "import_module" not in fault
    ]

    assert found == [] and beside == []
    assert IMPORTS_BY_NAME == {"digideep.utility.imports"}
    assert {"eval", "exec", "torch.load", "yaml.load"} <= FORBIDDEN_CALLS and "pickle" in FORBIDDEN_MODULES


def test_H9_a_whole_run_loads_no_pickle(warm: Cold, tmp_path: Path) -> None:
    """With workers, tests, saves, a resume, a play and a policy; the workers report through their files."""
    place = tmp_path / "sessions"
    sets = [text for text in SETS if not text.startswith("test_activate")]
    argv = [*PRESET, "--session-path", str(place), "--set", *sets, "num_workers=2", "test_win_size=1"]
    watched = [str(tmp_path / "nothing")]

    trained = warm.ask("main", *argv, cwd=tmp_path, watch=watched)
    (session,) = place.iterdir()
    resumed = warm.ask("main", "--load-checkpoint", str(session), "--resume", cwd=tmp_path, watch=watched)
    played = warm.ask(
        "main", "--load-checkpoint", str(session), "--play", "--episodes", "1", cwd=tmp_path, watch=watched
    )
    policy = warm.ask("load", str(session), "policy", "varlog", cwd=tmp_path, watch=watched)

    assert [ended.code for ended in (trained, resumed, played, policy)] == [75, 0, 0, 0], (trained, resumed, played)
    pickled = [line for ended in (trained, resumed, played, policy) for line in ended.seen if line.startswith("pickle")]
    assert pickled == []


def test_H9_the_watcher_sees_a_pickle(warm: Cold, tmp_path: Path) -> None:
    (tmp_path / "pickling_params.py").write_text(
        "import pickle\nfrom collections import OrderedDict\npickle.loads(pickle.dumps(OrderedDict(a=1)))\n"
        "from digideep.params.cartpole_ppo import cpanel, gen_params\n"
    )
    argv = ["--params", str(tmp_path / "pickling_params.py"), "--describe"]

    answer = warm.ask("main", *argv, cwd=tmp_path, watch=[str(tmp_path / "nothing")])

    assert answer.code == 0
    assert any(line.startswith("pickle.find_class") for line in answer.seen)


def test_H9_no_file_of_a_session_is_a_pickle(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "s")
    beginnings = {path: path.read_bytes()[:4] for path in (tmp_path / "s").rglob("*") if path.is_file()}

    assert [str(path) for path, head in beginnings.items() if head[:2] in (b"\x80\x02", b"\x80\x04", b"PK")] == []
    assert {path.suffix for path in beginnings if "checkpoints" in path.parts} == {".json", ".safetensors"}
