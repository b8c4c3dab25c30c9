"""What travels between the parts, and the protocols by which they know each other.

Keys of arrays are unix paths: `/observations/<slot>`, `/masks`, `/rewards`, `/terminations`,
`/agents/<name>/actions[/<slot>]`, `/agents/<name>/artifacts/<x>`. Sizes: `N` environments, `T` steps, `B` batch.

One rule covers the boundaries of episodes: transition `t` is real if and only if `masks[t+1] == 1`, and it ended the
task if and only if `terminations[t] == 1`. docs/data.md explains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from digideep.spec import ArraySpec, EnvSpec
    from digideep.utility.profiling import TimerNode

Node: TypeAlias = Mapping[str, Any]
"""A node of the params tree: a flat mapping whose key `type` names a configuration class."""

StateDict: TypeAlias = dict[str, Any]
"""Plain data: dictionaries, lists, tuples, numbers, strings, bytes and numpy arrays.

The value under a key at the top may be a `Segments` instead.
"""

Batch: TypeAlias = MutableMapping[str, "np.ndarray[Any, Any]"]
"""Arrays by key, with the batch as first axis."""


class ChunkMeta(NamedTuple):
    """Where a chunk came from: real transitions in it, and the versions it was sampled with."""

    env_steps: int
    agent_steps: int
    policy_version: int
    statistics_version: int


class Chunk(NamedTuple):
    """`[N, T+1, ...]` arrays by key, views of a slab that are valid until the next chunk is sampled."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    meta: ChunkMeta


class ActorOutput(NamedTuple):
    """What an actor decides for `N` environments.

    `actions` maps action slots (`""` where the action space has one) to the raw sample `[N, ...]`; `artifacts` maps
    names (`log_probs`, `values`) to `[N, ...]`; `hidden_state` is None where the policy has none.
    """

    actions: Mapping[str, np.ndarray[Any, Any]]
    artifacts: Mapping[str, np.ndarray[Any, Any]]
    hidden_state: Mapping[str, np.ndarray[Any, Any]] | None = None


class Episode(NamedTuple):
    """One finished episode of one environment."""

    env: int
    number: int  # of this environment in training; of the evaluation in test and eval
    return_: float
    length: int
    seed: int | None  # what the environment was reset with; None where its generator simply went on
    metrics: Mapping[str, float]


class Counters(NamedTuple):
    """Totals since frame 0; a frame is one real transition of one environment."""

    env_steps: int = 0
    agent_steps: int = 0
    episodes: int = 0
    updates: int = 0


class EngineEvents(NamedTuple):
    """What happened since the last call."""

    episodes: Sequence[Episode] = ()
    restarts: int = 0
    env_errors: int = 0


class Training(NamedTuple):
    """What an agent is told of the training that it is to be a part of.

    `is_deterministic` says whether the most likely actions are taken in it, `num_envs` how many environments there are,
    and `frames` where it ends at the latest.
    """

    is_deterministic: bool
    num_envs: int
    frames: int


class Progress(NamedTuple):
    """How far a run has come; handed to environments that have `set_progress`."""

    frame: int
    epoch: int
    fraction: float


class SampleSpec(NamedTuple):
    """What to draw from a memory: windows of `max(n_step, sequence) + 1` rows.

    `beta` is the exponent of importance weights, where draws are not uniform. `keys` are those of the chunk that are
    given, None for all. With `ends` observations are given at two rows of each window only: the first one, and the one
    that its real transitions lead to.
    """

    batch_size: int
    n_step: int = 1
    sequence: int = 0
    beta: float | None = None
    keys: tuple[str, ...] | None = None
    ends: bool = False


class Segment(NamedTuple):
    """A part of a large state that stays as it is for long: written once, linked into later checkpoints.

    `name`, of `[a-z0-9-]+`, tells contents apart for ever within one session and what it was continued from.
    """

    name: str
    arrays: Mapping[str, np.ndarray[Any, Any]]


class Segments(Protocol):
    """The segments of one component, live in memory or stored in a checkpoint; iterated once, one at a time."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names, in order, without touching any array."""
        ...

    def __iter__(self) -> Iterator[Segment]:
        """Yield the segments in the order of `names`; the arrays of one may be reused for the next."""
        ...

    def __len__(self) -> int:
        """Return the number of segments."""
        ...


class LiveSegments:
    """Segments over arrays that are views of a memory, valid until it stores again."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = tuple(segments)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names, in order."""
        return tuple(segment.name for segment in self._segments)

    def __iter__(self) -> Iterator[Segment]:
        """Yield the segments in the order of `names`."""
        return iter(self._segments)

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._segments)


