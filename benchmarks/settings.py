"""What every contender trains in a benchmark: the same environments, networks, losses and numbers of gradient steps."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["ALIASES", "LEARNING", "SETTINGS", "PPOSetting"]


class PPOSetting(NamedTuple):
    """PPO on one environment.

    `network` is `mlp`: two separate networks with tanh; `layernorm`: one trunk of the user's own, each layer followed
    by LayerNorm and tanh, with two heads; or `cnn`: the Nature network with two heads, on the pictures that `picture`
    describes. `threads` are torch's in every contender, on one core and on two.
    """

    title: str
    env: str
    num_envs: int
    n_steps: int
    update_epochs: int
    minibatch_size: int
    lr: float
    total_frames: int
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_param: float = 0.2
    value_clip: float | None = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5  # of the mean squared error
    max_grad_norm: float = 0.5
    adam_eps: float = 1e-5
    network: Literal["mlp", "layernorm", "cnn"] = "mlp"
    hidden_sizes: tuple[int, ...] = (64, 64)
    solved: float | None = None  # mean return of the last 100 episodes
    threads: tuple[int, int] = (1, 1)  # on one core, on two

    @property
    def rows(self) -> int:
        """Rows of one iteration."""
        return self.num_envs * self.n_steps

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of one iteration."""
        return self.update_epochs * -(-self.rows // self.minibatch_size)


class PictureSetting(NamedTuple):
    """How every contender sees Atari games: grey, 84 x 84, the last four, each the larger of two frames."""

    frame_skip: int = 4
    noop_max: int = 30
    screen_size: int = 84
    stack: int = 4
    terminal_on_life_loss: bool = False
    stickiness: float = 0.0
    clips_rewards: bool = True


picture = PictureSetting()

_SMALL = PPOSetting(
    title="PPO-small on CartPole",
    env="CartPole-v1",
    num_envs=8,
    n_steps=128,
    update_epochs=4,
    minibatch_size=256,
    lr=2.5e-4,
    total_frames=200_000,
    solved=475.0,
)
_CONTROL = _SMALL._replace(
    n_steps=256, update_epochs=10, minibatch_size=64, lr=3e-4, value_clip=None, entropy_coef=0.0, solved=None
)

# Where returns are compared there is no value clip: each system means something else by it (docs/performance.md).
_MODULE = _SMALL._replace(
    title="PPO-small on CartPole, the user's own network",
    network="layernorm",
    hidden_sizes=(256, 256),
    value_clip=None,
)
_HALFCHEETAH = _CONTROL._replace(title="PPO on HalfCheetah", env="HalfCheetah-v5")

SETTINGS = {
    "B0": _SMALL._replace(title="learning of PPO-small on CartPole, without value clip", value_clip=None),
    "B0-clip": _SMALL._replace(title="learning of PPO-small on CartPole, each with its value clip"),
    "B0-halfcheetah": _HALFCHEETAH._replace(title="learning of PPO on HalfCheetah"),
    "B0-module": _MODULE._replace(title="learning of PPO-small on CartPole, the user's own network"),
    "B1": _SMALL,
    "B1-module": _MODULE,
    "B2": _SMALL._replace(
        title="PPO-sb on CartPole", update_epochs=10, minibatch_size=64, lr=3e-4, value_clip=None, entropy_coef=0.0
    ),
    "B3-pendulum": _CONTROL._replace(title="PPO on Pendulum", env="Pendulum-v1"),
    "B3-halfcheetah": _HALFCHEETAH,
    "B4": _SMALL._replace(
        title="PPO on Pong, 84 x 84 x 4",
        env="ALE/Pong-v5",
        total_frames=21 * 8 * 128,  # the first iteration warms up, 20 are measured
        network="cnn",
        hidden_sizes=(512,),
        value_clip=None,
        solved=None,
        threads=(1, 2),
    ),
}
"""Benchmarks of training, by id."""

ALIASES = {"B3": ("B3-pendulum", "B3-halfcheetah")}
"""Ids that stand for several."""

LEARNING = {"B0": "", "B0-clip": "B1", "B0-halfcheetah": "B3-halfcheetah", "B0-module": "B1-module"}
"""Benchmarks that compare what is learnt, with many seeds, each with the one of speed that trains just that."""
