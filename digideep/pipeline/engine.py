"""The serial engine: sampling and learning in turn, in this process.

    explorer.update() -> chunk -> memory.store(chunk) -> agent.update() -> statistics.merge(chunk)

The engine owns the running statistics. A chunk is learnt from with the statistics it was sampled with; its rows are
merged afterwards, and the next chunk sees the new version.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from digideep.environment.config import EnvConfig
from digideep.environment.trial import trial_spec
from digideep.environment.wrappers.action import spec_for_agent
from digideep.errors import ConfigError, EnvironmentFailure
from digideep.pipeline.config import SerialEngineConfig
from digideep.pipeline.options import Mode
from digideep.pipeline.state import numbers_of
from digideep.types import Actor, Counters, EngineEvents, Episode, Node, Progress, StateDict, Training
from digideep.utility.device import (
    DeviceChoice,
    choose_device,
    choose_threads,
    keep_freed_memory,
    require_device,
    unusable_gpu,
)
from digideep.utility.node import Config, build, configure
from digideep.utility.profiling import TimerNode, timer_block

if TYPE_CHECKING:
    from digideep.pipeline.session import Session
    from digideep.spec import EnvSpec
    from digideep.utility.statistics import Normalizer

__all__ = ["SerialEngine"]

logger = logging.getLogger(__name__)


class SerialEngine:
    """One explorer, its memories and its agents, advanced by one chunk a cycle.

    Args:
        config: threads, and what an earlier start of the session chose.
        explorer: node of the training explorer, with `env` filled in.
        memories: nodes by name.
        agents: nodes by name; each names its memory.
        session: gives the seed, the allowed modules, the monitor, the paths and the device that was asked for.
    """

    def __init__(
        self,
        config: SerialEngineConfig,
        *,
        explorer: Node,
        memories: Mapping[str, Node],
        agents: Mapping[str, Node],
        session: Session,
    ) -> None:
        self._session = session
        self._explorer: Any = None
        self.chosen: dict[str, Any] = dict(config.chosen)
        try:
            self._build(config, explorer, memories=memories, agents=agents)
        except BaseException:
            self.close()  # worker processes that stand already
            raise
        self._counters = Counters()
        self._episodes: list[Episode] = []
        self._reported = (0, 0)
        self._is_sampling = False
        self._explore_block, self._update_block = timer_block("explore"), timer_block("update")
        self._store_block = timer_block("store")

    def _build(
        self,
        config: SerialEngineConfig,
        explorer: Node,
        *,
        memories: Mapping[str, Node],
        agents: Mapping[str, Node],
    ) -> None:
        """Make every part from its node, the explorer first."""
        session = self._session
        device = self._choose_device(agents)
        self._choose_threads(config, agents)
        env = configure(explorer["env"], where="/env", allowed=session.allowed, expected=EnvConfig)
        # A play needs the spaces only: no training environment is made.
        if session.options.mode is not Mode.PLAY:
            self._explorer = self._build_explorer(explorer)
        spec = _spec_alone(env, explorer, allowed=session.allowed) if self._explorer is None else self._explorer.spec
        self.env_spec: EnvSpec = spec
        self.spec: EnvSpec = spec._replace(actions=spec_for_agent(spec.actions, env.action_transform))
        self._statistics = build(
            explorer["statistics"], where="/explorer/train/statistics", spec=self.spec, num_envs=explorer["num_envs"]
        )
        self._normalizer: Normalizer = self._statistics.snapshot()
        self._memories = {
            name: build(node, where=f"/memory/{name}", allowed=session.allowed, name=name)
            for name, node in memories.items()
        }
        self._agents = {name: self._build_agent(name, node, device=device) for name, node in agents.items()}
        if session.options.mode is not Mode.PLAY:
            training = self._training(explorer)
            for name, agent in self._agents.items():
                agent.join(training)
                logger.info("agent %s learns by %s", name, agent.path)
        self._spare_threads()
        self._reserve()
        self.chosen["learner_path"] = {name: agent.path.partition(":")[0] for name, agent in self._agents.items()}

    @property
    def exactness(self) -> str:
        """`exact`, or why a resume cannot give the same bits."""
        return "exact" if self._explorer is None else str(self._explorer.exactness)

    @property
    def _sampler(self) -> Any:
        if self._explorer is None:
            raise ConfigError("engine: expected training environments, found a play, which has none")
        return self._explorer

    def start(self) -> None:
        """Reset the environments, unless a state was loaded."""
        if self._explorer is not None:
            self._explorer.reset()

    def cycle(self) -> None:
        """Sample one chunk, learn from it, and merge its statistics."""
        self._sampler.set_actors(self._make_actors())
        self._is_sampling = True
        with self._explore_block:
            try:
                chunk = self._sampler.update()
            except EnvironmentFailure:
                self._sampler.abandon()  # before, in or after the steps: they are in no chunk that was learnt from
                raise
        with self._store_block:
            for memory in self._memories.values():
                memory.store(chunk)
        finished = self._sampler.episodes()
        self._episodes.extend(finished)
        self._counters = Counters(
            env_steps=self._counters.env_steps + chunk.meta.env_steps,
            agent_steps=self._counters.agent_steps + chunk.meta.agent_steps,
            episodes=self._counters.episodes + len(finished),
            updates=self._counters.updates + 1,
        )
        self._is_sampling = False
        with self._update_block:
            for agent in self._agents.values():
                agent.update(self._normalizer, self._counters)
        self._statistics.merge(chunk)
        self._normalizer = self._statistics.snapshot()

    def drain(self) -> None:
        """Return at once: between two cycles nothing is in flight."""

    def counters(self) -> Counters:
        """Return the totals since frame 0."""
        return self._counters

    def frames_underway(self) -> int:
        """Return the real transitions of this cycle that `counters` lacks; for a thread that looks on."""
        return int(self._sampler.frames_underway) if self._is_sampling else 0

    def timings(self) -> Mapping[str, TimerNode]:
        """Return the timers of the workers since the last call, by the path they belong to."""
        timings: Mapping[str, TimerNode] = self._sampler.timings()
        return {f"/cycle/explore/{name}": node for name, node in timings.items()}

    def actors(self) -> Mapping[str, Actor]:
        """Return policies with the statistics of now."""
        return self._make_actors()

    def set_progress(self, progress: Progress) -> None:
        """Hand the progress to every training environment."""
        if self._explorer is not None:
            self._explorer.set_progress(progress)

    def events(self) -> EngineEvents:
        """Return the episodes that ended, and what went wrong, since the last call."""
        episodes, self._episodes = self._episodes, []
        restarts, errors = self._sampler.restarts, self._sampler.env_errors
        before, self._reported = self._reported, (restarts, errors)
        return EngineEvents(episodes=episodes, restarts=restarts - before[0], env_errors=errors - before[1])

    def flush(self) -> None:
        """Write out what the monitor files hold back."""
        self._sampler.sync()

    @contextlib.contextmanager
    def lending(self) -> Iterator[None]:
        """Let `components` return memory of the agents' own, for a save that copies it at once."""
        with contextlib.ExitStack() as stack:
            for agent in self._agents.values():
                stack.enter_context(agent.lending())
            yield

    def components(self) -> dict[str, StateDict]:
        """Return the state by component."""
        return {
            **{f"agents.{name}": agent.state_dict() for name, agent in self._agents.items()},
            **{f"memory.{name}": memory.state_dict() for name, memory in self._memories.items()},
            "explorer.train": self._sampler.state_dict(),
            "statistics": self._statistics.state_dict(),
            "counters": dict(self._counters._asdict()),
        }

    def component_names(self) -> set[str]:
        """Return the names of what `load_components` needs."""
        names = {f"agents.{name}" for name in self._agents} | {"statistics", "counters"}
        if self._explorer is None:
            return names
        return names | {f"memory.{name}" for name in self._memories} | {"explorer.train"}

    def load_components(self, components: Mapping[str, StateDict]) -> None:
        """Take over what `components` returned."""
        for name, agent in self._agents.items():
            agent.load_state_dict(components[f"agents.{name}"])
        self._statistics.load_state_dict(components["statistics"])
        self._normalizer = self._statistics.snapshot()
        self._counters = numbers_of(Counters, components["counters"], where="counters")
        if self._explorer is not None:  # a play learns nothing: its memories stay empty
            self.load_memories(components)
            self._explorer.load_state_dict(components["explorer.train"])
            self._reported = (self._explorer.restarts, self._explorer.env_errors)

    def load_memories(self, components: Mapping[str, StateDict]) -> None:
        """Take over the memories' part of `components`."""
        for name, memory in self._memories.items():
            if f"memory.{name}" in components:  # else it was damaged, and the session goes on without what it held
                memory.load_state_dict(components[f"memory.{name}"])

    def load_policies(self, components: Mapping[str, StateDict]) -> None:
        """Take over policies and normalisers only: a new run that starts from what an old one has learnt."""
        for name, agent in self._agents.items():
            state = components.get(f"agents.{name}")
            if state is None:
                raise ConfigError(f"/runner/init_from: expected an agent {name!r} in the checkpoint, found none")
            agent.load_policy_state(state)
        self._statistics.load_state_dict(components["statistics"])
        self._normalizer = self._statistics.snapshot()

    def close(self) -> None:
        """End the environments and their processes."""
        if self._explorer is not None:
            self._explorer.close()

    def _make_actors(self) -> dict[str, Actor]:
        return {name: agent.actor(self._normalizer) for name, agent in self._agents.items()}

    def _build_explorer(self, node: Node) -> Any:
        session = self._session
        chosen = self.chosen.get("num_workers")
        if node["num_workers"] == "auto" and chosen is not None:
            node = {**node, "num_workers": chosen, "parent_steps": bool(self.chosen.get("parent_steps"))}
        if node.get("backend", "auto") == "auto" and "backend" in self.chosen:
            node = {**node, "backend": self.chosen["backend"]}
        explorer = build(
            node,
            where="/explorer/train",
            allowed=session.allowed,
            builds_nodes=True,
            mode="train",
            seed=session.seed,
            monitor_dir=session.paths.monitor,
            supervision=session.supervision,
        )
        self.chosen |= {"num_workers": explorer.num_workers, "parent_steps": explorer.parent_steps, **explorer.chosen}
        self.chosen["backend"] = explorer.backend
        return explorer

    def _build_agent(self, name: str, node: Node, *, device: str) -> Any:
        where = f"/agents/{name}"
        memory = self._memories.get(node.get("memory", ""))
        if memory is None:
            raise ConfigError(f"{where}/memory: expected one of {sorted(self._memories)}, found {node.get('memory')!r}")
        return build(
            node,
            where=where,
            allowed=self._session.allowed,
            builds_nodes=True,
            name=name,
            spec=self.spec,
            memory=memory,
            device=device,
            seed=self._session.seed,
            monitor=self._session.monitor.monitor,
        )

    def _training(self, explorer: Node) -> Training:
        """Return what agents are told of the training."""
        assert self._session.experiment is not None  # as it is to be entered
        runner, num_envs = self._session.experiment.params["runner"], explorer["num_envs"]
        frames = runner["total_frames"] or runner["n_epochs"] * runner["n_cycles"] * num_envs * explorer["n_steps"]
        return Training(is_deterministic=explorer["deterministic"], num_envs=num_envs, frames=frames)

    def _reserve(self) -> None:
        """Make room for what memories will hold now: a disk that is too small is no news for the end of a chunk."""
        if self._explorer is None:
            return
        self._explorer.set_actors(self._make_actors())
        for memory in self._memories.values():
            memory.reserve(self._explorer.arrays, directory=self._session.paths.root)

    def _choose_device(self, agents: Mapping[str, Node]) -> str:
        asked, chosen = self._session.options.device, self.chosen.get("device")
        if asked not in (None, "auto"):
            require_device(asked)
            choice = DeviceChoice("cuda:0" if asked == "cuda" else asked, "asked for")
        elif chosen is not None and _is_there(chosen):
            choice = DeviceChoice(chosen, "as the session chose before")
        else:
            network_class, width = self._network(agents)
            choice = choose_device(network_class, width)
            if chosen is not None:
                logger.warning("device %s is not on this machine; %s instead", chosen, choice.device)
        logger.info("device: %s (%s)", choice.device, choice.reason)
        problem = unusable_gpu()
        if problem:
            logger.warning("%s", problem)
        self.chosen["device"] = choice.device
        return choice.device

    def _choose_threads(self, config: SerialEngineConfig, agents: Mapping[str, Node]) -> None:
        import torch

        threads = config.num_threads
        if threads == "auto":
            threads = self.chosen.get("threads") or choose_threads(*self._network(agents))
        torch.set_num_threads(threads)
        if self._network(agents)[0] != "mlp":
            keep_freed_memory()
        self.chosen["threads"] = threads

    def _spare_threads(self) -> None:
        """Leave torch one thread where every learner has threads of its own: idle, torch's would turn beside them."""
        import torch

        threads = [agent.learner_threads for agent in self._agents.values()]
        beside = ""
        if threads and min(threads) > 1:
            torch.set_num_threads(1)
            beside = f", beside {max(threads)} of the learner" if self._explorer is not None else ""
        logger.info("torch threads: %d%s (/engine/num_threads)", torch.get_num_threads(), beside)

    def _network(self, agents: Mapping[str, Node]) -> tuple[str, int]:
        order = ("mlp", "custom", "rnn", "cnn")
        classes, widths = ["mlp"], [0]
        for name, node in agents.items():
            if node.get("model"):
                config: Config = configure(node["model"], where=f"/agents/{name}/model", allowed=self._session.allowed)
                classes.append(getattr(config, "network_class", "custom"))
                sizes = (getattr(config, name, ()) or () for name in ("hidden_sizes", "critic_hidden_sizes"))
                widths += [units for layers in sizes for units in layers]
        return max(classes, key=order.index), max(widths)


def _spec_alone(env: EnvConfig, explorer: Node, *, allowed: Sequence[str]) -> EnvSpec:
    """Return the spaces of an environment that is made for nothing else."""
    in_worker, limit_s = explorer["num_workers"] not in (0, "auto"), float(explorer["step_timeout_s"])
    return trial_spec(env, in_worker=in_worker, step_timeout_s=limit_s, allowed=allowed)


def _is_there(device: str) -> bool:
    if device == "cpu":
        return True
    import torch

    return torch.cuda.is_available() and int(device.partition(":")[2] or 0) < torch.cuda.device_count()
