"""Nodes of the params tree: plain mappings that name a configuration class, and how they become objects.

`node` writes one down, `configure` reads it back as a checked configuration, `build` makes the object that the
configuration class names. This is the one place where a string becomes a class.
"""

from __future__ import annotations

import dataclasses
import re
import typing
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from digideep.errors import ConfigError, one_line
from digideep.utility.imports import BUILT_IN, resolve
from digideep.utility.values import check_range, check_value, nearest, plain, type_name, unknown

__all__ = [
    "FLOAT32_LIMIT",
    "TYPE",
    "Config",
    "Field",
    "build",
    "check_value",
    "complete",
    "configuration_class",
    "configure",
    "field_types",
    "fields_of",
    "is_node",
    "nearest",
    "node",
    "nodes",
    "setting",
    "type_name",
]

TYPE = "type"
FLOAT32_LIMIT = 1e30
"""How large a setting may be that becomes a float32, whose greatest is 3.4e38: room for doubling it and the like."""

T = TypeVar("T", bound="Config")

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_KWARGS = "kwargs"  # fields that end so hold a user's own mapping, whatever keys it has


@dataclasses.dataclass(frozen=True)
class Config:
    """Base of all configuration classes: frozen, torch-free, ranges checked when made.

    `builds` names the class that takes such a configuration as first argument, as `module:Class`.
    """

    builds: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check every field against the range its `setting` declares."""
        for field in dataclasses.fields(self):
            check_range(getattr(self, field.name), field.metadata, where=f"{type(self).__name__}/{field.name}")


class Field(NamedTuple):
    """What a configuration class says about one of its fields: annotation, meaning, unit and range."""

    annotation: Any
    doc: str
    unit: str
    limits: Mapping[str, Any]

    def check(self, value: Any, *, where: str) -> Any:
        """Return `value` as the type of the field, plain.

        Raises:
            ConfigError: the type is another, or a number is out of range.
        """
        checked = check_value(value, self.annotation, where=where)
        check_range(checked, self.limits, where=where)
        return plain(checked, where=where)


def setting(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
) -> Any:
    """Return a dataclass field with its meaning, unit and range (`low <= x <= high`, `x > above`)."""
    metadata = {"doc": doc, "unit": unit, "low": low, "high": high, "above": above}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def node(config: type[Config], **fields: Any) -> dict[str, Any]:
    """Return the node of `config` with `fields`: all fields of the class, checked, as plain data.

    Raises:
        ConfigError: a field is unknown, has another type, or is out of range.
    """
    made = _make(config, fields, where=config.__qualname__)
    return _as_node(f"{config.__module__}:{config.__qualname__}", made, where=config.__qualname__)


def is_node(value: Any) -> bool:
    """Whether `value` is a mapping whose key `type` has the form `module:Class`."""
    return isinstance(value, Mapping) and isinstance(value.get(TYPE), str) and bool(_REFERENCE.fullmatch(value[TYPE]))


def nodes(tree: Mapping[str, Any], *, where: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (path, node) of every node in `tree`, each before the nodes inside it, those in lists too.

    Mappings that belong to the user (`env_kwargs` and others that end in `kwargs`) are not looked into.
    """
    if is_node(tree):
        yield where, tree
    for key, value in tree.items():
        if not str(key).endswith(_KWARGS):
            yield from _nodes_in(value, where=f"{where}/{key}")


