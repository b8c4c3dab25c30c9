"""From the command line's options to a checked params tree: preset < file < --cpanel and --repeal < --set."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from digideep.environment.config import EnvConfig, ExplorerConfig, StatisticsConfig
from digideep.errors import ConfigError, UsageError, one_line
from digideep.params.code import check_hook, find_code
from digideep.params.common import KNOB_PATHS, knob_paths
from digideep.params.consent import allowed_by, built_modules, check_consent, named_on_command_line
from digideep.params.overrides import (
    apply_repeal,
    field_at,
    merge_strict,
    origins_of,
    read_value,
    repeal_changes,
    validate,
)
from digideep.params.source import Source, generate, read_source
from digideep.pipeline.config import RunnerConfig, SerialEngineConfig
from digideep.pipeline.needed import needed_modules
from digideep.pipeline.options import SessionOptions
from digideep.utility.imports import searching, top_level
from digideep.utility.node import Config, Field, fields_of
from digideep.utility.tree import has, split
from digideep.utility.values import annotation_of, unknown

__all__ = ["LoadedParams", "load_params"]

logger = logging.getLogger(__name__)

# What the shared knobs configure, for a module whose defaults alone make no valid tree.
_STANDARD: Mapping[str, type[Config]] = {
    "/env": EnvConfig,
    "/runner": RunnerConfig,
    "/engine": SerialEngineConfig,
    "/explorer/train": ExplorerConfig,
    "/explorer/test": ExplorerConfig,
    "/explorer/train/statistics": StatisticsConfig,
}
_GOALS = ("number_epochs", "total_frames")
# 0 is a value of these fields for explorers of another mode only.
_FROM_ONE = ("/explorer/train/n_steps", "/explorer/test/n_episodes")


class LoadedParams(NamedTuple):
    """Parameters of a new session.

    `base` is what `params.yaml` holds, `params` the same with `entries` applied, those of `repeal.json`. `allowed` are
    the packages that the tree may name, `modules` the ones among them to copy beside digideep, `files` those of them
    that are found by path only, and `search` the directories in which they lie.
    """

    preset: str
    module: str | None
    path: Path | None
    cpanel: dict[str, Any]
    base: dict[str, Any]
    params: dict[str, Any]
    entries: list[dict[str, Any]]
    allowed: tuple[str, ...]
    modules: tuple[str, ...]
    files: tuple[Path, ...]
    search: tuple[Path, ...]
    knobs: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """12 hexadecimal digits over the preset, the merged control panel and the changes by path."""
        changes = {entry["path"]: entry["new"] for entry in self.entries}
        tree = None if self.module else self.base
        import hashlib

        text = json.dumps([self.module or self.preset, self.cpanel, changes, tree], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def load_params(options: SessionOptions, *, time: str = "") -> LoadedParams:
    """Return the parameters that the options of a new session ask for, merged and checked as a whole.

    Args:
        options: `params` names a module, a `.py` or a `.yaml` file; `cpanel`, `repeal`, `assignments` change it.
        time: of the entries in `repeal.json`.

    Raises:
        UsageError: `--params` names nothing usable, a key stands twice, its code raises, or a module of
            `--save-modules` or the function of `on_epoch` is missing.
        ConfigError: a key is unknown, has another type, or is out of range, or the tree as a whole is not valid.
        TrustError: a file names a module that nobody vouched for.
    """
    vouched = named_on_command_line(options)
    source = read_source(options.params or "", vouched=vouched)
    if source.module is not None:  # one that a YAML file names was looked at when it was read
        vouched = (*vouched, top_level(source.module))
    with searching(after=source.search, bytecode=False):
        cpanel = _merged_cpanel(source, options)
        raw = generate(source, cpanel)
        _check_names_in_tree(raw, source, options=options, vouched=vouched)
        allowed = allowed_by(raw)
        base = validate(raw, allowed=allowed)
        knobs = knob_paths(cpanel, base, own=source.knobs)
        allowed = (*allowed, *_names_in_changes(source, options, vouched=vouched))
        origins = origins_of(options, file=source.file_repeal, file_name=f"{source.where}: repeal")
        changes = repeal_changes(options, base, before=source.file_repeal, origins=origins, allowed=allowed)
        _check_no_knob_twice(options, changes, knobs=knobs)
        params, entries = apply_repeal(base, changes, epoch=0, time=time, origins=origins, allowed=allowed)
        allowed = allowed_by(params, extra=built_modules(params, allowed=allowed))
        code = find_code(params, source, allowed=allowed)
        check_hook(params, allowed=allowed)
        if options.save_modules:
            from digideep.pipeline.snapshot import find_sources

            find_sources(options.save_modules)  # a missing one is told before a session is made
    return LoadedParams(
        preset=source.preset,
        module=source.module,
        path=source.path,
        cpanel=cpanel,
        base=base,
        params=params,
        entries=entries,
        allowed=allowed,
        modules=code.modules,
        files=code.files,
        search=code.search,
        knobs=knobs,
    )


def _merged_cpanel(source: Source, options: SessionOptions) -> dict[str, Any]:
    """Return the control panel after every change, checked."""
    texts: dict[str, str] = {}
    for key, text in options.assignments:
        if key.startswith("/"):
            continue
        if key in texts or key in options.cpanel:
            shown = one_line(key, limit=80)
            raise UsageError(f"--set: {shown}: expected every key once, found it twice; keep one of the two")
        texts[key] = text
    if source.module is None and (texts or options.cpanel):
        key = one_line(next(iter(texts or options.cpanel)), limit=80)
        raise UsageError(f"{key}: expected a path, since {source.where} has no control panel; use --set /path=VALUE")
    fields = _fields(source)
    merged = merge_strict(source.cpanel, source.file_cpanel, fields=fields, where=source.where)
    merged = merge_strict(merged, options.cpanel, fields=fields, where="cpanel" if options.from_python else "--cpanel")
    for key in texts:
        if key not in merged:
            raise ConfigError(f"--set: {unknown(key, merged)}")
    assigned = {
        key: read_value(text, _annotation(key, source, fields), where=f"--set: {one_line(key, limit=80)}")
        for key, text in texts.items()
    }
    merged = merge_strict(merged, assigned, fields=fields, where="--set")
    _check_goal(merged)
    return merged


def _annotation(key: str, source: Source, fields: Mapping[str, Field]) -> Any:
    return fields[key].annotation if key in fields else annotation_of(source.cpanel[key])


def _check_goal(cpanel: Mapping[str, Any]) -> None:
    epochs, frames = (cpanel.get(key) for key in _GOALS)
    if not (isinstance(epochs, int | float) and isinstance(frames, int | float)) or (epochs > 0) != (frames > 0):
        return
    raise ConfigError(
        f"{', '.join(_GOALS)}: expected exactly one of them above 0, found {epochs} and {frames}; "
        f"{'set the other one to 0' if epochs else 'set one of them'}"
    )


def _fields(source: Source) -> dict[str, Field]:
    """Return the configuration field of each knob that configures one."""
    if source.module is None:
        return {}
    try:
        tree = generate(source, source.cpanel)
    except UsageError as error:
        # Defaults may leave the goal to the command line; the merged control panel has to do better.
        logger.debug("%s: the defaults alone make no tree: %s", source.where, error)
        return _standard_fields(source.cpanel)
    for key, path in source.knobs.items():
        if not has(tree, path):
            raise ConfigError(f"{source.where}: knobs: {key}: expected a path in the tree, found {path!r}; correct it")
    allowed = allowed_by(tree)
    paths = knob_paths(source.cpanel, tree, own=source.knobs)
    found = {key: field_at(tree, path, allowed=allowed) for key, path in paths.items()}
    return {key: _narrowed(field, paths[key]) for key, field in found.items() if field is not None}


def _narrowed(field: Field, path: str) -> Field:
    return field._replace(limits={**field.limits, "low": 1}) if path in _FROM_ONE else field


def _standard_fields(cpanel: Mapping[str, Any]) -> dict[str, Field]:
    places = {key: KNOB_PATHS[key].rpartition("/") for key in cpanel if key in KNOB_PATHS}
    found = {
        key: fields_of(_STANDARD[parent])[name] for key, (parent, _, name) in places.items() if parent in _STANDARD
    }
    return {key: _narrowed(field, KNOB_PATHS[key]) for key, field in found.items()}


def _check_names_in_tree(
    tree: Mapping[str, Any], source: Source, *, options: SessionOptions, vouched: Iterable[str]
) -> None:
    """Check that what a file brought into the tree is vouched for; what the module's own code names is."""
    if not source.is_file and not options.cpanel_from_file:
        return
    own: tuple[str, ...] = ()
    if source.module is not None:
        try:
            own = needed_modules(generate(source, source.cpanel))
        except UsageError as error:
            logger.debug("%s: the defaults alone make no tree: %s", source.where, error)
    names = [name for name in needed_modules(tree) if name not in own]
    check_consent(names, vouched=vouched, where=source.where if source.is_file else "--cpanel")


