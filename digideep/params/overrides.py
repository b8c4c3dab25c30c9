"""Changes to a control panel and to a params tree: read as the type that the key has, checked, applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from digideep.agent.config import AgentConfig
from digideep.environment.config import EnvConfig, ExplorerConfig, StatisticsConfig
from digideep.environment.wrappers.config import WrapperConfig
from digideep.errors import ConfigError, TrustError, UsageError, one_line
from digideep.memory.config import MemoryConfig
from digideep.pipeline.config import EngineConfig, RunnerConfig
from digideep.pipeline.options import SessionOptions
from digideep.utility.imports import BUILT_IN, is_allowed, split_reference
from digideep.utility.node import TYPE, Config, Field, complete, configuration_class, fields_of, is_node
from digideep.utility.strictjson import loads_json
from digideep.utility.tree import MISSING, get, has, join, replace, split
from digideep.utility.values import annotation_of, nearest, plain, shown, unknown
from digideep.utility.yaml12 import read_scalar

__all__ = [
    "Repealed",
    "apply_repeal",
    "field_at",
    "merge_strict",
    "origins_of",
    "read_value",
    "repeal_changes",
    "validate",
]

_PARTS = ("env", "runner", "engine", "explorer", "memory", "agents")
_MODES = ("train", "test", "eval")
_NOT_NETWORKS = (AgentConfig, EngineConfig, EnvConfig, ExplorerConfig, MemoryConfig, RunnerConfig, StatisticsConfig)
_OPEN = ("chosen",)  # mappings that take new keys, beside those whose name ends in `kwargs`


class Repealed(NamedTuple):
    """A changed tree, and one entry {path, old, new, epoch, time} for each change."""

    tree: dict[str, Any]
    entries: list[dict[str, Any]]


def read_value(text: str, annotation: Any, *, where: str) -> Any:
    """Return the text behind `--set KEY=` as a value of the annotated type, unchecked where nothing fits.

    `true`, `null` and numbers need no quotes, text needs none either, lists and mappings are JSON; text in double
    quotes is text whatever it looks like.

    Raises:
        UsageError: the text begins like JSON, is none, and text is not what the key takes.
    """
    field = Field(annotation, "", "", {})
    problem: UsageError | None = None
    first: Any = text
    try:
        first = loads_json(text, where=where) if text[:1] in ("[", "{", '"') else read_scalar(text)
    except UsageError as error:
        problem = error
    except ValueError:  # more digits than an integer may have
        problem = UsageError(f"{where}: expected a number of reasonable length, found a longer one; shorten it")
    for candidate in (first, text):
        try:
            return field.check(candidate, where=where)
        except ConfigError:
            continue
    if problem is not None:
        raise problem
    return first


def field_at(tree: Mapping[str, Any], path: str, *, allowed: Iterable[str] = BUILT_IN) -> Field | None:
    """Return what the configuration class says about the field at `path`; None where none declares it.

    The type of a whole node, and of `type` itself, is left to the check of the whole tree.
    """
    *parents, last = split(path, where=path)
    parent: Any = tree
    for key in parents:
        parent = parent.get(key) if isinstance(parent, Mapping) else None
    value = parent.get(last) if isinstance(parent, Mapping) else None
    if not is_node(parent) or last == TYPE or is_node(value):
        return None
    cls: type[Config] = configuration_class(parent, where=path.rpartition("/")[0], allowed=allowed)
    return fields_of(cls).get(last)


def merge_strict(
    cpanel: Mapping[str, Any], changes: Mapping[str, Any], *, fields: Mapping[str, Field], where: str
) -> dict[str, Any]:
    """Return `cpanel` with `changes`.

    Args:
        cpanel: every knob with its value.
        changes: some knobs with other values.
        fields: the configuration fields that knobs configure; a knob without one has the type of its value.
        where: what brings the changes, for the message: an option or a file name.

    Raises:
        ConfigError: a knob is unknown, has another type, or is out of range.
    """
    merged = dict(cpanel)
    for key, value in changes.items():
        if key not in cpanel:
            raise ConfigError(f"{where}: {unknown(key, cpanel)}")
        field = fields.get(key) or Field(annotation_of(cpanel[key]), "", "", {})
        merged[key] = field.check(value, where=f"{where}: {key}")
    return merged


def origins_of(options: SessionOptions, *, file: Iterable[str] = (), file_name: str = "") -> dict[str, str]:
    """Return what brought each change by path: an option, or the file that holds the paths `file`."""
    origins = {path: file_name for path in file}
    origins |= dict.fromkeys(options.repeal, "--repeal")
    return origins | {path: "--set" for path, _ in options.assignments if path.startswith("/")}


def repeal_changes(
    options: SessionOptions,
    tree: Mapping[str, Any],
    *,
    before: Mapping[str, Any] | None = None,
    origins: Mapping[str, str] | None = None,
    allowed: Iterable[str] = BUILT_IN,
) -> dict[str, Any]:
    """Return the changes by path that `--repeal` and `--set` ask for, texts read as the types they have in `tree`.

    `before` are changes that both may overrule, those of a file; `origins` is what `origins_of` says of all of them.

    Raises:
        UsageError: a path is unknown or stands twice.
    """
    texts: dict[str, str] = {}
    for path, text in options.assignments:
        if path.startswith("/"):
            if path in texts or path in options.repeal:
                raise UsageError(f"--set: {path}: expected every key once, found it twice; keep one of the two")
            texts[path] = text
    values = {**(before or {}), **options.repeal}
    changes: dict[str, Any] = {}
    told = {path: (origins or origins_of(options)).get(path, "--repeal") for path in {**values, **texts}}
    for path in sorted(told, key=lambda path: _depth(path, where=told[path])):
        where = told[path]
        _present(tree, path, where=where)
        if path in texts:
            changes[path] = read_value(texts[path], _annotation(tree, path, allowed=allowed), where=f"--set: {path}")
        else:
            changes[path] = values[path]
        if is_node(changes[path]) or path.endswith(f"/{TYPE}"):
            tree = _changed(tree, path, changes[path], where=where, allowed=allowed)
    return changes


def _annotation(tree: Mapping[str, Any], path: str, *, allowed: Iterable[str]) -> Any:
    field = field_at(tree, path, allowed=allowed)
    if field is not None:
        return field.annotation
    old = get(tree, path, where="--set") if has(tree, path) else None
    return str if path.endswith(f"/{TYPE}") else annotation_of(old)


def apply_repeal(
    tree: Mapping[str, Any],
    changes: Mapping[str, Any],
    *,
    epoch: int,
    time: str,
    origins: Mapping[str, str] | None = None,
    allowed: Iterable[str] = BUILT_IN,
) -> Repealed:
    """Return `tree` with the values of `changes` at their paths, leaves and whole nodes, validated as a whole.

    Whole nodes and types are replaced before what lies in them.

    Args:
        tree: the whole params tree.
        changes: values by path.
        epoch: of the entries.
        time: of the entries.
        origins: what brought a change, by path, for messages; `--repeal` brought the others.
        allowed: packages that nodes may name.

    Raises:
        UsageError: a path is unknown; the message has the nearest one.
        ConfigError: a value has another type or is out of range, or the tree as a whole is not valid.
        TrustError: a node names a class outside the `allowed` packages.
    """
    result, entries = dict(tree), []
    told = {path: (origins or {}).get(path, "--repeal") for path in changes}
    for path in sorted(changes, key=lambda path: _depth(path, where=told[path])):
        where = told[path]
        old = _present(result, path, where=where)
        result = _changed(result, path, changes[path], where=where, allowed=allowed)
        new = get(result, path, where=where)
        entries.append({"path": path, "old": old, "new": new, "epoch": epoch, "time": time})
    return Repealed(validate(result, allowed=allowed), entries)


def validate(tree: Mapping[str, Any], *, allowed: Iterable[str] = BUILT_IN) -> dict[str, Any]:
    """Return the whole params tree with every node checked, and the fields that it leaves out at their defaults.

    Raises:
        ConfigError: a part is missing or unknown, or a node in it is wrong.
        TrustError: a node names a class outside the `allowed` packages.
    """
    for part in tree:
        if part not in _PARTS:
            raise ConfigError(f"params: {unknown(part, _PARTS)}")
    for path, expected in _positions(tree).items():
        configuration_class(get(tree, path, where="params"), where=path, allowed=allowed, expected=expected)
    _check_wrappers(tree["env"], allowed=allowed)
    _check_on_epoch(tree["runner"].get("on_epoch"), allowed=allowed)
    for name, agent in tree["agents"].items():
        _check_network(agent.get("model"), where=join(join("/agents", name), "model"), allowed=allowed)
        memory = agent.get("memory")
        if isinstance(memory, str) and memory not in tree["memory"]:
            where, found = join("/agents", name), one_line(memory, limit=80)
            known = nearest(memory, tree["memory"])
            raise ConfigError(f"{where}/memory: expected the name of a memory, found {found!r}{known}")
    return complete(tree, where="", allowed=allowed)


def _check_network(model: Any, *, where: str, allowed: Iterable[str]) -> None:
    """Check that an agent's model, where it has one, is no other part; a user's own may be any `Config`."""
    if not isinstance(model, Mapping) or not model:
        return
    cls: type[Config] = configuration_class(model, where=where, allowed=allowed)
    if issubclass(cls, _NOT_NETWORKS):
        found = one_line(model[TYPE], limit=80)
        raise ConfigError(f"{where}/type: expected the configuration of a network, found {found}; name another class")


def _check_wrappers(env: Mapping[str, Any], *, allowed: Iterable[str]) -> None:
    """Check that what stands in the lists of wrappers are wrappers."""
    for name in ("wrappers", "play_wrappers"):
        wrappers = env.get(name)
        for index, node in enumerate(wrappers if isinstance(wrappers, list | tuple) else ()):
            configuration_class(node, where=f"/env/{name}/{index}", allowed=allowed, expected=WrapperConfig)


def _check_on_epoch(reference: Any, *, allowed: Iterable[str]) -> None:
    """Check form and trust of the function that is called after each epoch; the runner imports it."""
    if reference is None:
        return
    module, _ = split_reference(reference, where="/runner/on_epoch")
    if not is_allowed(module, allowed):
        raise TrustError(
            f"/runner/on_epoch: expected a module that is trusted, found {module!r}; name it on the command line"
        )


def _positions(tree: Mapping[str, Any]) -> dict[str, type[Config]]:
    """Return where nodes have to stand, and of which base class."""
    for part in _PARTS:
        if not isinstance(tree.get(part), Mapping):
            found = shown(tree.get(part)) if part in tree else "none"
            raise ConfigError(f"params: expected a mapping at '/{part}', found {found}; gen_params has to return it")
    for part in ("memory", "agents"):
        if not tree[part]:
            raise ConfigError(f"params: expected a name and a node in '/{part}', found nothing; add one")
    bases: dict[str, type[Config]] = {"memory": MemoryConfig, "agents": AgentConfig}
    return {
        "/env": EnvConfig,
        "/runner": RunnerConfig,
        "/engine": EngineConfig,
        **{f"/explorer/{mode}": ExplorerConfig for mode in _MODES},
        "/explorer/train/statistics": StatisticsConfig,
        **{join(f"/{part}", name): base for part, base in bases.items() for name in tree[part]},
    }


def _depth(path: str, *, where: str) -> float:
    keys = split(path, where=where)
    return len(keys) - 0.5 if keys[-1] == TYPE else len(keys)


def _present(tree: Mapping[str, Any], path: str, *, where: str) -> Any:
    """Return what stands at `path`; null for a new key of a mapping that takes any."""
    parent = path.rpartition("/")[0]
    name = parent.rpartition("/")[2]
    is_open = name.endswith("kwargs") or name in _OPEN
    if is_open and has(tree, parent) and isinstance(get(tree, parent, where=where), Mapping) and not has(tree, path):
        return None
    return get(tree, path, where=where)


def _changed(tree: Mapping[str, Any], path: str, value: Any, *, where: str, allowed: Iterable[str]) -> dict[str, Any]:
    """Return `tree` with one change; a new class brings its fields, so that changes after it may name them."""
    _present(tree, path, where=where)
    new = _checked(tree, path, value, where=where, allowed=allowed)
    result = replace(tree, path, new, where=where)
    if not is_node(new) and not path.endswith(f"/{TYPE}"):
        return result
    node_path = path if is_node(new) else path.removesuffix(f"/{TYPE}")
    node = complete(get(result, node_path, where=where), where=node_path, allowed=allowed)
    return replace(result, node_path, node, where=where)


def _checked(tree: Mapping[str, Any], path: str, value: Any, *, where: str, allowed: Iterable[str]) -> Any:
    field = field_at(tree, path, allowed=allowed)
    if field is not None:
        return field.check(value, where=f"{where}: {path}")
    old = get(tree, path, where=where) if has(tree, path) else MISSING
    if is_node(old) and not is_node(value):
        raise ConfigError(
            f"{where}: {path}: expected a node with the key 'type', found {shown(value)}; write all of it"
        )
    if isinstance(old, Mapping) and not is_node(old) and len(split(path, where=where)) == 1:
        raise ConfigError(f"{where}: {path}: expected a leaf or a node, found a group of nodes; change one by one")
    return plain(value, where=f"{where}: {path}")
