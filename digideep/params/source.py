"""What `--params` names: a module with `cpanel` and `gen_params`, or a YAML file that names or holds parameters."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from digideep.errors import ConfigError, DigideepError, UsageError, one_line
from digideep.params.consent import check_consent, check_file_consent
from digideep.utility.imports import (
    BUILT_IN,
    fault_of_user,
    import_file,
    import_module,
    is_allowed,
    is_ours,
    place_of,
    top_level,
)
from digideep.utility.values import closest, plain, unknown
from digideep.utility.yaml12 import read_yaml

__all__ = ["Source", "generate", "presets", "quiet_stdout", "read_source"]

_YAML_KEYS = ("params", "cpanel", "repeal")
_PACKAGE = "digideep.params"


class Source(NamedTuple):
    """Where parameters come from.

    `module` is the name of the parameter module, None where a YAML file holds a whole `tree`; `path` is the file that
    was named, None for a dotted name. `file` is that of the module where it was named by path, or lies in the current
    directory. `file_cpanel` and `file_repeal` are those of a YAML file.
    """

    preset: str
    module: str | None
    path: Path | None
    cpanel: Mapping[str, Any]
    gen_params: Callable[[Mapping[str, Any]], Any] | None
    knobs: Mapping[str, str]
    file: Path | None = None
    tree: Mapping[str, Any] | None = None
    file_cpanel: Mapping[str, Any] = {}
    file_repeal: Mapping[str, Any] = {}
    search: tuple[Path, ...] = ()

    @property
    def is_file(self) -> bool:
        """Whether a YAML file was named, whose contents are nobody's consent."""
        return self.path is not None and self.path.suffix in (".yaml", ".yml")

    @property
    def where(self) -> str:
        """What was named, for messages."""
        return one_line(self.path or self.module)


def read_source(name: str, *, vouched: Sequence[str] = ()) -> Source:
    """Return what `--params` names; dotted names are looked up from the current directory too.

    `vouched` are the packages that the rest of the command line names.

    Raises:
        UsageError: there is no such module or file, or it is none of parameters; its code raises.
        TrustError: a YAML file names a module that neither the user nor the current directory vouches for.
    """
    if name.endswith((".yaml", ".yml")):
        return _from_yaml(Path(os.path.abspath(name)), vouched=vouched)
    if _is_path(name):
        path = Path(os.path.abspath(name))
        if path.suffix != ".py":
            raise UsageError(
                f"--params: expected a dotted name, a .py or a .yaml file, found {one_line(name, limit=80)!r}; "
                f"name one of them"
            )
        return _from_file(path, where="--params")
    return _from_module(_import_named(name, where="--params"))


