"""A parser whose errors are exceptions of one line in the form of all errors, and which never exits by itself."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from digideep.errors import UsageError, one_line
from digideep.utility.values import closest

__all__ = ["Parser", "near_option"]

_HELP = "--help shows all options"


class _Once(argparse.Action):
    """An option that a second one of its name would silently replace: giving it twice is an error."""

    is_given = False  # a parser reads one command line

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *rest: Any) -> None:
        if self.is_given and self.option_strings:
            raise UsageError(f"{self.option_strings[0]}: expected it once, found it twice; keep one of the two")
        self.is_given = True
        setattr(namespace, self.dest, rest[0])


class Parser(argparse.ArgumentParser):
    """The parser; options are never abbreviated, and those with one value are given once each."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})
        self.register("action", None, _Once)  # what an option without an action of its own is stored by
        self.register("action", "store", _Once)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Read the command line as `argparse` does, after looking for what it would misread."""
        for word in args or ():
            _check_word(word)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found, in the form that all errors have."""
        where, separator, problem = message.partition(": ")
        where = where.removeprefix("argument ").split("/")[0]
        if message.startswith("unrecognized arguments: "):
            raise self._unknown(problem.split(" ")[0])
        if "required" in message:
            missing = one_line(message.rpartition(": ")[2] if separator else message, limit=200)
            raise UsageError(f"command line: expected what is required, found none of it ({missing}); {_HELP}")
        if "invalid choice" in message:
            raise UsageError(f"command line: expected a command that exists, found an {one_line(problem)}; {_HELP}")
        if not separator or not where.startswith("-"):
            raise UsageError(f"command line: expected options that go together, found {one_line(message)}; {_HELP}")
        if problem.startswith("not allowed with"):
            raise UsageError(f"{where}: expected at most one of them, found it {one_line(problem)}; leave one out")
        if problem.startswith("expected ") and "argument" in problem and ";" not in problem:
            raise UsageError(
                f"{where}: expected a value, found none; one that begins with '-' is given as {where}=VALUE"
            )
        if problem.startswith("ignored explicit argument"):
            raise UsageError(f"{where}: expected no value, found one; leave '=...' out")
        raise UsageError(f"{where}: {one_line(problem)}" + ("" if ";" in problem else f"; {_HELP}"))

    def _unknown(self, word: str) -> UsageError:
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return UsageError(f"command line: expected no further words, found {one_line(word, limit=60)!r}; {_HELP}")
        options = [option for action in self._actions for option in action.option_strings]
        found = one_line(name, limit=60)
        advice = near_option(name, options)
        return UsageError(f"{found}: expected an option that exists, found an unknown option; {advice}")


def near_option(name: str, options: Sequence[str]) -> str:
    """Return the advice for an unknown option: the nearest of `options`, or how all of them are shown."""
    near = closest(name, options)
    return f"did you mean {near!r}?" if near else _HELP


def _check_word(word: str) -> None:
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:  # meta.json could not hold it
        found = repr(one_line(word, limit=60))
        raise UsageError(f"command line: expected text in UTF-8, found {found}; rename what it names") from None
    if word.startswith("--") and word.endswith("=--"):  # argparse drops the second one and goes on without a value
        raise UsageError(f"{one_line(word[:-3], limit=60)}: expected a value, found '--'; give another one")
