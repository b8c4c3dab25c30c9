"""B8: single operations of Stable-Baselines3, in microseconds, under the names of `benchmarks.micro`."""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
from typing import Any

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

import numpy as np  # noqa: E402
import torch  # noqa: E402
from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402
from stable_baselines3.common.utils import obs_as_tensor  # noqa: E402

from benchmarks.peers.sb3 import make_model  # noqa: E402
from benchmarks.settings import PPO_SETTINGS, PPOSetting  # noqa: E402
from benchmarks.timing import best_us  # noqa: E402


class _Nothing(BaseCallback):  # type: ignore[misc]
    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    found: dict[str, float] = {}
    small = PPO_SETTINGS["B1"]
    model = _filled(small)
    observations = np.random.default_rng(0).standard_normal((small.num_envs, 4)).astype(np.float32)
    found["act for 8 environments"] = best_us(lambda: _act(model, observations))
    found["gradient step, 256 rows"] = best_us(model.train) / small.gradient_steps
    other = _filled(small._replace(minibatch_size=64))
    found["gradient step, 64 rows"] = best_us(other.train) / (4 * small.gradient_steps)
    own = _filled(PPO_SETTINGS["B1-module"])
    found["gradient step of the user's own network, 256 rows"] = best_us(own.train) / small.gradient_steps
    last, dones = torch.zeros(small.num_envs), np.zeros(small.num_envs)
    buffer = model.rollout_buffer
    buffer.reset()  # learning has flattened it
    found["advantages of 8 x 128"] = best_us(lambda: buffer.compute_returns_and_advantage(last, dones))
    with tempfile.TemporaryDirectory(prefix="digideep-bench-") as directory:
        path = pathlib.Path(directory) / "model"
        found["save, until training goes on"] = found["save, until it is durable"] = best_us(lambda: model.save(path))
        found["load a policy"] = best_us(lambda: PPO.load(path, device="cpu"))
    print(json.dumps(found))


def _act(model: Any, observations: np.ndarray[Any, Any]) -> Any:
    """Act as a rollout does."""
    with torch.no_grad():
        actions, values, log_probs = model.policy(obs_as_tensor(observations, model.device))
    return actions.cpu().numpy(), values, log_probs


def _filled(setting: PPOSetting) -> Any:
    """Return PPO with a full rollout buffer, whose weights stay as they are."""
    model = make_model(setting._replace(lr=1e-12), seed=1, device="cpu")
    model.learn(setting.rows, callback=_Nothing())
    return model


if __name__ == "__main__":
    main()