def generate(source: Source, cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree that the module's `gen_params` makes of a control panel, as plain data.

    Raises:
        UsageError: it raises, or returns something else than a mapping; begins with file and line, or with the knob
            that its value was refused of.
    """
    if source.gen_params is None:
        return dict(source.tree or {})
    file = source.gen_params.__code__.co_filename if hasattr(source.gen_params, "__code__") else None
    try:
        with quiet_stdout():
            tree = source.gen_params(plain(cpanel, where="cpanel"))
    except DigideepError as error:
        is_built_in = source.module is not None and is_allowed(source.module, BUILT_IN)
        if is_built_in or str(error).partition(":")[0] in cpanel:  # it is a knob that has to be corrected
            raise
        raise type(error)(f"{place_of(error, file) or source.where}: {error}") from error
    except BaseException as error:  # a SystemExit too
        if is_ours(error):
            raise
        raise fault_of_user(error, where=source.where, file=file) from error
    if not isinstance(tree, Mapping):
        found = one_line(type(tree).__name__)
        raise ConfigError(f"{source.where}: gen_params: expected a mapping, found {found}; return the params tree")
    made: dict[str, Any] = plain(tree, where=f"{source.where}: gen_params")
    return made


def presets() -> dict[str, str]:
    """Return the dotted name of every preset with the first line of its docstring, nothing imported."""
    found: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            target.id
            for statement in tree.body
            for target in (statement.targets if isinstance(statement, ast.Assign) else _annotated(statement))
            if isinstance(target, ast.Name)
        }
        functions = {statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef)}
        if "cpanel" in names and "gen_params" in functions:
            found[f"{_PACKAGE}.{path.stem}"] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send what the user's code prints to stderr, since stdout has documented lines only."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _is_path(name: str) -> bool:
    return name.endswith(".py") or os.sep in name


def _annotated(statement: ast.stmt) -> list[ast.expr]:
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def _import_named(name: str, *, where: str) -> ModuleType:
    try:
        with quiet_stdout():
            return import_module(name, where=where, allowed=(top_level(name),), search=(Path.cwd(),))
    except UsageError as error:
        cause = error.__cause__
        is_missing = isinstance(cause, ModuleNotFoundError) and name.startswith(cause.name or ".")
        if cause is not None and not is_missing:
            raise
        found = one_line(name, limit=80)
        raise UsageError(f"{where}: expected a parameter module, found no {found!r}{_nearest_preset(name)}") from error


def _nearest_preset(name: str) -> str:
    known = {short: preset for preset in presets() for short in (preset, preset.rpartition(".")[2])}
    near = closest(name, known)
    return f"; did you mean {known[near]!r}?" if near else "; --list-params lists the presets"


def _from_file(path: Path, *, where: str) -> Source:
    with quiet_stdout():
        module = import_file(path, where=where)
    return _from_module(module)._replace(path=path, file=path, search=(path.parent,))


def _from_module(module: ModuleType) -> Source:
    """Return what a module found by name gives."""
    file = one_line(getattr(module, "__file__", None) or module.__name__)
    cpanel, gen_params = getattr(module, "cpanel", None), getattr(module, "gen_params", None)
    if not isinstance(cpanel, Mapping):
        found = "none" if cpanel is None else f"a {type(cpanel).__name__}"
        raise ConfigError(f"{file}:1: expected a dictionary called 'cpanel', found {found}; define it there")
    if not callable(gen_params):
        raise ConfigError(f"{file}:1: expected a function 'gen_params(cpanel)', found none; define it there")
    knobs = getattr(module, "knobs", {})
    if not isinstance(knobs, Mapping) or not all(isinstance(x, str) for pair in knobs.items() for x in pair):
        raise ConfigError(f"{file}:1: expected 'knobs' to map names to paths, found something else; correct it there")
    return Source(
        preset=module.__name__.rpartition(".")[2],
        module=module.__name__,
        path=None,
        cpanel=plain(cpanel, where=f"{file}: cpanel"),
        gen_params=gen_params,
        knobs=knobs,
        file=_file_here(module),
        search=(Path.cwd(),),
    )


def _file_here(module: ModuleType) -> Path | None:
    """Return the file of a module that lies in the current directory itself; None for every other."""
    path = Path(os.path.abspath(getattr(module, "__file__", None) or os.devnull))
    return path if path.parent == Path.cwd() else None


def _named_in_yaml(name: str, *, path: Path, vouched: Sequence[str]) -> Source:
    """Return the module that the YAML file at `path` names: by a dotted name, or by a path that begins beside it."""
    where = f"{one_line(path)}: params"
    if not _is_path(name):
        way_out = "write the path of its .py file, which begins beside this one"
        check_consent([name], where=where, vouched=vouched, way_out=way_out)
        return _from_module(_import_named(name, where=where))
    file = Path(os.path.normpath(path.parent / name))
    if file.suffix != ".py" or "\0" in name:
        raise UsageError(
            f"{where}: expected a dotted name or a .py file, found {one_line(name, limit=80)!r}; name one of them"
        )
    check_file_consent(file, where=where)
    return _from_file(file, where=where)


def _from_yaml(path: Path, *, vouched: Sequence[str]) -> Source:
    where, content = one_line(path), read_yaml(path)
    if not isinstance(content, Mapping):
        raise ConfigError(f"{where}: expected the keys params, cpanel and repeal, found no mapping; add 'params'")
    for key in content:
        if key not in _YAML_KEYS:
            raise ConfigError(f"{where}: {unknown(key, _YAML_KEYS)}")
    params, cpanel, repeal = (content.get(key) for key in _YAML_KEYS)
    for key, value in (("cpanel", cpanel), ("repeal", repeal)):
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {key}: expected a mapping, found {one_line(value, limit=60)!r}; write one")
    if isinstance(params, Mapping):
        if cpanel:
            raise ConfigError(f"{where}: expected no cpanel beside a whole tree, found one; change the tree instead")
        source = Source(path.stem, None, path, {}, None, {}, tree=params, search=(Path.cwd(),))
    elif isinstance(params, str):
        source = _named_in_yaml(params, path=path, vouched=vouched)._replace(path=path)
    else:
        found = "none" if params is None else repr(one_line(params, limit=60))
        raise ConfigError(f"{where}: params: expected the name of a module or a whole tree, found {found}; add it")
    return source._replace(file_cpanel=dict(cpanel or {}), file_repeal=dict(repeal or {}))