class Stateful(Protocol):
    """Something whose state goes into checkpoints; load(save(x)) behaves as x from the next call on."""

    def state_dict(self) -> StateDict:
        """Return the state as plain data that later changes do not touch."""
        ...

    def load_state_dict(self, state: StateDict) -> None:
        """Take over a state that `state_dict` returned."""
        ...


class Actor(Protocol):
    """A policy without optimiser, with the normaliser of its moment inside."""

    artifacts: Mapping[str, ArraySpec]
    policy_version: int
    statistics_version: int

    def initial_state(self, num_envs: int) -> Mapping[str, np.ndarray[Any, Any]] | None:
        """Return the hidden state at the beginning of `num_envs` episodes; None without one."""
        ...

    def act(
        self,
        observations: Mapping[str, np.ndarray[Any, Any]],
        hidden_state: Mapping[str, np.ndarray[Any, Any]] | None = None,
        masks: np.ndarray[Any, Any] | None = None,
        *,
        deterministic: bool = False,
        generators: Sequence[np.random.Generator] | None = None,
    ) -> ActorOutput:
        """Return actions for raw observations `[N, ...]`.

        `generators` holds one generator an environment; None draws from the actor's own one.
        """
        ...


class LateActor(Actor, Protocol):
    """An actor that can give actions alone, and everything else that it declares for a whole chunk at once.

    That is quicker than at every step where it needs other parts of the network. An explorer that samples looks for
    `complete`; it must have no hidden state.
    """

    def choose(self, observations: Mapping[str, np.ndarray[Any, Any]]) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return sampled actions by slot for raw observations `[N, ...]`."""
        ...

    def complete(
        self, observations: Mapping[str, np.ndarray[Any, Any]], actions: Mapping[str, np.ndarray[Any, Any]]
    ) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return the artifacts `[R, ...]` for rows of observations and of the actions taken there."""
        ...


class Store(Protocol):
    """A memory as an agent sees it."""

    def last_chunk(self) -> Chunk:
        """Return the newest chunk."""
        ...

    def sample(self, spec: SampleSpec, rng: np.random.Generator, out: Batch | None = None) -> Batch:
        """Return windows of raw rows that begin with real transitions."""
        ...

    def update_priorities(
        self, indices: np.ndarray[Any, Any], values: np.ndarray[Any, Any], generation: np.ndarray[Any, Any]
    ) -> None:
        """Set how much sampled windows are worth drawing again, where draws are not uniform."""
        ...


class Engine(Protocol):
    """A schedule: when and where sampling and learning run, never what they compute."""

    spec: EnvSpec  # as agents see it
    env_spec: EnvSpec  # in the environment's own units
    exactness: str  # "exact", or why a resume cannot give the same bits
    chosen: Mapping[str, Any]  # what was chosen by rule or by measurement, for later starts of the session

    def start(self) -> None:
        """Reset the environments, unless a state was loaded."""
        ...

    def cycle(self) -> None:
        """Advance by one chunk."""
        ...

    def drain(self) -> None:
        """Finish work in flight; `state_dict` is defined only after this."""
        ...

    def counters(self) -> Counters:
        """Return the totals since frame 0."""
        ...

    def frames_underway(self) -> int:
        """Return the real transitions of a running cycle that `counters` lacks; called from another thread."""
        ...

    def timings(self) -> Mapping[str, TimerNode]:
        """Return the timers of other processes and threads since the last call, by the path they belong to."""
        ...

    def actors(self) -> Mapping[str, Actor]:
        """Return policies with the statistics of now, which do not change any more."""
        ...

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every training environment."""
        ...

    def flush(self) -> None:
        """Write out what the monitor files hold back."""
        ...

    def events(self) -> EngineEvents:
        """Return what happened since the last call."""
        ...

    def lending(self) -> AbstractContextManager[None]:
        """Let `components` return memory of the parts' own, read-only, for a save that copies it at once."""
        ...

    def components(self) -> Mapping[str, StateDict]:
        """Return the state by component: `agents.<name>`, `memory.<name>`, `explorer.train`, `statistics`."""
        ...

    def component_names(self) -> set[str]:
        """Return the names of what `load_components` needs."""
        ...

    def load_memories(self, components: Mapping[str, StateDict]) -> None:
        """Take over the memories' part of `components`."""
        ...

    def load_policies(self, components: Mapping[str, StateDict]) -> None:
        """Take over policies and normalisers only."""
        ...

    def load_components(self, components: Mapping[str, StateDict]) -> None:
        """Take over what `components` returned."""
        ...

    def close(self) -> None:
        """End every process and thread that the engine started."""
        ...
