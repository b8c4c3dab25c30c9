"""PPO: what it remembers, one update from one chunk, and the way in and out of checkpoints."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.agent.base import Agent, FlatArray, GradientOutput
from digideep.agent.policy import build_policy, load_named, named_arrays
from digideep.agent.ppo import losses
from digideep.agent.ppo.batches import Rollout, make_rollout, minibatches
from digideep.agent.ppo.config import PPOConfig
from digideep.agent.ppo.learner import fused_gradients, packed_gradients, reference_gradients
from digideep.agent.ppo.losses import FIGURES, Losses, LossOptions, PPOBatch
from digideep.agent.ppo.policy import FrozenPolicy, PPOActor
from digideep.agent.returns import explained_variance, gae
from digideep.agent.schedules import linear
from digideep.errors import CheckpointError, NonFiniteError
from digideep.model.flat import AdamState, FlatAdam, FlatParameters
from digideep.model.heads import Evaluation
from digideep.model.mlp import ActorCriticMLP
from digideep.model.packed import PackedMLP
from digideep.spec import EnvSpec
from digideep.types import Chunk, Counters, StateDict, Store
from digideep.utility.imports import BUILT_IN
from digideep.utility.profiling import timer_block
from digideep.utility.seeding import derive, generator, generator_state, set_generator_state
from digideep.utility.statistics import Normalizer

__all__ = ["LOSS_METHODS", "PPOAgent", "PPOState"]

logger = logging.getLogger(__name__)

Array: TypeAlias = np.ndarray[Any, Any]

LOSS_METHODS = ("loss", "policy_loss", "value_loss", "entropy_bonus")
"""Methods that only the reference path calls: overriding one puts an agent on it."""

_KL = FIGURES.index("approx_kl")


class PPOState(NamedTuple):
    """Everything that the next update depends on. Schedules are functions of the frame and have no state."""

    policy: dict[str, Array]
    optimiser: dict[str, Any]
    updates: int
    generators: dict[str, Any]


class PPOAgent(Agent):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347); README.md lists every detail.

    Subclasses may override `loss`, `policy_loss`, `value_loss` and `entropy_bonus`, which puts them on the reference
    path, and `advantages`, which both paths call.

    Args:
        config: the hyperparameters.
        name: of the agent, as in the parameters.
        spec: the environment's spaces.
        memory: holds the chunks it learns from.
        device: where the network lives.
        seed: of the run; weights, actions and shuffles have streams of their own, derived from it and the name.
        monitor: takes `update/<name>/...` once per update.
        allowed: packages that the network's class may come from.
    """

    parts = ("policy",)
    loss_names = FIGURES

    def __init__(
        self,
        config: PPOConfig,
        *,
        name: str,
        spec: EnvSpec,
        memory: Store,
        device: str,
        seed: int,
        monitor: Callable[[str, float], None],
        allowed: Sequence[str] = BUILT_IN,
    ) -> None:
        self.config = config
        self.name = name
        self.spec = spec
        self._memory = memory
        self._monitor = monitor
        self._device = torch.device(device)
        self.policy = build_policy(
            config.model,
            spec,
            seed=derive(seed, "agents", name, "weights"),
            log_std_init=config.log_std_init,
            where=f"/agents/{name}/model",
            device=device,
            allowed=allowed,
        )
        self._flat = FlatParameters(self.policy)
        self._adam = FlatAdam(self._flat, eps=config.adam_eps)
        self._action_rng = generator(seed, "agents", name, "actions")
        self._shuffle_rng = generator(seed, "agents", name, "shuffle")
        self._updates = 0
        self._frozen: FrozenPolicy | None = None
        self._broken = torch.zeros((), device=self._device)  # 1 once a gradient on a GPU was not finite
        self._has_warned = False  # not part of the state: each process may say it once
        self.lr = config.lr
        self.clip_param = config.clip_param
        self._choose_path()
        self._prepare_block, self._step_block = timer_block("prepare"), timer_block("step")

    @property
    def network_class(self) -> str:
        """Return `mlp`, `cnn` or `rnn` where the network's class says so, else `custom`."""
        return str(getattr(self.policy.network, "network_class", "custom"))

    def actor(self, normalizer: Normalizer) -> PPOActor:
        """Return the policy of now; actors between two updates share one copy of the weights."""
        if self._frozen is None:
            self._frozen = FrozenPolicy(self.policy)
        return PPOActor(
            self._frozen,
            normalizer=normalizer,
            rng=self._action_rng,
            name=self.name,
            policy_version=self._updates,
        )

    def update(self, normalizer: Normalizer, counters: Counters) -> None:
        """Learn from the newest chunk: all epochs, or until a minibatch's approximate KL exceeds `target_kl`."""
        with self._prepare_block:
            self._flat.check()
            chunk = self._memory.last_chunk()
            # Schedules stand where the chunk began: the first update uses the value of frame 0.
            self._follow_schedules(counters.env_steps - chunk.meta.env_steps)
            rollout = self.prepare(chunk, normalizer)
        self.policy.train()
        figures, norms = self._learn(rollout)
        self.policy.eval()
        self._updates += 1
        self._frozen = None
        self._report(rollout, figures=figures, norms=norms)

    def prepare(self, chunk: Chunk, normalizer: Normalizer) -> Rollout:
        """Return the rows of a chunk, normalised, with advantages and returns."""
        arrays, prefix = chunk.arrays, f"/agents/{self.name}"
        observations = {slot: arrays[f"/observations/{slot}"] for slot in self.spec.observations}
        newest = {slot: array[:, -1] for slot, array in observations.items()}
        values = np.array(arrays[f"{prefix}/artifacts/values"])
        # Nobody has acted on the newest observation yet: its value is missing in the chunk.
        values[:, -1] = self.actor(normalizer).predict(newest, rowwise=False).values
        masks = _own(arrays, "masks", prefix=prefix)
        advantages = self.advantages(
            normalizer.rewards(_own(arrays, "rewards", prefix=prefix)[:, :-1]),
            values,
            terminations=_own(arrays, "terminations", prefix=prefix)[:, :-1],
            masks=masks,
        )
        actions = {slot: arrays[f"{prefix}/actions{'/' if slot else ''}{slot}"] for slot in self.spec.actions}
        return make_rollout(
            observations=normalizer.observations({slot: array[:, :-1] for slot, array in observations.items()}),
            actions={slot: array[:, :-1] for slot, array in actions.items()},
            log_probs=arrays[f"{prefix}/artifacts/log_probs"][:, :-1],
            values=values[:, :-1],
            advantages=advantages,
            weights=masks[:, 1:],
            device=self._device,
        )

    def advantages(self, rewards: Array, values: Array, *, terminations: Array, masks: Array) -> Array:
        """Return advantages `[N, T]` from rewards `[N, T]` and values `[N, T+1]`; 0 for rows that are not real."""
        config = self.config
        return gae(
            rewards,
            values,
            terminations=terminations,
            masks=masks,
            discount=config.gamma,
            gae_lambda=config.gae_lambda,
        )

    def loss(self, batch: PPOBatch, evaluated: Evaluation) -> Losses:
        """Return the total loss of a minibatch and the figures that go with it."""
        policy_loss = self.policy_loss(batch, evaluated)
        value_loss = self.value_loss(batch, evaluated)
        entropy = self.entropy_bonus(batch, evaluated)
        total = policy_loss + self.config.value_coef * value_loss - self.config.entropy_coef * entropy
        log_prob = evaluated.log_prob
        return Losses(
            total=total,
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            approx_kl=losses.approximate_kl(log_prob, batch),
            clip_fraction=losses.clip_fraction(log_prob, batch, clip_param=self.clip_param),
        )

    def policy_loss(self, batch: PPOBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the loss of the policy, a scalar."""
        return losses.clipped_surrogate(evaluated.log_prob, batch, clip_param=self.clip_param)

    def value_loss(self, batch: PPOBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the loss of the value function, a scalar, before `value_coef`."""
        return losses.clipped_value_loss(evaluated.values, batch, value_clip=self.config.value_clip)

    def entropy_bonus(self, batch: PPOBatch, evaluated: Evaluation) -> torch.Tensor:
        """Return the mean entropy, a scalar, before `entropy_coef`."""
        return losses.entropy_bonus(evaluated.entropy, batch)

    def gradients(self, batch: PPOBatch, part: str = "policy") -> GradientOutput:
        """Return the gradient for a minibatch, in the buffer that the parameters' `.grad` are views of."""
        self._flat.gradients.zero_()
        if self._is_reference:
            figures = reference_gradients(self.policy, batch, loss=self.loss)
            return GradientOutput(self._flat.gradients, figures)
        config = self.config
        options = LossOptions(self.clip_param, config.value_clip, config.value_coef, config.entropy_coef)
        if self._packed is not None:
            figures = packed_gradients(self.policy, batch, network=self._packed, options=options)
        else:
            figures = fused_gradients(self.policy, batch, options=options)
        return GradientOutput(self._flat.gradients, figures)

    def apply(self, flat: FlatArray, part: str = "policy") -> torch.Tensor | float:
        """Clip the gradient, take a step of Adam, and return the norm that the gradient had.

        Raises:
            NonFiniteError: the gradient is not finite; nothing has moved. On a GPU nothing moves either, but the error
                waits for the end of the update, so that no step has to wait for the device.
        """
        if flat is not self._flat.gradients:
            self._flat.gradients.copy_(flat)
        norm = self._flat.clip_gradients(self.config.max_grad_norm)
        if isinstance(norm, float):
            self._check_norm(norm)
            self._adam.step(self.lr)
        else:
            self._broken = torch.maximum(self._broken, (~torch.isfinite(norm)).to(self._broken.dtype))
            self._adam.step(self.lr, skip=self._broken)
        return norm

    def publish(self) -> tuple[int, FlatArray]:
        """Return the number of updates and a copy of the trainable parameters."""
        return self._updates, self._flat.values.clone()

    def policy_state(self) -> StateDict:
        """Return what another run can start from: the policy without optimiser and generators."""
        return {"policy": named_arrays(self.policy)}

    def load_policy_state(self, state: StateDict) -> None:
        """Take over the policy of `policy_state` or `state_dict`, and nothing else.

        Raises:
            CheckpointError: its tensors are not those of this policy.
        """
        load_named(self.policy, state["policy"], where=f"agents.{self.name}/policy")
        self._frozen = None

    def state_dict(self) -> StateDict:
        """Return everything that the next update depends on, as plain data that later updates do not touch."""
        state = PPOState(
            policy=named_arrays(self.policy),
            optimiser=self._adam.state()._asdict(),
            updates=self._updates,
            generators={
                "actions": generator_state(self._action_rng),
                "shuffle": generator_state(self._shuffle_rng),
            },
        )
        return state._asdict()

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: a part is missing or surplus, or is not of this agent; do not use the agent then.
        """
        where = f"agents.{self.name}"
        _check_parts(state, PPOState._fields, where=where)
        loaded = PPOState(**state)
        _check_parts(loaded.optimiser, AdamState._fields, where=f"{where}/optimiser")
        _check_parts(loaded.generators, ("actions", "shuffle"), where=f"{where}/generators")
        self.load_policy_state(state)
        self._adam.load_state(AdamState(**loaded.optimiser), where=f"{where}/optimiser")
        self._updates = int(loaded.updates)
        set_generator_state(self._action_rng, loaded.generators["actions"])
        set_generator_state(self._shuffle_rng, loaded.generators["shuffle"])

    def _choose_path(self) -> None:
        """Choose the learner path by rule: nothing measured decides it."""
        network = self.policy.network
        overridden = [method for method in LOSS_METHODS if _is_overridden(self, method)]
        self._is_reference = bool(overridden)
        self._packed: PackedMLP | None = None
        if overridden:
            self.path = f"reference: {type(self).__name__} overrides {', '.join(overridden)}"
        elif isinstance(network, ActorCriticMLP) and PackedMLP.can_pack(network):
            self._packed = PackedMLP(network)
            self.path = "packed: a standard network on the CPU, closed-form gradients in numpy"
        else:
            self.path = "fused: closed-form gradient of the loss, autograd through the network only"

    def _learn(self, rollout: Rollout) -> tuple[list[torch.Tensor], list[torch.Tensor | float]]:
        config = self.config
        figures: list[torch.Tensor] = []
        norms: list[torch.Tensor | float] = []
        for _ in range(config.update_epochs):
            batches = minibatches(
                rollout, self._shuffle_rng, size=config.minibatch_size, normalize=config.normalize_advantage
            )
            for batch in batches:
                with self._step_block:
                    output = self.gradients(batch, "policy")
                    figures.append(output.losses)
                    # Reading the KL waits for a GPU, so only where somebody has asked for it.
                    if config.target_kl is not None and float(output.losses[_KL]) > config.target_kl:
                        return figures, norms
                    norms.append(self.apply(output.flat, "policy"))
        return figures, norms

    def _follow_schedules(self, frame: int) -> None:
        config = self.config
        self.lr = linear(config.lr, config.lr_final, horizon=config.lr_horizon, frame=frame)
        self.clip_param = linear(
            config.clip_param, config.clip_param_final, horizon=config.clip_param_horizon, frame=frame
        )
        if self.lr == 0.0 and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "/agents/%s/lr_horizon: the learning rate is 0 from frame %d on and nothing is learnt any more",
                self.name,
                config.lr_horizon,
            )

    def _report(self, rollout: Rollout, *, figures: list[torch.Tensor], norms: list[torch.Tensor | float]) -> None:
        means = torch.stack(figures).mean(0).tolist()
        norm = sum(float(norm) for norm in norms) / max(len(norms), 1)
        self._check_norm(norm)
        report = dict(zip(FIGURES, means, strict=True))
        report["explained_variance"] = explained_variance(rollout.values, rollout.returns, rollout.weights)
        report["lr"] = self.lr
        report["grad_norm"] = norm
        for figure, value in report.items():
            self._monitor(f"update/{self.name}/{figure}", value)

    def _check_norm(self, norm: float) -> None:
        if not math.isfinite(norm):
            raise NonFiniteError(
                f"agents/{self.name}: expected a finite gradient, found norm {norm} in update {self._updates}; "
                f"nothing was changed by it; a smaller /agents/{self.name}/lr may help"
            )


def _own(arrays: Mapping[str, Array], key: str, *, prefix: str) -> Array:
    """Return the agent's own array where there are several agents, else the one of all."""
    own = arrays.get(f"{prefix}/{key}")
    return arrays[f"/{key}"] if own is None else own


def _check_parts(state: Mapping[str, Any], expected: Sequence[str], *, where: str) -> None:
    if set(state) != set(expected):
        raise CheckpointError(f"{where}: expected the parts {sorted(expected)}, found {sorted(state)}")


def _is_overridden(agent: PPOAgent, method: str) -> bool:
    return method in vars(agent) or getattr(type(agent), method) is not getattr(PPOAgent, method)
