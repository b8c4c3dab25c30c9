"""Whose code may run: signatures, keys, trusted places, and what parameters may name."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from digideep.errors import TrustError
from digideep.pipeline import keys
from digideep.pipeline.keys import find_key, make_key
from digideep.pipeline.layout import SessionPaths
from digideep.pipeline.trust import assess, check_requeue, consented, needed_modules, require, sign, sign_or_say_why

Maker = Callable[..., SessionPaths]


def _other_user(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "another_home")}


def test_a_session_signed_by_this_user_may_run_its_code_and_import_what_was_listed(new_session: Maker) -> None:
    paths = new_session()

    assert sign(paths, modules=["tug_game"]) == ""

    trust = assess(paths)
    assert trust.code
    assert trust.allowed == (*consented(()), "tug_game")
    assert stat.S_IMODE(paths.signature.stat().st_mode) == 0o600


def test_an_unsigned_session_is_data(new_session: Maker) -> None:
    trust = assess(new_session())

    assert (trust.level, trust.reason, trust.allowed) == ("data", "it is not signed", consented(()))


def test_another_users_signature_is_data(new_session: Maker, tmp_path: Path) -> None:
    paths = new_session()
    sign(paths, modules=[], environ=_other_user(tmp_path))
    make_key(os.environ)

    trust = assess(paths)

    assert (trust.level, trust.reason) == ("data", "it was signed by another user or on another machine")


def test_a_copied_signature_does_not_fit_another_session(new_session: Maker) -> None:
    first, second = new_session("a"), new_session("b")
    sign(first, modules=[])
    shutil.copy(first.signature, second.signature)

    assert assess(second).reason == "it has changed since it was signed (id)"


def _edit_module(paths: SessionPaths) -> None:
    (paths.modules / "digideep" / "errors.py").write_text("print('hello')\n")


def _add_module(paths: SessionPaths) -> None:
    (paths.modules / "torch.py").write_text("print('hello')\n")


def _add_bytecode(paths: SessionPaths) -> None:
    (paths.modules / "digideep" / "__pycache__").mkdir()
    (paths.modules / "digideep" / "__pycache__" / "errors.cpython-311.pyc").write_bytes(b"code")


def _add_empty_package(paths: SessionPaths) -> None:
    (paths.modules / "torch").mkdir()


def _link_module(paths: SessionPaths) -> None:
    (paths.modules / "json.py").symlink_to("/etc/passwd")


def _edit_saam(paths: SessionPaths) -> None:
    paths.saam.write_text("print('hello')\n")


def _remove_init(paths: SessionPaths) -> None:
    paths.init.unlink()


def _replace_modules(paths: SessionPaths) -> None:
    paths.modules.rename(paths.root / "kept")
    paths.modules.symlink_to(paths.root / "kept")


CHANGES = [
    _edit_module,
    _add_module,
    _add_bytecode,
    _add_empty_package,
    _link_module,
    _edit_saam,
    _remove_init,
    _replace_modules,
]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_no_longer_matches_the_signature(
    new_session: Maker, change: Callable[[SessionPaths], None]
) -> None:
    paths = new_session()
    sign(paths, modules=[])
    change(paths)

    assert not assess(paths).code


def test_a_longer_list_of_modules_does_not_match_the_signature(new_session: Maker) -> None:
    paths = new_session()
    sign(paths, modules=["tug_game"])
    claim = json.loads(paths.signature.read_text())
    paths.signature.write_text(json.dumps({**claim, "imports": ["os", "tug_game"]}))

    assert assess(paths).reason == "it was signed by another user or on another machine"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"hmac": 3}', '{"hmac": "é"}', '{"hmac": "' + "0" * 64 + '"}'])
def test_a_malformed_signature_is_data(new_session: Maker, content: str) -> None:
    paths = new_session()
    make_key(os.environ)
    paths.signature.write_text(content)

    assert assess(paths).level == "data"


def test_a_fifo_as_signature_does_not_stop_anything(new_session: Maker) -> None:
    paths = new_session()
    os.mkfifo(paths.signature)

    assert assess(paths).level == "data"


def test_the_session_survives_being_moved(new_session: Maker) -> None:
    paths = new_session()
    sign(paths, modules=[])
    moved = SessionPaths(paths.root.with_name("elsewhere"))
    paths.root.rename(moved.root)

    assert assess(moved).code


def test_trusting_by_option_allows_what_the_parameters_name_and_the_session_carries(new_session: Maker) -> None:
    params = {"env": {"from_module": "tug_game.envs"}}
    paths = new_session()
    contents = json.loads((paths.modules / "contents.json").read_text())
    contents["copied"]["my_nets"] = {"source": "/code/my_nets", "files": {}}
    (paths.modules / "contents.json").write_text(json.dumps(contents))

    trust = assess(paths, trust_session=True, params=params)

    assert (trust.level, trust.reason) == ("code", "--trust-session was given")
    assert trust.allowed == (*consented(()), "my_nets", "tug_game")


def test_a_trusted_root_counts_only_while_nobody_else_can_write_there(
    new_session: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = new_session()
    tmp_path.chmod(0o700)
    monkeypatch.setenv("DIGIDEEP_TRUSTED_ROOTS", f"/nowhere:{tmp_path}")
    assert assess(paths).code

    (paths.modules / "digideep" / "errors.py").chmod(0o666)
    assert "expected that only its owner can write it" in assess(paths).reason
    (paths.modules / "digideep" / "errors.py").chmod(0o600)
    paths.root.chmod(0o770)
    assert "can be written by others" in assess(paths).reason
    paths.root.chmod(0o700)
    tmp_path.chmod(0o777)
    assert "can be written by others" in assess(paths).reason


@pytest.mark.parametrize("roots", ["/", "", "relative", ":::"])
def test_everything_or_nothing_is_no_trusted_root(
    new_session: Maker, roots: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path.parent / "relative").mkdir(exist_ok=True)
    monkeypatch.setenv("DIGIDEEP_TRUSTED_ROOTS", roots)

    assert not assess(new_session()).code


def test_a_link_below_a_trusted_root_does_not_lead_into_it(
    new_session: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = new_session()
    (tmp_path / "trusted").mkdir(mode=0o700)
    (tmp_path / "trusted" / "session").symlink_to(paths.root)
    monkeypatch.setenv("DIGIDEEP_TRUSTED_ROOTS", str(tmp_path / "trusted"))

    assert not assess(SessionPaths(tmp_path / "trusted" / "session")).code


def test_everything_that_names_code_is_found() -> None:
    params = {
        "env": {"type": "digideep.environment.config:EnvConfig", "from_module": "a.b", "model_name": "c.d:Env-v0"},
        "runner": {"type": "e.f:Runner", "on_epoch": "g:hook"},
        "agents": {"x": {"type": "digideep.agent:PPOConfig", "model": {"type": "h:Net", "l": [{"type": "i:J"}]}}},
        "engine": {"chosen": {"type": 3}},
    }

    assert needed_modules(params) == ("a.b", "c.d", "e.f", "g", "h", "i")


def test_the_users_own_keyword_arguments_name_no_code() -> None:
    kwargs = {"type": "a:b", "inner": {"type": "c:D"}, "list": [{"type": "e:F"}]}

    assert needed_modules({"env": {"env_kwargs": kwargs, "play_env_kwargs": kwargs}}) == ()


@pytest.mark.parametrize("hook", ["digideep.pipeline.meta:now_text", "minigrid:register", "evil:hook"])
def test_a_function_to_call_needs_a_trusted_session_whatever_module_it_lies_in(new_session: Maker, hook: str) -> None:
    paths = new_session()
    params = {"runner": {"on_epoch": hook}}
    module = hook.partition(":")[0]

    with pytest.raises(TrustError, match=f"module '{module}'"):
        require(assess(paths), params, session=paths.root)
    require(assess(paths), params, session=paths.root, consent=[module])
    require(assess(paths, trust_session=True, params=params), params, session=paths.root)


def test_a_package_whose_name_is_not_ascii_can_be_signed_for(new_session: Maker) -> None:
    paths = new_session()
    sign(paths, modules=["réseau"])
    assert assess(paths).allowed == (*consented(()), "réseau")

    paths.saam.write_text("# changed\n")

    assert assess(paths).reason == "it has changed since it was signed (saam.py)"


def test_environment_packages_and_gymnasiums_registry_are_data() -> None:
    for env in ({"model_name": "ale_py:ALE/Pong-v5"}, {"model_name": "CartPole-v1"}, {"from_module": "minigrid"}):
        assert needed_modules({"env": env}) == ()
    assert needed_modules({"env": {"from_module": "minigrid_evil"}}) == ("minigrid_evil",)
    assert needed_modules({"env": None, "runner": 3}) == ()


def test_what_is_needed_and_not_trusted_is_named_with_the_ways_out(new_session: Maker) -> None:
    paths = new_session()
    params: dict[str, Any] = {"env": {"from_module": "tug_game"}}
    trust = assess(paths)

    require(trust, {"env": {}}, session=paths.root)
    require(trust, params, session=paths.root, consent=["tug_game"])
    with pytest.raises(
        TrustError, match=r"module 'tug_game', .*not signed.*--trust-session.*digideep\.sessions trust"
    ) as caught:
        require(trust, params, session=paths.root)
    assert caught.value.exit_code == 6


def test_the_key_is_private_and_stays_the_same() -> None:
    first, second = make_key(os.environ), make_key(os.environ)

    path = keys.key_path(os.environ)
    assert path is not None
    assert first == second == find_key(os.environ)
    assert first.secret is not None and len(first.secret) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]


def test_processes_that_make_the_key_at_once_agree_on_it() -> None:
    program = (
        "import os; from digideep.pipeline.keys import make_key; input(); print(make_key(os.environ).secret.hex())"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]

    found = {process.communicate("go\n", timeout=30)[0] for process in processes}

    assert len(found) == 1
    assert len(found.pop().strip()) == 64


@pytest.mark.parametrize("spoil", ["open", "short", "link", "directory", "open parent"])
def test_a_key_that_others_could_know_is_not_used(new_session: Maker, tmp_path: Path, spoil: str) -> None:
    make_key(os.environ)
    path = keys.key_path(os.environ)
    assert path is not None
    if spoil == "open":
        path.chmod(0o644)
    elif spoil == "short":
        path.write_bytes(b"")
    elif spoil == "link":
        path.rename(tmp_path / "key")
        path.symlink_to(tmp_path / "key")
    elif spoil == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.parent.chmod(0o777)

    assert find_key(os.environ).secret is None
    assert "the session is not signed: " in sign_or_say_why(new_session(), modules=[])


def test_where_no_key_can_be_kept_a_requeue_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"XDG_STATE_HOME": str(tmp_path / "file")}

    check_requeue(tmp_path, modules=[], trust_session=False, environ=environ)
    check_requeue(tmp_path, modules=["tug_game"], trust_session=True, environ=environ)
    check_requeue(tmp_path, modules=["tug_game"], trust_session=False)
    with pytest.raises(TrustError, match=r"--autoresume: .*'tug_game'.*no key can be kept"):
        check_requeue(tmp_path, modules=["tug_game"], trust_session=False, environ=environ)


def test_a_relative_state_directory_is_ignored() -> None:
    assert keys.key_path({"XDG_STATE_HOME": "state", "HOME": "/home/a"}) == Path("/home/a/.local/state/digideep/key")


def test_a_signed_session_that_names_more_than_was_signed_is_told_so(new_session: Maker) -> None:
    paths = new_session()
    sign(paths, modules=[])
    more = {"runner": {"on_epoch": "evil:f"}}

    with pytest.raises(TrustError, match=r"found that it is signed by this user, but not with that; if you trust it"):
        require(assess(paths), more, session=paths.root)
