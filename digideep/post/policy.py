"""A policy from a checkpoint: the wrapped environment's observation in, an action in that environment's units out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, get_args

import numpy as np

from digideep.environment.wrappers.action import Transform, spec_for_agent, to_environment
from digideep.errors import CheckpointError, ShapeError, UsageError, one_line
from digideep.pipeline.checkpoint import Checkpoint
from digideep.spec import ArraySpec, EnvSpec, spec_from_plain
from digideep.types import Actor, Batch, Chunk, SampleSpec
from digideep.utility.imports import resolve
from digideep.utility.monitoring import Monitor
from digideep.utility.node import TYPE, Config, build, configure
from digideep.utility.tree import get

__all__ = ["LoadedPolicy", "NoMemory", "load_policy"]

logger = logging.getLogger(__name__)

_WAY_OUT = "give what the session's environment shows inside its wrappers; the reader's make_env() makes it"

Array: TypeAlias = np.ndarray[Any, Any]
HiddenState: TypeAlias = Mapping[str, Array]


class LoadedPolicy:
    """A policy with the normaliser of its checkpoint inside.

    Args:
        actor: what acts.
        spec: of the environment it was trained in.
        transform: of box actions, at the environment's door.
        checkpoint: name of the checkpoint.
        critic_only: slots that no action depends on; one that an observation lacks is taken for zeros.
    """

    def __init__(
        self, actor: Actor, *, spec: EnvSpec, transform: Transform, checkpoint: str, critic_only: Iterable[str] = ()
    ) -> None:
        self.spec = spec
        self.checkpoint = checkpoint
        self.critic_only = frozenset(critic_only)
        self.is_recurrent = actor.initial_state(1) is not None
        self._actor = actor
        self._transform = transform

    def act(self, observation: Any, state: HiddenState | None = None, deterministic: bool = True) -> Any:
        """Return the action for one observation, or the actions for a batch of them.

        Args:
            observation: as the environment gives it inside the session's wrappers, not normalised: an array, a number,
                or a dict or tuple of them; a batch has one more axis in front, of the same length in every part. The
                parts in `critic_only` may be left out of a dict.
            state: what the call before returned, None at the beginning of an episode; recurrent policies only.
            deterministic: the most likely action instead of a sample.

        Returns:
            The action as the environment takes it: an integer, an array, or a dict or tuple of them; `[B, ...]` for a
            batch. A recurrent policy returns (action, state).

        Raises:
            ShapeError: the observation is not what the environment gave in training.
        """
        observations, is_batch = self._as_batch(observation)
        rows = len(next(iter(observations.values())))
        if self.is_recurrent and state is None:
            state = self._actor.initial_state(rows)
        masks = np.ones(rows, dtype=np.float32)
        output = self._actor.act(observations, state, masks, deterministic=deterministic)
        action = self._to_environment(output.actions, is_batch=is_batch)
        return (action, output.hidden_state) if self.is_recurrent else action

    def _as_batch(self, observation: Any) -> tuple[dict[str, Array], bool]:
        specs = self.spec.observations
        parts = self._parts(observation)
        given = {slot: spec for slot, spec in specs.items() if slot in parts}
        arrays = {slot: _numbers(parts[slot], spec, slot=slot) - _start(spec) for slot, spec in given.items()}
        is_batch = any(array.shape != given[slot].shape for slot, array in arrays.items())
        lengths = {len(array) for array in arrays.values() if array.ndim} if is_batch else {1}
        if is_batch and (len(lengths) != 1 or any(arrays[slot].shape[1:] != given[slot].shape for slot in given)):
            found = {slot: array.shape for slot, array in arrays.items()}
            expected = {slot: spec.shape for slot, spec in given.items()}
            raise ShapeError(
                f"observation: expected shapes {expected}, with or without a batch axis, found {found}; {_WAY_OUT}"
            )
        rows = {slot: array if is_batch else array[None] for slot, array in arrays.items()}
        count = lengths.pop()
        return {
            slot: rows[slot].astype(spec.dtype, copy=False)
            if slot in rows
            else np.zeros((count, *spec.shape), dtype=spec.dtype)
            for slot, spec in specs.items()
        }, is_batch

    def _parts(self, observation: Any) -> dict[str, Any]:
        """Return what an observation shows by slot; only slots in `critic_only` may be missing."""
        specs = self.spec.observations
        parts = {"observation": observation} if set(specs) == {"observation"} else dict(_flattened(observation))
        if len(specs) == 1 and isinstance(observation, Mapping) and set(observation) == set(specs):
            parts = dict(observation)
        if not set(specs) - self.critic_only <= set(parts) <= set(specs):
            found = _named(sorted(parts)) if "" not in parts else f"a {type(observation).__name__}"
            raise ShapeError(f"observation: expected the parts {sorted(specs)}, found {found}; {_WAY_OUT}")
        return parts

    def _to_environment(self, raw: Mapping[str, Array], *, is_batch: bool) -> Any:
        actions: dict[str, Any] = {}
        for slot, spec in self.spec.actions.items():
            values = to_environment(raw[slot], spec, self._transform)
            actions[slot] = values if is_batch else values[0]
            if not is_batch and spec.kind == "discrete":
                actions[slot] = int(values[0])
        return actions[""] if set(actions) == {""} else _nested(actions)


def _start(spec: ArraySpec) -> int:
    """Return what the environment calls 0 in a discrete part; 0 for every other kind."""
    return spec.start if spec.kind in ("discrete", "multi_discrete") else 0


def _numbers(value: Any, spec: ArraySpec, *, slot: str) -> Array:
    """Return a part of an observation as an array of numbers."""
    try:
        array = np.asarray(value)
    except ValueError:  # parts of several lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        found = f"a {type(value).__name__}"
        if isinstance(value, Mapping):
            found += f" with the parts {_named(sorted(map(str, value)))}"
        raise ShapeError(
            f"observation: expected an array of numbers of shape {spec.shape} in {slot!r}, found {found}; {_WAY_OUT}"
        )
    return array


def _named(parts: Sequence[str]) -> str:
    return one_line(list(parts), limit=200)


def _flattened(value: Any, *, slot: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, tuple):
        items = [(str(index), part) for index, part in enumerate(value)]
    else:
        return [(slot, value)]
    return [leaf for key, part in items for leaf in _flattened(part, slot=f"{slot}/{key}" if slot else key)]


def _nested(leaves: Mapping[str, Any]) -> Any:
    """Return leaves by path as nested dicts; a level whose keys are 0, 1, ... as a tuple."""
    levels: dict[str, Any] = {}
    for path, value in leaves.items():
        key, separator, rest = path.partition("/")
        if separator:
            levels.setdefault(key, {})[rest] = value
        else:
            levels[key] = value
    nested = {key: _nested(value) if isinstance(value, dict) else value for key, value in levels.items()}
    return tuple(nested.values()) if list(nested) == [str(index) for index in range(len(nested))] else nested


class NoMemory:
    """Stands where an agent expects its memory: a policy that is read does not learn."""

    def last_chunk(self) -> Chunk:
        """Refuse."""
        self._refuse()

    def sample(self, spec: SampleSpec, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """Refuse."""
        self._refuse()

    def update_priorities(self, indices: Any, values: Any, generation: Any) -> None:
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError("policy: expected act, found an update; resume the session to go on learning")


def load_policy(
    checkpoint: Checkpoint, params: Mapping[str, Any], *, agent: str, allowed: Sequence[str], device: str = "cpu"
) -> LoadedPolicy:
    """Return the policy that a checkpoint holds.

    Args:
        checkpoint: verified.
        params: the tree of its session.
        agent: its name in `/agents`.
        allowed: packages that the agent's node may name.
        device: where it computes.

    Raises:
        CheckpointError: a part that a policy needs is missing, malformed, or does not fit the parameters.
        TrustError: the node names a module that is not allowed.
    """
    components = checkpoint.components
    runner = _component(components, "runner", where=checkpoint)
    if not isinstance(runner.get("env_spec"), Mapping):
        raise CheckpointError(f"{checkpoint.path.name}: expected env_spec in the runner's state, found none")
    try:
        spec = spec_from_plain(runner["env_spec"])
    except ShapeError as error:
        raise CheckpointError(f"{checkpoint.path.name}: {error}; it holds no policy") from error
    transform = get(params, "/env/action_transform", where="params.yaml")
    if transform not in get_args(Transform):
        found = one_line(repr(transform), limit=80)
        raise UsageError(f"/env/action_transform: expected one of {get_args(Transform)}, found {found}; restore it")
    statistics = build(
        params["explorer"]["train"]["statistics"], where="/explorer/train/statistics", spec=spec, num_envs=1
    )
    statistics.load_state_dict(_component(components, "statistics", where=checkpoint))
    where = f"/agents/{agent}"
    config: Config = configure(params["agents"][agent], where=where, allowed=allowed)
    learner = resolve(config.builds, where=f"{where}/type", allowed=allowed)(
        config,
        name=agent,
        spec=spec._replace(actions=spec_for_agent(spec.actions, transform)),
        memory=NoMemory(),
        device=device,
        seed=0,
        monitor=Monitor().monitor,
        allowed=allowed,  # of the network too, which is a node inside the agent's
    )
    learner.load_policy_state(_component(components, f"agents.{agent}", where=checkpoint))
    actor: Actor = learner.actor(statistics.snapshot())
    critic_only = _critic_only(params["agents"][agent], spec)
    return LoadedPolicy(actor, spec=spec, transform=transform, checkpoint=checkpoint.path.name, critic_only=critic_only)


def _critic_only(agent: Mapping[str, Any], spec: EnvSpec) -> set[str]:
    """Return the slots that the policy does not see; of a user's own network nobody knows."""
    model = agent.get("model")
    if not isinstance(model, Mapping) or not str(model.get(TYPE)).startswith("digideep."):
        return set()
    return set(model.get("critic_observations") or ()) & set(spec.observations)


def _component(components: Mapping[str, Any], name: str, *, where: Checkpoint) -> dict[str, Any]:
    state = components.get(name)
    if not isinstance(state, dict):
        raise CheckpointError(f"{where.path.name}: expected the component {name!r}, found none; it holds no policy")
    return state