def _names_in_changes(source: Source, options: SessionOptions, *, vouched: tuple[str, ...]) -> tuple[str, ...]:
    """Return the packages that changes by path name, after checking those that come from files."""
    from_file = _named(source.file_repeal, where=source.where)
    check_consent(from_file, vouched=vouched, where=source.where)
    from_option = _named(options.repeal, where="--repeal")
    if options.repeal_from_file:
        check_consent(from_option, vouched=vouched, where="--repeal")
    typed = _named({path: text for path, text in options.assignments if path.startswith("/")}, where="--set")
    return (*vouched, *(top_level(name) for name in (*from_file, *from_option, *typed)))


def _named(changes: Mapping[str, Any], *, where: str) -> tuple[str, ...]:
    names: list[str] = []
    for path, value in changes.items():
        nested: Any = value
        for key in reversed(split(path, where=where)):
            nested = {key: nested}
        names += needed_modules(nested)
    return tuple(names)


def _check_no_knob_twice(options: SessionOptions, changes: Mapping[str, Any], *, knobs: Mapping[str, str]) -> None:
    # A knob in --cpanel and its path in --repeal are two things: what a session was made with, and a later change.
    typed = {key for key, _ in options.assignments}
    for key in typed:
        path = knobs.get(key)
        if path in changes and (path in options.repeal or path in typed):
            raise UsageError(f"--set: expected every key once, found {key!r} and its path {path}; keep one of the two")
