"""The benchmark settings as a params module of digideep: what the peers train, said in our words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from benchmarks.settings import PPO_SETTINGS, PPOSetting, picture
from digideep.environment.wrappers.config import AtariPreprocessingConfig, ClipRewardConfig, FrameStackConfig
from digideep.model.config import CNNConfig, ModelConfig
from digideep.params.common import COMMON
from digideep.params.ppo import PPO, ppo_params
from digideep.types import Node
from digideep.utility.node import node, setting

__all__ = ["LayerNormConfig", "cpanel", "cpanel_of", "gen_params"]


@dataclass(frozen=True)
class LayerNormConfig(ModelConfig):
    """The network of the user's own: a trunk with LayerNorm after each layer, and two heads."""

    builds: ClassVar[str] = "benchmarks.layernorm:LayerNormNetwork"

    hidden_sizes: tuple[int, ...] = setting((256, 256), "units of each layer", unit="units", low=1)


def cpanel_of(chosen: PPOSetting) -> dict[str, Any]:
    """Return the control panel of a setting."""
    is_picture = chosen.network == "cnn"
    return {
        **COMMON,
        **PPO,
        "network": chosen.network,
        "model_name": chosen.env,
        "wrappers": _picture_wrappers() if is_picture else [],
        "num_envs": chosen.num_envs,
        "num_workers": "auto",
        "n_steps": chosen.n_steps,
        "epoch_size": 10,
        "total_frames": chosen.total_frames,
        "test_activate": False,
        "save_interval": 0,
        "gamma": chosen.gamma,
        "gae_lambda": chosen.gae_lambda,
        "lr": chosen.lr,
        "clip_param": chosen.clip_param,
        "value_clip": chosen.value_clip,
        "entropy_coef": chosen.entropy_coef,
        "value_coef": 2.0 * chosen.value_coef,  # of half the squared error, where the peers take all of it
        "max_grad_norm": chosen.max_grad_norm,
        "update_epochs": chosen.update_epochs,
        "minibatch_size": chosen.minibatch_size,
        "adam_eps": chosen.adam_eps,
        "hidden_sizes": list(chosen.hidden_sizes),
        "activation": "relu" if is_picture else "tanh",
    }


def _picture_wrappers() -> list[Node]:
    preprocessing = node(
        AtariPreprocessingConfig,
        noop_max=picture.noop_max,
        frame_skip=picture.frame_skip,
        screen_size=picture.screen_size,
        terminal_on_life_loss=picture.terminal_on_life_loss,
        stickiness=picture.stickiness,
    )
    stack = node(FrameStackConfig, n=picture.stack)
    return [preprocessing, stack, *([node(ClipRewardConfig)] if picture.clips_rewards else [])]


cpanel: dict[str, Any] = cpanel_of(PPO_SETTINGS["B1"])


def gen_params(cpanel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params tree of this control panel."""
    sizes = cpanel["hidden_sizes"]
    if cpanel["network"] == "layernorm":
        return ppo_params(cpanel, model=node(LayerNormConfig, hidden_sizes=sizes))
    if cpanel["network"] == "cnn":
        return ppo_params(cpanel, model=node(CNNConfig, hidden_sizes=sizes, activation=cpanel["activation"]))
    return ppo_params(cpanel)
