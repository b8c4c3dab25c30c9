"""What agents that learn from the newest chunk have in common: acting, preparing, stepping, and their state."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeAlias

import numpy as np
import torch

from digideep.agent.base import Agent, FlatArray, GradientOutput
from digideep.agent.crash import CrashBatch, Origin, carry
from digideep.agent.devicetimer import device_block
from digideep.agent.modules import load_named, named_arrays
from digideep.agent.policy import build_policy
from digideep.agent.returns import explained_variance, gae
from digideep.agent.rollout.batches import Rollout, RolloutBatch, make_rollout, own_array
from digideep.agent.rollout.config import LOG_STD_BOUND, RolloutConfig
from digideep.agent.rollout.crash import bad_numbers, batch_of, crash_batch, first_bad
from digideep.agent.rollout.learner import (
    Derivatives,
    choose_path,
    fused_gradients,
    packed_gradients,
    reference_gradients,
)
from digideep.agent.rollout.policy import FrozenPolicy, LateRolloutActor, RolloutActor
from digideep.agent.schedules import linear
from digideep.errors import NonFiniteError
from digideep.model.distributions import Either
from digideep.model.flat import FlatOptimiser, FlatParameters
from digideep.model.heads import Evaluation
from digideep.spec import EnvSpec
from digideep.types import Chunk, Counters, StateDict, Store
from digideep.utility.differences import check_parts
from digideep.utility.imports import BUILT_IN
from digideep.utility.profiling import timer_block
from digideep.utility.seeding import derive, generator, generator_state, set_generator_state
from digideep.utility.statistics import Normalizer

__all__ = ["RolloutAgent", "RolloutState"]

logger = logging.getLogger(__name__)

Array: TypeAlias = np.ndarray[Any, Any]


class RolloutState(NamedTuple):
    """Everything that the next update depends on. Schedules are functions of the frame and have no state."""

    policy: dict[str, Array]
    optimiser: dict[str, Any]
    updates: int
    generators: dict[str, Any]


class RolloutAgent(Agent):
    """An actor-critic that learns from each chunk once; subclasses say by which loss, and in which minibatches.

    Args:
        config: the hyperparameters.
        name: of the agent, as in the parameters.
        spec: the environment's spaces.
        memory: holds the chunks it learns from.
        device: where the network lives.
        seed: of the run; weights and everything else that is drawn have streams of their own, derived from it and the
            name.
        monitor: takes `update/<name>/...` once per update.
        allowed: packages that the network's class may come from.
    """

    parts = ("policy",)
    draws: ClassVar[tuple[str, ...]] = ("actions",)
    """Names of its generators; their states are part of its own."""
    is_recurrent: ClassVar[bool] = False
    """Whether it keeps a hidden state for its network, which must have one then, and must have none else."""
    config: RolloutConfig

    def __init__(
        self,
        config: RolloutConfig,
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
            is_recurrent=self.is_recurrent,
        )
        self._flat = FlatParameters(self.policy)
        self._optimiser = self.make_optimiser()
        self._generators = {part: generator(seed, "agents", name, part) for part in self.draws}
        self._updates = 0
        self._frozen: FrozenPolicy | None = None
        self._waits = self._device.type == "cpu"  # for each loss and gradient, to look at it
        self._broken = torch.zeros((), device=self._device)  # 1 once a loss or gradient that nobody waited for was bad
        self._has_warned = False  # not part of the state: each process may say it once
        self._set_schedules(0)
        replaced = self.replaced_losses()
        self._path = choose_path(self.policy, device=self._device, replaced=replaced, owner=type(self).__name__)
        self.path = self._path.told
        self._prepare_block, self._step_block = timer_block("prepare"), device_block("step", self._device)

    @abstractmethod
    def loss(self, batch: RolloutBatch, evaluated: Evaluation) -> tuple[torch.Tensor, ...]:
        """Return the total loss of a minibatch, and after it the figures of `loss_names`."""

    @abstractmethod
    def derivatives(self, evaluated: Evaluation, batch: RolloutBatch) -> Derivatives:
        """Return the derivatives of the total loss by what the policy says, without autograd."""

    @abstractmethod
    def replaced_losses(self) -> list[str]:
        """Return the names of the losses that somebody has overridden, which only the reference path can do."""

    @abstractmethod
    def make_optimiser(self) -> FlatOptimiser:
        """Return the optimiser of the flat parameters."""

    @abstractmethod
    def minibatches(self, rollout: Rollout) -> Iterator[RolloutBatch]:
        """Yield what each gradient step of an update learns from."""

    def _is_over(self, figures: Either) -> bool:
        """Whether an update ends with the minibatch that gave these figures, before its step."""
        return False

    def _set_schedules(self, frame: int) -> None:
        """Set what changes over the frames of a run."""
        config = self.config
        self.lr = linear(config.lr, config.lr_final, horizon=config.lr_horizon, frame=frame)

    def _config_now(self) -> RolloutConfig:
        """Return the configuration with what the schedules gave in place of where they began."""
        return dataclasses.replace(self.config, lr=self.lr)

    @property
    def network_class(self) -> str:
        """Return `mlp`, `cnn` or `rnn` where the network's class says so, else `custom`."""
        return str(getattr(self.policy.network, "network_class", "custom"))

    def actor(self, normalizer: Normalizer) -> RolloutActor:
        """Return the policy of now; actors between two updates share one copy of the weights."""
        if self._frozen is None:
            self._frozen = FrozenPolicy(self.policy)
        kind = RolloutActor if self._frozen.outputs is None else LateRolloutActor
        return kind(
            self._frozen,
            normalizer=normalizer,
            rng=self._generators["actions"],
            name=self.name,
            policy_version=self._updates,
        )

    def update(self, normalizer: Normalizer, counters: Counters) -> None:
        """Learn from the newest chunk, which was sampled with `normalizer`."""
        with self._prepare_block:
            self._flat.check()
            chunk = self._memory.last_chunk()
            # Schedules stand where the chunk began: the first update uses the value of frame 0.
            self._follow_schedules(counters.env_steps - chunk.meta.env_steps)
            rollout = self.prepare(chunk, normalizer)
        if self._path.packed is None:
            self.policy.train()
        # What overflows is told as a loss or a gradient that is not finite.
        before = self._generator_states() if not self._waits else {}
        with np.errstate(over="ignore", invalid="ignore"):
            figures, norms = self._learn(rollout)
        if self._path.packed is None:
            self.policy.eval()
        if not self._waits and bool(self._broken):
            self._refuse_later(rollout, figures=figures, norms=norms, generators=before)
        self._updates += 1
        self._frozen = None
        self._report(rollout, figures=figures, norms=norms)

    def prepare(self, chunk: Chunk, normalizer: Normalizer) -> Rollout:
        """Return the rows of a chunk, normalised, with advantages and returns."""
        arrays, prefix = chunk.arrays, f"/agents/{self.name}"
        observations = {slot: arrays[f"/observations/{slot}"] for slot in self.spec.observations}
        values = np.array(arrays[f"{prefix}/artifacts/values"])
        # Nobody has acted on the newest observation yet: its value is missing in the chunk.
        values[:, -1] = self._newest_values(arrays, normalizer)
        masks = own_array(arrays, "masks", prefix=prefix)
        advantages = self.advantages(
            normalizer.rewards(own_array(arrays, "rewards", prefix=prefix)[:, :-1]),
            values,
            terminations=own_array(arrays, "terminations", prefix=prefix)[:, :-1],
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
            device=self._path.device,
            channels_last=bool(getattr(self.policy.network, "wants_channels_last", False)),
        )

    def _newest_values(self, arrays: Mapping[str, Array], normalizer: Normalizer) -> Array:
        """Return the values `[N]` of the newest observations of a chunk."""
        newest = {slot: arrays[f"/observations/{slot}"][:, -1] for slot in self.spec.observations}
        return self.actor(normalizer).predict(newest, rowwise=False).values

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

    def gradients(self, batch: RolloutBatch, part: str = "policy") -> GradientOutput:
        """Return the gradient for a minibatch, in the buffer that the parameters' `.grad` are views of."""
        gradients = self._flat.gradients
        if self._path.packed is not None:
            figures = packed_gradients(self.policy, batch, network=self._path.packed, derive=self.derivatives)
            return GradientOutput(gradients, figures)
        gradients.zero_()
        if self._path.is_reference:
            return GradientOutput(gradients, reference_gradients(self.policy, batch, loss=self.loss))
        return GradientOutput(gradients, fused_gradients(self.policy, batch, derive=self.derivatives))

    def apply(self, flat: FlatArray, part: str = "policy") -> torch.Tensor | float:
        """Clip the gradient, take a step of the optimiser, and return the norm that the gradient had.

        Raises:
            NonFiniteError: the gradient, or a square in it, is not finite; nothing has moved. On a GPU nothing moves
                either, but the error waits for the end of the update, so that no step has to wait for the device.
        """
        if flat is not self._flat.gradients:
            self._flat.gradients.copy_(flat)
        norm = self._flat.clip_gradients(self.config.max_grad_norm)
        if isinstance(norm, float):
            if found := self._flat.problem(norm):
                raise NonFiniteError(self._refusal(found))
            self._optimiser.step(self.lr)
        else:
            self._broken = torch.maximum(self._broken, (~torch.isfinite(norm)).to(self._broken.dtype))
            self._optimiser.step(self.lr, skip=self._broken)
        if self.policy.log_std is not None:
            self.policy.log_std.data.clamp_(-LOG_STD_BOUND, LOG_STD_BOUND)
        return norm

    def batch_of(self, arrays: Mapping[str, Array]) -> RolloutBatch:
        """Return the minibatch in the arrays of a `CrashBatch`, for `gradients`."""
        return batch_of(arrays, spec=self.spec, device=self._path.device)

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
        state = RolloutState(
            policy=named_arrays(self.policy, lends=self.lends),
            optimiser=self._optimiser.state(lends=self.lends)._asdict(),
            updates=self._updates,
            generators=self._generator_states(),
        )
        return state._asdict()

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: a part is missing or surplus, or is not of this agent; do not use the agent then.
        """
        where = f"agents.{self.name}"
        check_parts(state, RolloutState._fields, where=where)
        loaded = RolloutState(**state)
        kind = self._optimiser.state_type
        check_parts(loaded.optimiser, kind._fields, where=f"{where}/optimiser")
        check_parts(loaded.generators, self.draws, where=f"{where}/generators")
        self.load_policy_state(state)
        self._optimiser.load_state(kind(**loaded.optimiser), where=f"{where}/optimiser")
        self._updates = int(loaded.updates)
        self._set_generators(loaded.generators)

    def _generator_states(self) -> StateDict:
        return {name: generator_state(rng) for name, rng in self._generators.items()}

    def _set_generators(self, states: StateDict) -> None:
        for name, rng in self._generators.items():
            set_generator_state(rng, states[name])

    def _learn(self, rollout: Rollout) -> tuple[list[Either], list[torch.Tensor | float]]:
        figures: list[Either] = []
        norms: list[torch.Tensor | float] = []
        for batch in self.minibatches(rollout):
            with self._step_block:
                output = self.gradients(batch, "policy")
                self._check_losses(output.losses, batch)
                figures.append(output.losses)
                if self._is_over(output.losses):
                    return figures, norms
                try:
                    norms.append(self.apply(output.flat, "policy"))
                except NonFiniteError as error:
                    raise carry(error, self._kept(batch, output.losses)) from None
        return figures, norms

    def _check_losses(self, figures: Either, batch: RolloutBatch) -> None:
        """Refuse losses that are not finite before they move anything; on a GPU nobody waits to know."""
        if not self._waits:
            self._broken = torch.maximum(self._broken, (~torch.isfinite(figures).all()).to(self._broken.dtype))
            return
        if bad := bad_numbers(figures, names=self.loss_names):
            raise carry(NonFiniteError(self._refusal(f"loss, found {bad}")), self._kept(batch, figures))

    def _refuse_later(
        self, rollout: Rollout, *, figures: list[Either], norms: list[torch.Tensor | float], generators: StateDict
    ) -> NoReturn:
        """Refuse an update in which nothing has moved since its first bad step, whose minibatch is made again."""
        step, bad = first_bad(figures, norms, names=self.loss_names)
        self._set_generators(generators)
        batch = next(itertools.islice(self.minibatches(rollout), step, None))
        raise carry(NonFiniteError(self._refusal(f"loss, found {bad}")), self._kept(batch, figures[step]))

    def _kept(self, batch: RolloutBatch, figures: Either) -> CrashBatch:
        origin = Origin(self.name, self._config_now(), self.spec, self._updates)
        return crash_batch(batch, figures, policy=self.policy, origin=origin, names=self.loss_names)

    def _follow_schedules(self, frame: int) -> None:
        self._set_schedules(frame)
        if self.lr == 0.0 and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "/agents/%s/lr_horizon: the learning rate is 0 from frame %d on and nothing is learnt any more",
                self.name,
                self.config.lr_horizon,
            )

    def _report(self, rollout: Rollout, *, figures: list[Either], norms: list[torch.Tensor | float]) -> None:
        rows = [figure.tolist() for figure in figures] if self._waits else torch.stack(figures).tolist()
        means = np.mean(rows, axis=0).tolist()
        norm = sum(float(norm) for norm in norms) / max(len(norms), 1)
        report = dict(zip(self.loss_names, means, strict=True))
        report["explained_variance"] = explained_variance(rollout.values, rollout.returns, rollout.weights)
        report["lr"] = self.lr
        report["grad_norm"] = norm
        for figure, value in report.items():
            self._monitor(f"update/{self.name}/{figure}", value)

    def _refusal(self, found: str) -> str:
        return (
            f"agents/{self.name}: expected a finite {found} in update {self._updates}; nothing was changed by it; "
            f"a smaller /agents/{self.name}/lr may help, and normalize_rewards where rewards are large"
        )
