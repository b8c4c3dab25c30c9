"""Names made of a control panel: of sessions, and of the paths that stand for knobs once a session exists."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, NoReturn

from digideep.errors import ConfigError, UsageError, one_line
from digideep.params.common import fed_paths, knob_paths
from digideep.params.loading import LoadedParams
from digideep.pipeline.arguments import TEMPLATE_KEY
from digideep.pipeline.options import SessionOptions
from digideep.pipeline.places import NAME_PATTERN, check_name
from digideep.utility.values import unknown

__all__ = ["autoresume_name", "cpanel_line", "expand_session_name", "refuse_cpanel"]


def expand_session_name(name: str, cpanel: Mapping[str, Any]) -> str:
    """Return a session name with the values of the knobs it names: `tug-lr{lr}-s{seed}` becomes `tug-lr0.001-s3`.

    Raises:
        UsageError: a knob is unknown or no single value, or the result is no session name.
    """

    def value_of(match: re.Match[str]) -> str:
        key = match[1]
        if key not in cpanel:
            raise UsageError(f"--session-name: {unknown(key, cpanel)}")
        value = cpanel[key]
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            raise UsageError(f"--session-name: {key}: expected text or a number, found {value!r}; use another knob")
        return str(value)

    return check_name(TEMPLATE_KEY.sub(value_of, name))


def autoresume_name(loaded: LoadedParams) -> str:
    """Return the session name that the same command always gives: preset and fingerprint."""
    preset = re.sub(r"[^A-Za-z0-9_.-]", "_", loaded.preset)[:60]
    return f"{preset if NAME_PATTERN.fullmatch(preset) else '_' + preset}-{loaded.fingerprint}"


def cpanel_line(key: str, value: Any, *, path: str) -> str:
    """Return the words to paste that change at `path` what the knob `key` configures: `--set /agents/agent/lr=0.001`.

    `value` is a value, or the text behind `--set key=`.
    """
    text = value if isinstance(value, str) else json.dumps(value)
    return f"--set {shlex.quote(f'{path}={text}')}"


def refuse_cpanel(options: SessionOptions, *, cpanel: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Check that nobody changes knobs of a session that exists already; its parameters are changed by path.

    Args:
        options: of this start.
        cpanel: the control panel that the session was made with.
        params: its tree.

    Raises:
        UsageError: a knob was given; contains the line to paste instead.
    """
    knobs = {**options.cpanel, **{key: text for key, text in options.assignments if not key.startswith("/")}}
    if not knobs:
        return
    paths = knob_paths(cpanel, params)
    for key in knobs:
        if key not in cpanel:
            raise ConfigError(f"cpanel: {unknown(key, cpanel)}")
        if key not in paths:
            _refuse(key, "start a new session with it")
    places = ((key, value, path) for key, value in knobs.items() for path in fed_paths(key, paths[key], params))
    lines = [cpanel_line(key, value, path=path) for key, value, path in places]
    pasted = " ".join([*lines, *_without_other_goals(knobs, paths=paths, params=params)])
    _refuse(next(iter(knobs)), f"paste {pasted}")


def _without_other_goals(knobs: Mapping[str, Any], *, paths: Mapping[str, str], params: Mapping[str, Any]) -> list[str]:
    """Return the words that take back the goal of the session where the knobs set the other one: only one may stand."""
    goals = {"/runner/n_epochs", "/runner/total_frames"}
    given = {paths[key]: str(value) for key, value in knobs.items() if paths[key] in goals}
    if all(value == "0" for value in given.values()):
        return []
    others = sorted(path for path in goals - given.keys() if params["runner"].get(path.rpartition("/")[2]))
    return [cpanel_line(path, 0, path=path) for path in others]


def _refuse(key: str, advice: str) -> NoReturn:
    raise UsageError(
        f"cpanel: expected no knobs for a session that exists, found {one_line(key, limit=80)!r}; {advice}"
    )
