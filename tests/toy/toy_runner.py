"""A runner that sends itself signals at chosen moments; apart from that it does what every runner does."""

from __future__ import annotations

from toy_parts import act

from digideep.pipeline.runner import Runner


class ActingRunner(Runner):
    """Acts before each cycle, after it, before each test and before each save."""

    def train_cycle(self) -> None:
        """Act, train, act."""
        act(f"cycle {self.state.cycle + 1}")
        super().train_cycle()
        act(f"learnt {self.state.cycle}")

    def test(self) -> bool:
        """Act, test."""
        act(f"test {self.epoch}")
        return super().test()

    def save(self, forced: bool = False) -> None:
        """Act, save."""
        act(f"save {self.state.cycle}")
        super().save(forced)

    def custom(self) -> None:
        """Leave a file, as a subclass might."""
        (self.session.paths.root / "customs.txt").write_text(f"frame {self.frame}\n")
