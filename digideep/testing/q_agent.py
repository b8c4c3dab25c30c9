"""A small Q-learner with every kind of state that an off-policy method can have, for trying what saves it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from digideep.agent.base import Agent, FlatArray, GradientOutput
from digideep.agent.crash import CrashBatch, Origin, carry, crash_of
from digideep.agent.modules import load_named, named_arrays
from digideep.agent.policy import build_policy
from digideep.agent.replay.targets import n_step_returns
from digideep.agent.rollout.policy import FrozenPolicy
from digideep.agent.schedules import linear
from digideep.errors import NonFiniteError, SpaceError
from digideep.model.flat import AdamState, FlatAdam, FlatParameters
from digideep.model.observations import as_tensor
from digideep.spec import ArraySpec, EnvSpec
from digideep.testing.q_config import QConfig
from digideep.testing.q_exploration import Exploration
from digideep.testing.q_losses import FIGURES, QBatch, action_values, huber_loss
from digideep.types import ActorOutput, Batch, Counters, SampleSpec, StateDict, Store
from digideep.utility.differences import check_parts
from digideep.utility.imports import BUILT_IN
from digideep.utility.seeding import derive, generator, generator_state, set_generator_state
from digideep.utility.statistics import Normalizer

__all__ = ["QActor", "QAgent", "QState"]

Array: TypeAlias = np.ndarray[Any, Any]


class QState(NamedTuple):
    """Everything that the next step depends on; each counter counts what its own schedule runs over."""

    policy: dict[str, Array]
    target: dict[str, Array]
    optimiser: dict[str, Any]
    updates: int
    lr_steps: int
    steps_since_copy: int
    exploration: dict[str, Any]
    replay: dict[str, Any]


class QActor:
    """Acts by the values of a frozen network; what it tries, and counts of that, belongs to the agent.

    Args:
        frozen: the weights.
        normalizer: applied to every observation.
        exploration: of the agent; asked only where `act` gets no generators and is not deterministic.
        slot: of the action.
        name: of the agent, for errors.
        policy_version: of the weights.
    """

    artifacts: Mapping[str, ArraySpec] = {"values": ArraySpec(kind="box", shape=(), dtype="float32")}

    def __init__(
        self,
        frozen: FrozenPolicy,
        *,
        normalizer: Normalizer,
        exploration: Exploration,
        slot: str,
        name: str,
        policy_version: int,
    ) -> None:
        self._frozen = frozen
        self._normalizer = normalizer
        self._exploration = exploration
        self._slot = slot
        self._name = name
        self.policy_version = policy_version
        self.statistics_version = normalizer.version

    def initial_state(self, num_envs: int) -> None:
        """Return None: the policy has no hidden state."""
        return

    def act(
        self,
        observations: Mapping[str, Array],
        hidden_state: Mapping[str, Array] | None = None,
        masks: Array | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        """Return raw actions for raw observations `[N, ...]`, and the greatest action value as `values`.

        Raises:
            NonFiniteError: the network gave NaN or infinity.
        """
        rowwise = deterministic or generators is not None
        prediction = self._frozen.predict(self._normalizer.observations(observations), rowwise=rowwise)
        values = action_values(prediction.outputs, prediction.values)
        if not np.isfinite(values.sum()):
            raise NonFiniteError(
                f"agents/{self._name}: expected finite action values, found others; the weights have diverged or an "
                f"observation is out of range"
            )
        if deterministic:
            actions = values.argmax(axis=1)
        elif generators is not None:
            actions = self._exploration.choose_apart(values, generators)
        else:
            actions = self._exploration.choose(values, masks)
        return ActorOutput({self._slot: actions}, {"values": values.max(axis=1)})


class QAgent(Agent):
    """Q-learning with a target network, n-step targets and a replay memory (Mnih et al. 2015, Nature 518).

    Args: as every agent; see docs/implement_a_method.md.
    """

    parts = ("policy",)
    loss_names = FIGURES
    path = "reference: autograd through the loss"

    def __init__(
        self,
        config: QConfig,
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
        self._slot = _only_slot(spec)
        self._memory = memory
        self._monitor = monitor
        self._device = torch.device(device)
        self.policy = build_policy(
            config.model,
            spec,
            seed=derive(seed, "agents", name, "weights"),
            where=f"/agents/{name}/model",
            device=device,
            allowed=allowed,
        )
        self.target = copy.deepcopy(self.policy).requires_grad_(False)
        self._flat = FlatParameters(self.policy)
        self._adam = FlatAdam(self._flat, eps=config.adam_eps)
        self._exploration = Exploration(config, rng=generator(seed, "agents", name, "exploration"))
        self._replay_rng = generator(seed, "agents", name, "replay")
        self._updates = self._lr_steps = self._steps_since_copy = 0
        self._frozen: FrozenPolicy | None = None
        self._windows: Batch | None = None  # not part of the state: every step fills it anew

    @property
    def lr(self) -> float:
        """Return the learning rate of the next gradient step."""
        config = self.config
        return linear(config.lr, config.lr_final, horizon=config.lr_horizon, frame=self._lr_steps)

    def actor(self, normalizer: Normalizer) -> QActor:
        """Return the policy of now; actors between two updates share one copy of the weights."""
        if self._frozen is None:
            self._frozen = FrozenPolicy(self.policy)
        return QActor(
            self._frozen,
            normalizer=normalizer,
            exploration=self._exploration,
            slot=self._slot,
            name=self.name,
            policy_version=self._updates,
        )

    def update(self, normalizer: Normalizer, counters: Counters) -> None:
        """Take `n_updates` gradient steps on windows of the memory, once the warm-up is over."""
        report = {"epsilon": self._exploration.epsilon, "lr": self.lr}
        if self._exploration.is_warm:
            self._flat.check()
            # What overflows is told as a loss or a gradient that is not finite.
            with np.errstate(over="ignore", invalid="ignore"):
                steps = [self._step(normalizer) for _ in range(self.config.n_updates)]
            report |= dict(zip((*FIGURES, "grad_norm"), np.mean(steps, axis=0).tolist(), strict=True))
            self._updates += 1
            self._frozen = None
        for figure, value in report.items():
            self._monitor(f"update/{self.name}/{figure}", value)

    def make_batch(self, normalizer: Normalizer) -> QBatch:
        """Return windows drawn from the memory, with targets by the target network."""
        config = self.config
        spec = SampleSpec(config.batch_size, n_step=config.n_step)
        self._windows = drawn = self._memory.sample(spec, self._replay_rng, out=self._windows)
        returns = n_step_returns(
            normalizer.rewards(drawn["/rewards"]),
            drawn["/terminations"],
            drawn["/weights"],
            n_step=config.n_step,
            discount=config.gamma,
        )
        rows = np.arange(config.batch_size)
        with torch.no_grad():
            following = action_values(
                *self.target(self._observations(drawn, rows, returns.last, normalizer=normalizer))
            )
        best = following.max(dim=1).values.cpu().numpy()
        actions = drawn[f"/agents/{self.name}/actions{'/' if self._slot else ''}{self._slot}"][:, 0]
        return QBatch(
            observations=self._observations(drawn, rows, np.zeros_like(rows), normalizer=normalizer),
            actions=as_tensor(actions, self._device),
            targets=as_tensor(returns.rewards + returns.discounts * best, self._device),
        )

    def batch_of(self, arrays: Mapping[str, Array]) -> QBatch:
        """Return the batch in the arrays of a `CrashBatch`, for `gradients`."""
        observations = {slot: arrays[f"/batch/observations/{slot}"] for slot in self.spec.observations}
        return QBatch(
            observations={slot: as_tensor(array, self._device) for slot, array in observations.items()},
            actions=as_tensor(arrays["/batch/actions"], self._device),
            targets=as_tensor(arrays["/batch/targets"], self._device),
        )

    def gradients(self, batch: QBatch, part: str = "policy") -> GradientOutput:
        """Return the gradient for a batch, in the buffer that the parameters' `.grad` are views of."""
        self._flat.gradients.zero_()
        values = action_values(*self.policy(batch.observations))
        loss = huber_loss(values, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        figures = torch.stack((loss.detach(), values.detach().max(dim=1).values.mean()))
        return GradientOutput(self._flat.gradients, figures)

    def apply(self, flat: FlatArray, part: str = "policy") -> float:
        """Clip the gradient, take a step of Adam, and return the norm that the gradient had.

        Raises:
            NonFiniteError: the gradient is not finite; nothing has moved.
        """
        if flat is not self._flat.gradients:
            self._flat.gradients.copy_(flat)
        norm = float(self._flat.clip_gradients(self.config.max_grad_norm))
        if not math.isfinite(norm):
            raise NonFiniteError(self._refusal(f"gradient, found norm {norm}"))
        self._adam.step(self.lr)
        self._lr_steps += 1
        self._steps_since_copy += 1
        if self._steps_since_copy >= self.config.target_interval:
            self._steps_since_copy = 0
            load_named(self.target, named_arrays(self.policy), where=f"agents.{self.name}/target")
        return norm

    def publish(self) -> tuple[int, FlatArray]:
        """Return the number of updates and a copy of the trainable parameters."""
        return self._updates, self._flat.values.clone()

    def policy_state(self) -> StateDict:
        """Return what another run can start from: the policy alone."""
        return {"policy": named_arrays(self.policy)}

    def load_policy_state(self, state: StateDict) -> None:
        """Take over the policy of `policy_state` or `state_dict`, for the target network too.

        Raises:
            CheckpointError: its tensors are not those of this policy.
        """
        for network, where in ((self.policy, "policy"), (self.target, "target")):
            load_named(network, state["policy"], where=f"agents.{self.name}/{where}")
        self._frozen = None

    def state_dict(self) -> StateDict:
        """Return everything that the next step depends on, as plain data that later steps do not touch."""
        state = QState(
            policy=named_arrays(self.policy, lends=self.lends),
            target=named_arrays(self.target, lends=self.lends),
            optimiser=self._adam.state(lends=self.lends)._asdict(),
            updates=self._updates,
            lr_steps=self._lr_steps,
            steps_since_copy=self._steps_since_copy,
            exploration=self._exploration.state_dict(),
            replay=generator_state(self._replay_rng),
        )
        return state._asdict()

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: a part is missing or surplus, or is not of this agent; do not use the agent then.
        """
        where = f"agents.{self.name}"
        check_parts(state, QState._fields, where=where)
        loaded = QState(**state)
        check_parts(loaded.optimiser, AdamState._fields, where=f"{where}/optimiser")
        check_parts(loaded.exploration, ("rows", "noise", "generator"), where=f"{where}/exploration")
        self.load_policy_state(state)
        load_named(self.target, loaded.target, where=f"{where}/target")
        self._adam.load_state(AdamState(**loaded.optimiser), where=f"{where}/optimiser")
        self._updates, self._lr_steps = int(loaded.updates), int(loaded.lr_steps)
        self._steps_since_copy = int(loaded.steps_since_copy)
        self._exploration.load_state_dict(loaded.exploration)
        set_generator_state(self._replay_rng, loaded.replay)

    def _step(self, normalizer: Normalizer) -> list[float]:
        batch = self.make_batch(normalizer)
        output = self.gradients(batch, "policy")
        figures = output.losses.tolist()
        if not math.isfinite(sum(figures)):
            found = ", ".join(f"{name} {value}" for name, value in zip(FIGURES, figures, strict=True))
            raise carry(NonFiniteError(self._refusal(f"loss, found {found}")), self._kept(batch, figures))
        try:
            return [*figures, self.apply(output.flat, "policy")]
        except NonFiniteError as error:
            raise carry(error, self._kept(batch, figures)) from None

    def _observations(
        self, drawn: Batch, rows: Array, steps: Array, *, normalizer: Normalizer
    ) -> dict[str, torch.Tensor]:
        raw = {slot: drawn[f"/observations/{slot}"][rows, steps] for slot in self.spec.observations}
        return {slot: as_tensor(array, self._device) for slot, array in normalizer.observations(raw).items()}

    def _kept(self, batch: QBatch, figures: Sequence[float]) -> CrashBatch:
        tensors = {f"observations/{slot}": value for slot, value in batch.observations.items()}
        tensors |= {"actions": batch.actions, "targets": batch.targets}
        return crash_of(
            {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()},
            dict(zip(FIGURES, figures, strict=True)),
            weights=named_arrays(self.policy),
            origin=Origin(self.name, self.config, self.spec, self._updates),
        )

    def _refusal(self, found: str) -> str:
        return (
            f"agents/{self.name}: expected a finite {found} in update {self._updates}; nothing was changed by it; "
            f"a smaller /agents/{self.name}/lr may help"
        )


def _only_slot(spec: EnvSpec) -> str:
    if len(spec.actions) == 1:
        ((slot, action),) = spec.actions.items()
        if action.kind == "discrete":
            return slot
    kinds = ", ".join(f"{slot!r} {action.kind}" for slot, action in spec.actions.items())
    raise SpaceError(f"action space: expected one discrete action, found {kinds or 'none'}; use another method")
