"""Who may import whom: arrows go down only, siblings do not meet, and some words appear nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "digideep"

RANKS = {
    "digideep": 0,  # the version
    "digideep.types": 0,
    "digideep.spec": 0,
    "digideep.errors": 0,
    "digideep.utility": 1,
    "digideep.memory": 2,
    "digideep.model": 2,
    "digideep.agent": 3,
    "digideep.environment": 3,
    "digideep.pipeline": 4,
    "digideep.scale": 4,
    "digideep.params": 5,
    "digideep.launch": 6,
    "digideep.autoresume": 7,
    "digideep.check_resume": 7,
    "digideep.main": 8,
    "digideep.sessions": 8,
    "digideep.testing": 8,
    "digideep.post": 8,
}
LAZY_EXCEPTIONS = {("digideep", "digideep.main")}  # digideep.run
IMPORTS_BY_NAME = {"digideep.utility.imports"}

# torch is for those who learn. The first may not even import it inside a function, but for the two that set it up.
TORCH_NEVER = ("types", "spec", "errors", "utility", "memory", "environment", "params")
TORCH_IN_FUNCTIONS = {
    "digideep", "digideep.launch", "digideep.autoresume", "digideep.check_resume", "digideep.main", "digideep.sessions",
    "digideep.testing", "digideep.pipeline.cli", "digideep.utility.seeding", "digideep.utility.device",
}  # fmt: skip

FORBIDDEN_MODULES = {
    "pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "shelve", "marshal", "zipimport",
    "ctypes", "cffi", "code", "codeop",
}  # fmt: skip
C_LIBRARIES = {"digideep.utility.device", "digideep.utility.products"}  # mallopt(3), OpenBLAS: reached in no other way
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "builtins.eval", "builtins.exec", "builtins.compile", "os.system", "os.popen",
    "subprocess.getoutput", "subprocess.getstatusoutput", "torch.load", "torch.jit.load", "torch.hub.load",
    "pandas.read_pickle", "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load",
    "yaml.full_load_all",
}  # fmt: skip
CALLS_THAT_IMPORT = {
    "__import__", "importlib.import_module", "importlib.__import__", "importlib.util.spec_from_file_location",
    "importlib.machinery.SourceFileLoader", "pkgutil.resolve_name", "runpy.run_module", "runpy.run_path",
}  # fmt: skip


class Import(NamedTuple):
    """One imported name: the module it comes from, and whether a function has to run first."""

    line: int
    target: str
    is_lazy: bool


def name_of(path: Path, *, base: Path = ROOT) -> str:
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
BESIDE = sorted(
    path for top in ("sessions_template", "scripts", "examples", "benchmarks") for path in (ROOT / top).rglob("*.py")
)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_of(node: ast.AST, *, package: str, is_lazy: bool = False) -> Iterator[Import]:
    """Yield what `node` imports when it runs; `package` is what relative imports start from."""
    if isinstance(node, ast.Import):
        yield from (Import(node.lineno, alias.name, is_lazy) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = package.rsplit(".", node.level - 1)[0] if node.level else ""
        source = ".".join(filter(None, (start, node.module)))
        yield from (Import(node.lineno, f"{source}.{alias.name}", is_lazy) for alias in node.names)
    elif is_type_checking(node):
        assert isinstance(node, ast.If)
        for statement in node.orelse:
            yield from imports_of(statement, package=package, is_lazy=is_lazy)
    else:
        inside = is_lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from imports_of(child, package=package, is_lazy=inside)


def group_of(module: str) -> str:
    """Return the layer of a module of the package: the longest name in RANKS that it lies below."""
    matches = [name for name in RANKS if module == name or module.startswith(name + ".")]
    return max(matches, key=len)


def layer_faults(module: str, found: Import) -> Iterator[str]:
    source, target = group_of(module), group_of(found.target)
    # `digideep` is below everything; what lies in it and in no layer is a name of its __init__, or a new layer.
    if source == target or RANKS[target] < RANKS[source] or RANKS[source] == RANKS[target] == 0:
        return
    if not (found.is_lazy and (module, target) in LAZY_EXCEPTIONS):
        yield f"{module}:{found.line} imports {found.target}: {target} is not below {source}"


def torch_faults(module: str, found: Import) -> Iterator[str]:
    if found.target.split(".")[0] not in ("torch", "torchvision"):
        return
    if module in TORCH_IN_FUNCTIONS:
        if not found.is_lazy:
            yield f"{module}:{found.line} imports torch outside of a function"
    elif module.endswith("config") or any(group_of(module) == f"digideep.{name}" for name in TORCH_NEVER):
        yield f"{module}:{found.line} imports torch"


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for names and attributes; what is neither, as the result of a call, is a question mark."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def word_faults(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield what runs data as code, and imports by name outside of the one place for it."""
    aliases = {alias.asname or alias.name: found for found, alias in _aliases(tree)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        first, _, rest = dotted(node.func).partition(".")
        called = ".".join(filter(None, (aliases.get(first, first), rest)))
        if called in FORBIDDEN_CALLS or (called in CALLS_THAT_IMPORT and module not in IMPORTS_BY_NAME):
            yield f"{module}:{node.lineno} calls {called}"
        for keyword in node.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg in ("shell", "allow_pickle") and is_true:
                yield f"{module}:{node.lineno} passes {keyword.arg}=True"
    for found, _alias in _aliases(tree):
        if found.split(".")[0] in FORBIDDEN_MODULES and (found != "ctypes" or module not in C_LIBRARIES):
            yield f"{module} imports {found}"


def _aliases(tree: ast.Module) -> Iterator[tuple[str, ast.alias]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, alias) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((f"{node.module}.{alias.name}", alias) for alias in node.names)


def faults(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Return one line for each rule that a module of the package breaks."""
    tree = ast.parse(source)
    package = module if is_package else module.rpartition(".")[0]
    found = list(imports_of(tree, package=package))
    own = [item for item in found if item.target.split(".")[0] == "digideep"]
    lines = [line for item in own for line in layer_faults(module, item)]
    lines += [line for item in found for line in torch_faults(module, item)]
    return lines + list(word_faults(module, tree))


def test_modules_keep_the_rules() -> None:
    broken = [
        fault
        for module, path in PATHS.items()
        for fault in faults(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")
    ]

    assert broken == []


def test_files_beside_the_package_run_no_data_as_code() -> None:
    broken = [
        fault
        for path in BESIDE
        for fault in word_faults(str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert [fault for fault in broken if "import_module" not in fault] == []


def test_every_module_lies_in_a_layer() -> None:
    strangers = [name for name in PATHS if group_of(name) == "digideep" and name != "digideep"]

    assert strangers == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("digideep.utility.tree", "from digideep.agent.base import Agent"),
        ("digideep.utility.tree", "def f():\n    import digideep.pipeline.fsio"),
        ("digideep.agent.base", "from digideep.environment import explorer"),
        ("digideep.agent.base", "from digideep import environment"),
        ("digideep.environment.make", "from digideep.agent.base import Agent"),
        ("digideep.memory.base", "from digideep.model.mlp import MLP"),
        ("digideep.memory.base", "from ..model import mlp"),
        ("digideep.pipeline.runner", "from digideep.params import cartpole_ppo"),
        ("digideep.pipeline.session", "from digideep.post import load"),
        ("digideep.pipeline.engine", "from digideep.scale import ray_engine"),
        ("digideep.sessions", "import digideep.main"),
        ("digideep.launch", "import digideep.main"),
        ("digideep", "from digideep.main import run"),
        ("digideep.errors", "from digideep.utility import tree"),
        ("digideep.memory.ring", "import torch"),
        ("digideep.environment.make", "def f():\n    from torch import nn"),
        ("digideep.agent.sac.config", "import torch.nn as nn"),
        ("digideep.utility.seeding", "import torch"),
        ("digideep.main", "import torch"),
        ("digideep.pipeline.checkpoint", "import pickle"),
        ("digideep.pipeline.checkpoint", "from torch import load as read\nread('x')"),
        ("digideep.pipeline.checkpoint", "import torch as t\nt.load('x')"),
        ("digideep.pipeline.checkpoint", "import yaml\nyaml.load(text, Loader=Mine)"),
        ("digideep.pipeline.checkpoint", "import numpy as np\nnp.load('x', allow_pickle=True)"),
        ("digideep.pipeline.cli", "eval('1')"),
        ("digideep.pipeline.cli", "import subprocess\nsubprocess.run('ls', shell=True)"),
        ("digideep.pipeline.cli", "import importlib\nimportlib.import_module(name)"),
        ("digideep.pipeline.cli", "from importlib import import_module\nimport_module(name)"),
    ],
)
def test_broken_rule_is_found(module: str, source: str) -> None:
    assert len(faults(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("digideep.agent.ppo.agent", "import torch\nfrom digideep.model import mlp\nfrom digideep.types import Chunk"),
        (
            "digideep.types",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from digideep.utility import profiling",
        ),
        ("digideep", "def run():\n    from digideep.main import run as run_session"),
        ("digideep.utility.seeding", "def f():\n    import torch"),
        ("digideep.utility.imports", "import importlib\nimportlib.import_module(name)"),
        ("digideep.params.cartpole_ppo", "from digideep.agent.ppo.config import PPOConfig"),
        ("digideep.agent.policy", "policy.eval()\nclone(policy).eval()\nyaml_text.load()\nos.execv(path, argv)"),
        ("digideep.pipeline.runner", "from .engine import SerialEngine"),
    ],
)
def test_kept_rule_is_not_complained_about(module: str, source: str) -> None:
    assert faults(module, source) == []
