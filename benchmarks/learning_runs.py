"""The runs of docs/results.md: which preset, what it should reach, and what others have published for the task."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["RUNS", "LearningRun", "Published"]

_ZOO = "https://github.com/DLR-RM/rl-baselines3-zoo/blob/0088472b8cb622732bdbc4aa3d0d0abde86c67ed/benchmark.md"
_ZOO_RECURRENT = "https://huggingface.co/sb3/ppo_lstm-CartPoleNoVel-v1"
_CLEANRL = "https://github.com/vwxyzjn/cleanrl/blob/"
_CLEANRL_PPO = f"{_CLEANRL}04d2c4794d091bf23b2e38641aa80f9b776cbcfd/docs/rl-algorithms/ppo.md"
_CLEANRL_DQN = f"{_CLEANRL}01bd173abd87a3990e721dd80d6794b2cee5588f/docs/rl-algorithms/dqn.md"
_CLEANRL_SAC = f"{_CLEANRL}08d1c0105e41f3ab435a981d3df901ea8d08cdd5/docs/rl-algorithms/sac.md"


class Published(NamedTuple):
    """A mean return with its deviation that somebody else reports: of which program, after how many frames, where."""

    value: str
    of: str
    link: str


class LearningRun(NamedTuple):
    """One training of a preset, repeated with several seeds.

    Attributes:
        name: of the preset, a module of `digideep.params`.
        title: method and task.
        goal: what the mean over seeds should reach; None where the page only says what was reached.
        changes: of the preset's knobs, as `--set` takes them.
        measure: `test`: the mean return of the last test, the policy acting without noise; `rise`: the mean return of
            the training episodes in the last tenth of the frames minus that in the first tenth.
        fails: whether the goal is one that this run should not reach.
        published: values of others.
        note: a sentence for the page.
        seeds: one training each.
    """

    name: str
    title: str
    goal: float | None
    changes: tuple[str, ...] = ()
    measure: Literal["test", "rise"] = "test"
    fails: bool = False
    published: tuple[Published, ...] = ()
    note: str = ""
    seeds: tuple[int, ...] = (1, 2, 3)

    def command(self, seed: int) -> str:
        """Return the command that anybody can give."""
        return " ".join(("python -m digideep.main", *self.arguments(seed)))

    def arguments(self, seed: int) -> tuple[str, ...]:
        """Return the arguments of the program."""
        return ("--params", f"digideep.params.{self.name}", "--set", f"seed={seed}", *self.changes)


def _zoo(value: str, frames: str, env: str = "") -> Published:
    return Published(value, f"Stable-Baselines3's RL Zoo, {frames} frames, one run{f', {env}' if env else ''}", _ZOO)


RUNS = (
    LearningRun(
        "cartpole_ppo",
        "PPO on CartPole-v1",
        475.0,
        published=(
            _zoo("500.0 +- 0.0", "100,000"),
            Published("488.8 +- 18.4", "CleanRL, returns of training", _CLEANRL_PPO),
        ),
    ),
    LearningRun("classic_a2c", "A2C on CartPole-v1", 475.0, published=(_zoo("500.0 +- 0.0", "500,000"),)),
    LearningRun(
        "classic_dqn",
        "DQN on CartPole-v1",
        475.0,
        published=(
            _zoo("500.0 +- 0.0", "50,000"),
            Published("488.7 +- 16.1", "CleanRL, 500,000 frames, returns of training", _CLEANRL_DQN),
        ),
    ),
    LearningRun(
        "acrobot_ppo",
        "PPO on Acrobot-v1",
        -100.0,
        published=(
            _zoo("-73.5 +- 18.2", "1,000,000"),
            Published("-82.5 +- 5.9", "CleanRL, returns of training", _CLEANRL_PPO),
        ),
    ),
    LearningRun(
        "sacv2_params",
        "SAC on Pendulum-v1",
        -200.0,
        ("total_frames=20000",),
        published=(_zoo("-157.0 +- 88.7", "20,000"),),
    ),
    LearningRun(
        "sac_params",
        "SAC of 2018 on Pendulum-v1",
        -200.0,
        ("total_frames=20000",),
        note="With a value network and a temperature that is set, not learnt.",
    ),
    LearningRun(
        "classic_td3",
        "TD3 on Pendulum-v1",
        -200.0,
        ("total_frames=20000",),
        published=(_zoo("-151.9 +- 90.2", "20,000"),),
    ),
    LearningRun(
        "classic_ddpg",
        "DDPG on Pendulum-v1",
        -200.0,
        ("total_frames=20000",),
        published=(_zoo("-152.1 +- 94.3", "20,000"),),
    ),
    LearningRun("pendulum_ppo", "PPO on Pendulum-v1", -250.0, published=(_zoo("-172.2 +- 104.2", "100,000"),)),
    LearningRun(
        "lunarlander_ppo",
        "PPO on LunarLander-v3",
        200.0,
        published=(_zoo("242.1 +- 31.8", "1,000,000", "LunarLander-v2"),),
    ),
    LearningRun(
        "mujoco_sac",
        "SAC on HalfCheetah-v5, 100,000 frames",
        3500.0,
        ("total_frames=100000",),
        published=(
            _zoo("9535 +- 100", "1,000,000", "HalfCheetah-v3"),
            Published("9635 +- 1424", "CleanRL, 1,000,000 frames, returns of training, HalfCheetah-v2", _CLEANRL_SAC),
        ),
        note="What is published stands at ten times as many frames.",
    ),
    LearningRun(
        "mujoco_td3",
        "TD3 on HalfCheetah-v5, 100,000 frames",
        None,
        ("total_frames=100000",),
        published=(_zoo("9656 +- 970", "1,000,000", "HalfCheetah-v3"),),
        note="What is published stands at ten times as many frames.",
    ),
    LearningRun(
        "mujoco_ppo",
        "PPO on HalfCheetah-v5",
        None,
        published=(_zoo("5819 +- 664", "1,000,000", "HalfCheetah-v3"),),
    ),
    LearningRun(
        "dmc_sac",
        "SAC on walker-walk of the DeepMind Control Suite, 100,000 frames",
        None,
        ("total_frames=100000",),
    ),
    LearningRun(
        "cartpole_hidden_ppo_recurrent",
        "recurrent PPO on CartPole-v1 without velocities",
        450.0,
        published=(Published("500.0 +- 0.0", "Stable-Baselines3's RL Zoo, recurrent PPO, one run", _ZOO_RECURRENT),),
        note="Positions alone do not say where the pole is going: the policy has to remember.",
    ),
    LearningRun(
        "cartpole_hidden_ppo",
        "PPO on CartPole-v1 without velocities, no memory",
        450.0,
        fails=True,
        note="The same task for a policy that cannot remember, which should not reach what the one above does.",
    ),
    LearningRun(
        "atari_ppo",
        "PPO on Pong, the first 1,000,000 frames",
        3.0,
        ("total_frames=1000000",),
        measure="rise",
        published=(_zoo("20.99 +- 0.11", "10,000,000"),),
        note="The beginning of learning: the figure is how much the mean return of training rises from "
        "the first tenth of the frames to the last. What is published stands at ten times as many frames.",
    ),
    LearningRun(
        "atari_ppo_recurrent",
        "recurrent PPO on Pong, the first 1,000,000 frames",
        None,
        ("total_frames=1000000",),
        measure="rise",
        note="One picture at a time instead of the last four, and an LSTM behind them.",
        seeds=(1,),
    ),
    LearningRun(
        "atari_dqn",
        "DQN on Pong, the first 1,000,000 frames",
        None,
        ("total_frames=1000000",),
        measure="rise",
        published=(_zoo("20.60 +- 0.61", "10,000,000"),),
        note="What is published stands at ten times as many frames.",
        seeds=(1,),
    ),
)
"""All runs, in the order of the page."""