def _nodes_in(value: Any, *, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield from nodes(value, where=where)
    elif isinstance(value, list | tuple):
        for index, element in enumerate(value):
            yield from _nodes_in(element, where=f"{where}/{index}")


def configuration_class(
    tree: Any, *, where: str, allowed: Iterable[str] = BUILT_IN, expected: type[T] | None = None
) -> type[T]:
    """Return the configuration class that a node names.

    Raises:
        ConfigError: the node names none, or one that is no `expected`.
        TrustError: the class lies outside the `allowed` packages.
    """
    if not isinstance(tree, Mapping) or TYPE not in tree:
        found = one_line(tree, limit=80)
        raise ConfigError(f"{where}: expected a node with the key 'type', found {found}; add 'type': 'module:Class'")
    cls = resolve(tree[TYPE], where=f"{where}/type", allowed=allowed)
    base = expected or Config
    if not (isinstance(cls, type) and issubclass(cls, base)):
        found = one_line(tree[TYPE], limit=80)
        raise ConfigError(f"{where}/type: expected a {base.__name__}, found {found}; name a subclass of it")
    return typing.cast("type[T]", cls)


def configure(
    tree: Mapping[str, Any], *, where: str, allowed: Iterable[str] = BUILT_IN, expected: type[T] | None = None
) -> T:
    """Return the configuration that a node describes.

    Raises:
        ConfigError: the node names no configuration class, or one of its fields is wrong; the message begins with the
            path of the field.
        TrustError: the class lies outside the `allowed` packages.
    """
    cls = configuration_class(tree, where=where, allowed=allowed, expected=expected)
    fields = {key: value for key, value in tree.items() if key != TYPE}
    return _make(cls, fields, where=where)


def complete(tree: Mapping[str, Any], *, where: str, allowed: Iterable[str] = BUILT_IN) -> dict[str, Any]:
    """Return `tree` with every node in it checked, and the fields that it leaves out at their defaults.

    Raises:
        ConfigError: a node is wrong.
        TrustError: a class lies outside the `allowed` packages.
    """
    result = dict(tree)
    if is_node(tree) or TYPE in tree:
        result = _as_node(tree[TYPE], configure(tree, where=where, allowed=allowed), where=where)
    for key, value in result.items():
        if isinstance(value, Mapping) and not key.endswith(_KWARGS):
            result[key] = complete(value, where=f"{where}/{key}", allowed=allowed)
        elif isinstance(value, list | tuple) and any(is_node(element) for element in value):
            result[key] = [
                complete(element, where=f"{where}/{key}/{index}", allowed=allowed) if is_node(element) else element
                for index, element in enumerate(value)
            ]
    return result


def build(
    tree: Mapping[str, Any],
    *,
    where: str,
    allowed: Iterable[str] = BUILT_IN,
    builds_nodes: bool = False,
    **runtime: Any,
) -> Any:
    """Return the object of the class that the node's configuration names, made as `cls(config, **runtime)`.

    With `builds_nodes` the object makes further objects from nodes, and gets `allowed` too.
    """
    config: Config = configure(tree, where=where, allowed=allowed)
    if not config.builds:
        found = one_line(tree[TYPE], limit=80)
        raise ConfigError(f"{where}/type: expected a class that says what it builds, found {found}; set its 'builds'")
    cls = resolve(config.builds, where=f"{where}/type", allowed=allowed)
    return cls(config, **runtime, allowed=tuple(allowed)) if builds_nodes else cls(config, **runtime)


_FIELD_TYPES: weakref.WeakKeyDictionary[type, Mapping[str, Any]] = weakref.WeakKeyDictionary()


def field_types(config: type[Config]) -> Mapping[str, Any]:
    """Return the resolved annotation of each field; they are resolved once for each class."""
    found = _FIELD_TYPES.get(config)
    if found is None:
        hints = typing.get_type_hints(config)
        found = MappingProxyType({field.name: hints[field.name] for field in dataclasses.fields(config)})
        _FIELD_TYPES[config] = found
    return found


def fields_of(config: type[Config]) -> dict[str, Field]:
    """Return what a configuration class says about each of its fields."""
    hints = field_types(config)
    return {
        field.name: Field(
            hints[field.name], field.metadata.get("doc", ""), field.metadata.get("unit", ""), field.metadata
        )
        for field in dataclasses.fields(config)
    }


def _as_node(reference: str, made: Config, *, where: str) -> dict[str, Any]:
    fields = dataclasses.fields(made)
    return {TYPE: reference, **{f.name: plain(getattr(made, f.name), where=f"{where}/{f.name}") for f in fields}}


def _make(cls: type[T], fields: Mapping[str, Any], *, where: str) -> T:
    hints = field_types(cls)
    for key in fields:
        if key not in hints:
            raise ConfigError(f"{where}: {unknown(key, hints)}")
    checked = {key: check_value(value, hints[key], where=f"{where}/{key}") for key, value in fields.items()}
    missing = [f.name for f in dataclasses.fields(cls) if _required(f) and f.name not in checked]
    if missing:
        raise ConfigError(f"{where}: expected the key {missing[0]!r}, which has no default, found none; add it")
    try:
        return cls(**checked)
    except ConfigError as error:
        raise ConfigError(f"{where}{_after_class_name(cls, error)}") from None


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _after_class_name(cls: type[Config], error: ConfigError) -> str:
    text = str(error)
    names = (base.__name__ for base in cls.__mro__ if text.startswith(base.__name__ + "/"))
    name = next(names, None)
    return text[len(name) :] if name else f": {text}"
