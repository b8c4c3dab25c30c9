"""What every contender trains in a benchmark: the same environments, networks, losses and numbers of gradient steps."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["ALIASES", "CHUNK", "LEARNING", "PPO_SETTINGS", "REPLAY_SETTINGS", "SETTINGS", "PPOSetting", "ReplaySetting"]


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
    solved: float | None = None  # mean return of the last `window` episodes
    window: int = 100
    threads: tuple[int, int] = (1, 1)  # on one core, on two

    @property
    def rows(self) -> int:
        """Rows of one iteration."""
        return self.num_envs * self.n_steps

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of one iteration."""
        return self.update_epochs * -(-self.rows // self.minibatch_size)

    @property
    def measured_from(self) -> int:
        """Frames after which the clock starts: with the end of the first iteration, which warms up."""
        return 0


class ReplaySetting(NamedTuple):
    """SAC, TD3, DDPG or DQN on one environment, learning from a replay memory that is drawn from uniformly.

    An iteration is `n_steps` steps of each environment and `n_updates` gradient steps after them, once `warm_up` rows
    have been acted at random. The clock starts after `measured_from` frames. SAC: twin critics, each followed by a
    target network that moves by the share `tau` at every gradient step, a temperature that is learnt with the target
    entropy -dim(A). DQN: the plain method of 2015 with Adam and the Huber loss; after every `target_interval` gradient
    steps the target network moves by the share `tau`. `threads` are torch's in every contender.
    """

    title: str
    method: Literal["sac", "td3", "ddpg", "dqn"]
    env: str
    total_frames: int
    warm_up: int
    measured_from: int
    lr: float
    batch_size: int
    hidden_sizes: tuple[int, ...]
    num_envs: int = 1
    n_steps: int = 1
    n_updates: int = 1
    capacity: int = 100_000
    gamma: float = 0.99
    tau: float = 0.005
    target_interval: int = 1  # gradient steps
    exploration_noise: float = 0.1  # deviation, in units of half the action's range
    policy_delay: int = 1  # gradient steps
    target_noise: float = 0.0  # deviation, in the same units
    target_noise_bound: float = 0.0
    max_grad_norm: float | None = None
    epsilon_final: float = 0.05
    epsilon_horizon: int = 1  # frames over which the share of random actions falls from 1
    activation: Literal["relu"] = "relu"
    adam_eps: float = 1e-8
    solved: float | None = None  # mean return of the last `window` episodes
    window: int = 100
    threads: tuple[int, int] = (1, 1)  # on one core, on two

    @property
    def rows(self) -> int:
        """Rows of one iteration."""
        return self.num_envs * self.n_steps

    @property
    def gradient_steps(self) -> int:
        """Gradient steps of one iteration."""
        return self.n_updates

    def in_chunks(self, factor: int) -> ReplaySetting:
        """Return the same with `factor` times as many steps and gradient steps an iteration."""
        return self._replace(n_steps=factor * self.n_steps, n_updates=factor * self.n_updates)


CHUNK = 64
"""Steps that contenders may take in one go, with as many gradient steps after them, where a setting has one a step."""


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

PPO_SETTINGS: dict[str, PPOSetting] = {
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
"""Benchmarks of PPO, by id."""

_SAC = ReplaySetting(
    title="SAC on Pendulum",
    method="sac",
    env="Pendulum-v1",
    total_frames=4_200,  # 1,000 at random, 200 that warm up, 3,000 that are measured
    warm_up=1_000,
    measured_from=1_200,
    lr=3e-4,
    batch_size=256,
    hidden_sizes=(256, 256),
    solved=-200.0,
    window=10,
    threads=(1, 2),
)
# Discount, learning rate and noise are what the authors of Stable-Baselines3 have tuned for these methods and this
# environment; all else is as for SAC.
_DDPG = _SAC._replace(title="DDPG on Pendulum", method="ddpg", lr=1e-3, gamma=0.98)
_TD3 = _DDPG._replace(title="TD3 on Pendulum", method="td3", policy_delay=2, target_noise=0.2, target_noise_bound=0.5)
# What the authors of Stable-Baselines3 have tuned for this environment, but for the network: 64 x 64 is their default
# for DQN, and what every benchmark of CartPole here has. Steps and gradient steps come in batches, their fastest way.
_DQN = ReplaySetting(
    title="DQN on CartPole",
    method="dqn",
    env="CartPole-v1",
    total_frames=50_000,
    warm_up=1_000,
    measured_from=2_000,
    lr=2.3e-3,
    batch_size=64,
    hidden_sizes=(64, 64),
    n_steps=256,
    n_updates=128,
    tau=1.0,
    target_interval=128,  # theirs, 10 steps, comes to the same: once before each batch of gradient steps
    max_grad_norm=10.0,
    epsilon_final=0.04,
    epsilon_horizon=8_000,
    solved=475.0,
)

REPLAY_SETTINGS: dict[str, ReplaySetting] = {
    "B0-ddpg": _DDPG._replace(title="DDPG on Pendulum, learning", total_frames=10_000),
    "B0-sac": _SAC._replace(title="SAC on Pendulum, learning", total_frames=10_000),
    "B5": _SAC,
    "B5-ddpg": _DDPG,
    "B5-td3": _TD3,
    "B6": _SAC._replace(title="SAC on HalfCheetah", env="HalfCheetah-v5", solved=None),
    "B12": _DQN,
    "B12-wide": _DQN._replace(title="DQN on CartPole, 256 x 256", hidden_sizes=(256, 256)),
    # The rhythm and the numbers that Stable-Baselines3 has by default.
    "B12-steady": _DQN._replace(
        title="DQN on CartPole, a gradient step every 4 steps",
        n_steps=4,
        n_updates=1,
        lr=1e-4,
        batch_size=32,
        target_interval=2_500,
        epsilon_final=0.05,
        epsilon_horizon=5_000,
        solved=None,
    ),
}
"""Benchmarks of methods that learn from a replay memory, by id. B12 is the main one of DQN."""

SETTINGS: dict[str, PPOSetting | ReplaySetting] = {**PPO_SETTINGS, **REPLAY_SETTINGS}
"""Benchmarks of training, by id."""

ALIASES = {"B3": ("B3-pendulum", "B3-halfcheetah")}
"""Ids that stand for several."""

LEARNING = {
    "B0": "",
    "B0-clip": "B1",
    "B0-ddpg": "",
    "B0-halfcheetah": "B3-halfcheetah",
    "B0-module": "B1-module",
    "B0-sac": "",
}
"""Benchmarks that compare what is learnt, with many seeds, each with the one of speed that trains just that."""
