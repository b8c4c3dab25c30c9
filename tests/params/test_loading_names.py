"""What parameters name beside knobs: files, functions, modules to copy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from digideep.errors import TrustError, UsageError
from digideep.params import cartpole_ppo
from digideep.params.loading import LoadedParams, load_params
from digideep.params.session_params import load_session_params
from digideep.pipeline.cli import parse
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.options import SessionOptions
from digideep.pipeline.trust import assess
from digideep.utility.yaml12 import dumps_yaml

PRESET = "digideep.params.cartpole_ppo"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory, and no trace of the modules in it afterwards."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("user_hook", None)


def load(name: str, *argv: str) -> LoadedParams:
    options = parse(["--params", name, *argv])
    assert isinstance(options, SessionOptions)
    return load_params(options)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".py", "x" * 300 + ".yaml", "/dev/null/x.py", "long.yaml"])
def test_a_name_that_no_file_can_have_is_one_line(name: str) -> None:
    Path("long.yaml").write_text(f"params: {'x' * 300}\n")

    with pytest.raises((UsageError, TrustError)) as caught:
        load(name)

    assert "\n" not in str(caught.value)
    assert ": expected " in str(caught.value)


def test_the_function_of_each_epoch_is_looked_at_with_the_module_that_names_it() -> None:
    Path("user_hook.py").write_text("print('loaded')\n\ndef hook(runner):\n    print(runner)\n")

    loaded = load(PRESET, "--set", "on_epoch=user_hook:hook")

    assert loaded.params["runner"]["on_epoch"] == "user_hook:hook"
    assert loaded.modules == () and [path.name for path in loaded.files] == ["user_hook.py"]
    with pytest.raises(UsageError, match=r"^/runner/on_epoch: expected a name in module 'user_hook', found 'hok'"):
        load(PRESET, "--set", "on_epoch=user_hook:hok")


def test_builtin_modules_have_nothing_to_copy_and_are_no_error() -> None:
    assert load(PRESET, "--save-modules", "sys", "json.tool", "numpy").modules == ()


def test_keyword_arguments_of_the_environment_may_look_like_a_node() -> None:
    loaded = load(PRESET, "--set", 'env_kwargs={"type": "a:b"}')

    assert loaded.params["env"]["env_kwargs"] == {"type": "a:b"}
    assert loaded.allowed == load(PRESET).allowed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("/runner/on_epoch=os:nope", "/runner/on_epoch: expected a name in module 'os', found 'nope'"),
        ("/runner/on_epoch=user_none:f", "/runner/on_epoch: expected a module that can be imported, found no"),
        ("/runner=1", "--set: /runner: expected a node with the key 'type', found integer 1"),
    ],
)
def test_changes_of_a_session_are_looked_at_in_the_same_way(
    new_session: Callable[..., SessionPaths], change: str, message: str
) -> None:
    paths = new_session()
    paths.params.write_text(dumps_yaml(cartpole_ppo.gen_params(cartpole_ppo.cpanel)))
    options = parse(["--load-checkpoint", str(paths.root), "--resume", "--set", change])
    assert isinstance(options, SessionOptions)

    with pytest.raises(UsageError) as caught:
        load_session_params(paths, options, trusted=assess(paths))

    assert str(caught.value).startswith(message)


def test_a_control_panel_that_is_no_object_is_told(new_session: Callable[..., SessionPaths]) -> None:
    paths = new_session()
    paths.cpanel.write_text("[]")
    options = parse(["--load-checkpoint", str(paths.root), "--resume"])
    assert isinstance(options, SessionOptions)

    with pytest.raises(UsageError, match=r"cpanel\.json: expected an object, found list; restore the file"):
        load_session_params(paths, options, trusted=assess(paths))
