"""What methods share that learn from a replay memory: when they learn, their optimisers, targets and state."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from digideep.agent.base import Agent, FlatArray, GradientOutput
from digideep.agent.crash import CrashBatch, Origin, carry, crash_of
from digideep.agent.devicetimer import device_block
from digideep.agent.modules import load_named, named_arrays
from digideep.agent.replay.config import ReplayConfig
from digideep.agent.replay.exploration import Exploration
from digideep.agent.replay.noise import Noise
from digideep.agent.replay.parts import Part
from digideep.agent.replay.targets import polyak
from digideep.agent.replay.transitions import Replay, Transitions
from digideep.agent.schedules import linear
from digideep.errors import NonFiniteError, UsageError
from digideep.model.flat import FlatParameters
from digideep.model.observations import as_tensor
from digideep.spec import EnvSpec
from digideep.types import Counters, StateDict, Store, Training
from digideep.utility.differences import check_parts
from digideep.utility.products import ProductThreads, SpreadWhileItPays
from digideep.utility.seeding import generator, generator_state, set_generator_state
from digideep.utility.statistics import Normalizer

__all__ = ["Networks", "ReplayAgent", "ReplayState"]

logger = logging.getLogger(__name__)

Array: TypeAlias = np.ndarray[Any, Any]


class Networks(NamedTuple):
    """What an agent learns and what follows it.

    `policy` is all that learns, as one module; `parts` its modules by optimiser, in the order of their steps;
    `targets` copies of some of them, by part, which follow slowly. A target is in evaluation mode, and its buffers, a
    running mean say, are those of its part whenever it moves.
    """

    policy: nn.Module
    parts: Mapping[str, nn.Module]
    targets: Mapping[str, nn.Module]


class ReplayState(NamedTuple):
    """Everything that the next step depends on, but for the memory, which is a component of its own."""

    policy: dict[str, Array]
    targets: dict[str, dict[str, Array]]
    optimisers: dict[str, dict[str, Any]]
    updates: int
    steps: int
    exploration: dict[str, Any]
    generators: dict[str, Any]


class ReplayAgent(Agent):
    """A method that takes `n_updates` gradient steps on old transitions after each chunk, once it is warm.

    A subclass builds its networks, says what a batch is and gives the gradient of each part.

    Args:
        config: the hyperparameters.
        networks: what learns; parameters become views of flat buffers, one a part.
        name: of the agent, as in the parameters.
        spec: the environment's spaces.
        memory: what it learns from.
        device: where the networks live.
        seed: of the run; what is drawn, noise and actions have streams of their own.
        monitor: takes `update/<name>/...` once per update.
        noise: added to actions after the warm-up.

    Attributes:
        figure_names: names of the figures that come with the gradient of each part.
        batch_type: the NamedTuple that `make_batch` returns; its first field is `observations`, by slot.
    """

    figure_names: ClassVar[Mapping[str, tuple[str, ...]]]
    batch_type: ClassVar[type[Any]]

    def __init__(
        self,
        config: ReplayConfig,
        networks: Networks,
        *,
        name: str,
        spec: EnvSpec,
        memory: Store,
        device: torch.device,
        seed: int,
        monitor: Callable[[str, float], None],
        noise: Noise | None = None,
    ) -> None:
        self.config = config
        self.name = name
        self.spec = spec
        self.policy = networks.policy
        self.device = device
        self._monitor = monitor
        self._parts = {
            part: Part(module, eps=config.adam_eps, max_grad_norm=config.max_grad_norm)
            for part, module in networks.parts.items()
        }
        self.parts = tuple(self._parts)
        self.loss_names = self.figure_names[self.parts[0]]
        self.targets = {part: module.eval() for part, module in networks.targets.items()}
        self._target_values = {part: FlatParameters(module).values for part, module in self.targets.items()}
        self._followed = {part: networks.parts[part] for part in self.targets}
        self._buffers = {part: _buffer_names(module) for part, module in self.targets.items()}
        self.exploration = Exploration(
            warm_up=config.warm_up, rng=generator(seed, "agents", name, "actions"), noise=noise
        )
        self._replay_rng = generator(seed, "agents", name, "replay")
        self.noise_rng = generator(seed, "agents", name, "noise")
        self.replay = Replay(
            memory,
            self._replay_rng,
            slots=tuple(spec.observations),
            actions=tuple(spec.actions),
            name=name,
            n_step=config.n_step,
            discount=config.gamma,
        )
        self._frame = 0  # not part of the state: each update is told it
        self.updates = self.steps = 0
        self._products = SpreadWhileItPays(ProductThreads(1))
        self._step_block = device_block("step", device)
        self._has_told = False
        self._idle_updates = 0  # at a learning rate of 0, up to the warning; each process may say it once

    def spread_products(self, threads: ProductThreads) -> None:
        """Have the products of an update take several threads while that pays; no bit may depend on their number."""
        self._products = SpreadWhileItPays(threads)

    def figures_of(self, part: str) -> tuple[str, ...]:
        """Return the names of the figures that come with the gradient of a part."""
        return self.figure_names[part]

    @abstractmethod
    def make_batch(self, transitions: Transitions) -> Any:
        """Return what the gradients of all parts are made from: a `batch_type` of arrays, targets among them."""

    @abstractmethod
    def changed(self) -> None:
        """Take note that the networks are no longer what an actor was made from."""

    def due(self) -> Sequence[str]:
        """Return the parts that take a step now, in order."""
        return self.parts

    def follow(self) -> None:
        """Move the targets, after all parts have taken their step."""

    def polyak(self, share: float) -> None:
        """Move every target by a share of its distance from its part, whose buffers it gets."""
        for part, target in self._target_values.items():
            polyak(target, self._parts[part].values, share=share)
            for name in self._buffers[part]:
                self.targets[part].get_buffer(name).copy_(self._followed[part].get_buffer(name))

    def figures(self) -> dict[str, float]:
        """Return further figures of now for the monitor."""
        return {}

    def lr(self, part: str) -> float:
        """Return the learning rate of a part's next step."""
        return self._scheduled(self.config.lr, self.config.lr_final, self.config.lr_horizon)

    def join(self, training: Training) -> None:
        """Refuse a training in which nothing could be learnt, and warn of one that ends before the warm-up.

        Raises:
            ConfigError: actions are deterministic, or the memory is too small for `n_step`.
        """
        super().join(training)
        self.replay.check_room(num_envs=training.num_envs)
        if 0 < training.frames < self.config.warm_up:
            logger.warning(
                "/agents/%s/warm_up: expected fewer rows than the training has frames (%d), found %d: little or "
                "nothing is learnt; lower it, or raise the goal",
                self.name, training.frames, self.config.warm_up,
            )  # fmt: skip

    def update(self, normalizer: Normalizer, counters: Counters) -> None:
        """Take `n_updates` gradient steps, once the warm-up is over.

        None is taken where the memory holds no real transition: a small one after a reset of all environments, and one
        that a resume began anew, until there is one.
        """
        self._frame = counters.env_steps
        report = {"lr": self.lr(self.parts[-1]), **self.figures()}
        learns = self.exploration.is_warm and not self.replay.is_empty
        self._tell_what_is_learnt(learns=learns)
        if learns:
            for part in self._parts.values():
                part.flat.check()
            found: dict[str, list[float]] = defaultdict(list)
            # What overflows is told as a loss or a gradient that is not finite.
            with np.errstate(over="ignore", invalid="ignore"):
                for _ in range(self.config.n_updates):
                    with self._step_block, self._products:
                        self._step(normalizer, found)
            self.updates += 1
            self.changed()
            report |= {figure: sum(values) / len(values) for figure, values in found.items()}
        for figure, value in report.items():
            self._monitor(f"update/{self.name}/{figure}", value)

    def _tell_what_is_learnt(self, *, learns: bool) -> None:
        """Say once that nothing is learnt yet, and once that nothing is any more.

        The last chunk of a training may pass the horizon where it ends: only another update at a learning rate of 0
        says that it goes on beyond.
        """
        if not self.exploration.is_warm and not self._has_told:
            self._has_told = True
            logger.info(
                "/agents/%s/warm_up: the first %d rows are acted at random, and nothing is learnt before they are over",
                self.name, self.config.warm_up,
            )  # fmt: skip
        if learns and self._idle_updates < 2 and not any(self.lr(part) for part in self.parts):
            self._idle_updates += 1
            if self._idle_updates < 2:
                return
            logger.warning(
                "/agents/%s/lr_horizon: the learning rate is 0 from frame %d on and nothing is learnt any more",
                self.name, self.config.lr_horizon,
            )  # fmt: skip

    def apply(self, flat: FlatArray, part: str) -> float:
        """Clip the gradient of a part, take a step of Adam, and return the norm that the gradient had.

        Raises:
            NonFiniteError: the gradient, or a square in it, is not finite; nothing has moved.
        """
        return self._parts[part].apply(flat, lr=self.lr(part), refusal=self._refusal(part))

    def output(self, part: str, figures: Any, priorities: Array | None = None) -> GradientOutput:
        """Return the gradient that stands in a part's buffer, with figures and new priorities `[B]`."""
        return GradientOutput(self._parts[part].gradients, np.asarray(figures, np.float64), priorities)

    def publish(self) -> tuple[int, FlatArray]:
        """Return the number of updates and a copy of the parameters of all parts, one after another."""
        return self.updates, torch.cat([part.values for part in self._parts.values()])

    def policy_state(self) -> StateDict:
        """Return what another run can start from: every network that learns, without targets and optimisers."""
        return {"policy": named_arrays(self.policy)}

    def load_policy_state(self, state: StateDict) -> None:
        """Take over the networks of `policy_state` or `state_dict`; targets become copies of them.

        Raises:
            CheckpointError: its tensors are not those of these networks.
        """
        load_named(self.policy, state["policy"], where=f"agents.{self.name}/policy")
        for part, target in self.targets.items():
            target.load_state_dict(self._followed[part].state_dict())
        self.changed()

    def state_dict(self) -> StateDict:
        """Return everything that the next step depends on, as plain data that later steps do not touch."""
        state = ReplayState(
            policy=named_arrays(self.policy, lends=self.lends),
            targets={part: named_arrays(module, lends=self.lends) for part, module in self.targets.items()},
            optimisers={name: part.state(lends=self.lends) for name, part in self._parts.items()},
            updates=self.updates,
            steps=self.steps,
            exploration=self.exploration.state_dict(),
            generators={"replay": generator_state(self._replay_rng), "noise": generator_state(self.noise_rng)},
        )
        return state._asdict()

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: a part is missing or surplus, or is not of this agent; do not use the agent then.
        """
        where = f"agents.{self.name}"
        check_parts(state, ReplayState._fields, where=where)
        loaded = ReplayState(**state)
        check_parts(loaded.targets, self.targets, where=f"{where}/targets")
        check_parts(loaded.optimisers, self._parts, where=f"{where}/optimisers")
        check_parts(loaded.generators, ("replay", "noise"), where=f"{where}/generators")
        self.load_policy_state(state)
        for part, module in self.targets.items():
            load_named(module, loaded.targets[part], where=f"{where}/targets/{part}")
        for name, part_ in self._parts.items():
            part_.load_state(loaded.optimisers[name], where=f"{where}/optimisers/{name}")
        self.updates, self.steps = int(loaded.updates), int(loaded.steps)
        self.exploration.load_state_dict(loaded.exploration, where=f"{where}/exploration")
        set_generator_state(self._replay_rng, loaded.generators["replay"])
        set_generator_state(self.noise_rng, loaded.generators["noise"])

    def batch_arrays(self, batch: Any) -> dict[str, Array]:
        """Return a batch as named arrays, slots below the name of their field."""
        found: dict[str, Array] = {}
        for field, value in batch._asdict().items():
            parts = {f"{field}/{slot}": part for slot, part in value.items()} if isinstance(value, Mapping) else None
            found |= {field: value} if parts is None else parts
        return {name: np.array(array) for name, array in found.items()}

    def batch_of(self, arrays: Mapping[str, Array]) -> Any:
        """Return the batch in the arrays of a `CrashBatch`, for `gradients`.

        Raises:
            UsageError: an array is missing.
        """
        _, *fields = self.batch_type._fields
        try:
            seen = {slot: np.array(arrays[f"/batch/observations/{slot}"]) for slot in self.spec.observations}
            return self.batch_type(seen, *(np.array(arrays[f"/batch/{field}"]) for field in fields))
        except KeyError as error:
            raise UsageError(f"crash batch: expected an array {error}, found none") from None

    def in_torch(self, batch: Any) -> Any:
        """Return a batch with tensors in place of arrays."""
        observations, *rest = batch
        seen = {slot: as_tensor(array, self.device) for slot, array in observations.items()}
        return self.batch_type(seen, *(as_tensor(array, self.device) for array in rest))

    def _step(self, normalizer: Normalizer, found: dict[str, list[float]]) -> None:
        config = self.config
        beta = self._scheduled(config.priority_beta, config.priority_beta_final, config.priority_horizon)
        transitions = self.replay.draw(config.batch_size, normalizer, beta=beta)
        batch = self.make_batch(transitions)
        for part in self.due():
            output = self.gradients(batch, part)
            figures = output.losses.tolist()
            names = self.figure_names[part]
            if not math.isfinite(sum(figures)):
                told = ", ".join(f"{name} {value}" for name, value in zip(names, figures, strict=True))
                error = NonFiniteError(self._refusal(part).format(found=f"loss, found {told}"))
                raise carry(error, self._kept(batch, part, figures))
            try:
                norm = self.apply(output.flat, part)
            except NonFiniteError as error:
                raise carry(error, self._kept(batch, part, figures)) from None
            for name, value in (*zip(names, figures, strict=True), (self._norm_name(part), norm)):
                found[name].append(value)
            if output.priorities is not None and transitions.is_prioritized:
                alpha = self._scheduled(config.priority_alpha, config.priority_alpha_final, config.priority_horizon)
                priorities = (np.abs(output.priorities) + config.priority_epsilon) ** alpha
                self.replay.update_priorities(transitions, priorities)
        self.follow()
        self.steps += 1

    def _norm_name(self, part: str) -> str:
        return "grad_norm" if part == self.parts[-1] or part == "policy" else f"{part}_grad_norm"

    def _scheduled(self, initial: float, final: float | None, horizon: int) -> float:
        return linear(initial, final, horizon=horizon, frame=self._frame)

    def _kept(self, batch: Any, part: str, figures: Sequence[float]) -> CrashBatch:
        return crash_of(
            self.batch_arrays(batch),
            dict(zip(self.figure_names[part], figures, strict=True)),
            weights=named_arrays(self.policy),
            origin=Origin(self.name, self.config, self.spec, self.updates),
            part=part,
        )

    def _refusal(self, part: str) -> str:
        return (
            f"agents/{self.name}: expected a finite {{found}} in the part {part!r} of update {self.updates}; nothing "
            f"was changed by it; a smaller /agents/{self.name}/lr may help"
        )


def _buffer_names(module: nn.Module) -> list[str]:
    """Return the names of a module's buffers, but for those that are no part of its state."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return [name for name in module.state_dict() if name not in parameters]
