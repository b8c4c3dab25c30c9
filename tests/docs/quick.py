"""The Python that commands in the documentation are run with: every training it starts is a short one.

    quick.py [arguments of python]      as that Python, with the goal of `-m digideep.main` made small
    quick.py --page FILE                runs the Python blocks of a page, with `digideep.run` made short likewise

The documentation shows commands as a reader types them, and a test cannot wait for what they do at full length.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any

QUICK: dict[str, Any] = {"number_epochs": 4, "total_frames": 0, "stop_return": None, "epoch_size": 1}
LONGEST = {"number_epochs": 8, "/runner/n_epochs": 8, "total_frames": 20_000, "/runner/total_frames": 20_000}
TRAINS_NOTHING = {
    "--play", "--resume", "--custom", "--describe", "--list-params", "--help", "-h", "--version", "--check-resume",
}  # fmt: skip


def capped(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Return knobs or paths with goals no larger than what a test can wait for."""
    return {
        key: min(value, LONGEST[key]) if key in LONGEST and isinstance(value, int) else value
        for key, value in knobs.items()
    }


def missing(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has to be added to these knobs so that a new training is short."""
    # Epochs of one chunk each would be hundreds, with a test and a save each, on the way to a goal in frames.
    given = {"number_epochs", "total_frames", "epoch_size"} if knobs.get("total_frames") else set()
    return {key: value for key, value in QUICK.items() if key not in knobs and key not in given}


def _capped_argument(option: str, argument: str) -> str:
    key, equals, value = argument.partition("=")
    if option == "--set" and equals and value.isdigit():
        return f"{key}={capped({key: int(value)})[key]}"
    if option in ("--cpanel", "--repeal") and argument.startswith("{"):
        return json.dumps(capped(json.loads(argument)))
    return argument


def shortened(arguments: Sequence[str]) -> list[str]:
    """Return options of the program with a small goal, where they start or continue a training."""
    option, result, knobs = "", list[str](), dict[str, Any]()
    for argument in arguments:
        if argument.startswith("--"):
            option, equals, value = argument.partition("=")
            result.append(f"{option}={_capped_argument(option, value)}" if equals else argument)
            continue
        result.append(_capped_argument(option, argument))
        if option == "--set":
            key, _, value = result[-1].partition("=")
            knobs[key] = int(value) if value.isdigit() else value
        elif option == "--cpanel" and argument.startswith("{"):
            knobs.update(json.loads(result[-1]))
    is_new = any(argument.split("=")[0] == "--params" for argument in arguments)
    if not is_new or TRAINS_NOTHING & set(arguments):
        return result
    added = [f"{key}={json.dumps(value)}" for key, value in missing(knobs).items()]
    if "--set" in result:  # one group only: a later one would replace or repeat the earlier
        place = result.index("--set") + 1
        return [*result[:place], *added, *result[place:]]
    return [*result, "--set", *added] if added else result


def run_page(path: str) -> None:
    """Run the Python blocks of a page as a program of its own."""
    import digideep

    train = digideep.run

    def run(params: Any, cpanel: Mapping[str, Any] | None = None, **options: Any) -> Any:
        knobs = capped(cpanel or {})
        return train(params, {**missing(knobs), **knobs}, **options)

    digideep.run = run
    sys.argv = [path]
    sys.path.insert(0, os.getcwd())
    runpy.run_path(path, run_name="__main__")


def main(arguments: Sequence[str]) -> None:
    """Become the Python that was asked for."""
    if arguments[:1] == ["--page"]:
        return run_page(arguments[1])
    command = list(arguments)
    for place in range(len(command) - 1):
        if command[place : place + 2] == ["-m", "digideep.main"]:
            command[place + 2 :] = shortened(command[place + 2 :])
            break
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    main(sys.argv[1:])
