from __future__ import annotations

from typing import Any

import pytest

from digideep.errors import UsageError
from digideep.params import cartpole_ppo
from digideep.params.loading import load_params
from digideep.params.naming import autoresume_name, cpanel_line, expand_session_name, refuse_cpanel
from digideep.pipeline.options import SessionOptions

CPANEL = {"lr": 1e-4, "seed": 3, "exact": True, "model_name": "CartPole-v1", "from_module": None, "hidden_sizes": [64]}


@pytest.mark.parametrize(
    ("name", "expanded"),
    [
        ("tug-lr{lr}-s{seed}", "tug-lr0.0001-s3"),
        ("{model_name}", "CartPole-v1"),
        ("e{exact}", "etrue"),
        ("plain", "plain"),
    ],
)
def test_a_session_name_holds_the_values_of_knobs(name: str, expanded: str) -> None:
    assert expand_session_name(name, CPANEL) == expanded


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "s{sed}",
            {},
            r"^--session-name: expected a key that exists, found the unknown key 'sed'; did you mean 'seed'\?$",
        ),
        ("s{hidden_sizes}", {}, r"^--session-name: hidden_sizes: expected text or a number, found \[64\]"),
        ("s{from_module}", {}, r"^--session-name: from_module: expected text or a number, found None"),
        ("s{model_name}", {"model_name": "m:X-v0"}, r"^--session-name: expected a letter or _ .*found 'sm:X-v0'"),
        ("s{model_name}", {"model_name": "../x"}, r"^--session-name: expected a letter or _ .*found 's../x'"),
        ("s{model_name}", {"model_name": "x" * 100}, r"^--session-name: expected a letter or _"),
        ("{seed}", {}, r"^--session-name: expected a letter or _ .*found '3'"),
    ],
)
def test_a_name_that_cannot_be_made_is_refused(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        expand_session_name(name, {**CPANEL, **change})


def test_a_name_that_is_like_no_knob_gets_no_guess_but_the_list() -> None:
    with pytest.raises(UsageError, match="the unknown key 'nope'; known: ") as caught:
        expand_session_name("a{nope}", dict.fromkeys(cartpole_ppo.cpanel, 1))

    assert "did you mean" not in str(caught.value)


def test_the_default_name_of_autoresume_is_preset_and_fingerprint() -> None:
    loaded = load_params(SessionOptions(params="digideep.params.cartpole_ppo"))

    assert autoresume_name(loaded) == f"cartpole_ppo-{loaded.fingerprint}"
    assert autoresume_name(loaded._replace(preset="3 a/b")) == f"_3_a_b-{loaded.fingerprint}"


def test_a_line_can_be_pasted_into_a_shell() -> None:
    assert cpanel_line("lr", 1e-3, path="/agents/agent/lr") == "--set /agents/agent/lr=0.001"
    assert cpanel_line("stop_return", None, path="/runner/stop_return") == "--set /runner/stop_return=null"
    assert cpanel_line("hidden_sizes", [8, 8], path="/m") == "--set '/m=[8, 8]'"
    assert cpanel_line("seed", "3", path="/runner/seed") == "--set /runner/seed=3"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            SessionOptions(cpanel={"number_epochs": 200}),
            "cpanel: expected no knobs for a session that exists, found 'number_epochs'; "
            "paste --set /runner/n_epochs=200 --set /runner/total_frames=0",
        ),
        (
            SessionOptions(assignments=(("number_epochs", "200"), ("total_frames", "0"))),
            "cpanel: expected no knobs for a session that exists, found 'number_epochs'; "
            "paste --set /runner/n_epochs=200 --set /runner/total_frames=0",
        ),
        (
            SessionOptions(cpanel={"lr": 0.5}, assignments=(("test_win_size", "5"), ("/runner/seed", "1"))),
            "cpanel: expected no knobs for a session that exists, found 'lr'; "
            "paste --set /agents/agent/lr=0.5 --set /explorer/test/n_episodes=5 "
            "--set /explorer/eval/n_episodes=5",
        ),
        (
            SessionOptions(cpanel={"sed": 1}),
            "cpanel: expected a key that exists, found the unknown key 'sed'; did you mean 'seed'?",
        ),
        (
            SessionOptions(cpanel={"depth": 1}),
            "cpanel: expected no knobs for a session that exists, found 'depth'; start a new session with it",
        ),
    ],
)
def test_a_knob_for_a_session_that_exists_is_refused_with_the_line_to_paste(
    options: SessionOptions, message: str
) -> None:
    cpanel = {**cartpole_ppo.cpanel, "depth": 3}

    with pytest.raises(UsageError) as caught:
        refuse_cpanel(options, cpanel=cpanel, params=cartpole_ppo.gen_params(cpanel))

    assert str(caught.value) == message


def test_changes_by_path_are_no_knobs() -> None:
    options = SessionOptions(repeal={"/runner/seed": 1}, assignments=(("/runner/n_epochs", "3"),))

    assert refuse_cpanel(options, cpanel={}, params={}) is None
