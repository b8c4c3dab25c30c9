"""Make the golden sessions of the format that this digideep writes: `python tests/golden/make.py`.

They are made once for each released format and then only read: what later versions do with them shows whether they
read what this one wrote. Real trainings, made small and stopped after one of two epochs; taken away is only what can be
made again or belongs to the machine: the copy of the code and its signature, TensorBoard's events, and the text log.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import digideep
from digideep.pipeline.manifest import FORMAT_VERSION
from digideep.post import load

PLACE = Path(__file__).resolve().parent
ACTIONS = PLACE / "actions.json"  # what each policy does for this observation
OBSERVATION = np.array([0.5, -0.5, 0.0], np.float32)
KNOBS: dict[str, Any] = {
    "num_envs": 2, "num_workers": 0, "n_steps": 8, "epoch_size": 1, "number_epochs": 2, "test_win_size": 1,
    "hidden_sizes": [3], "max_exec_iter": 1, "keep_last": 1, "save_interval": 0,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "ppo": {"minibatch_size": 8, "update_epochs": 1},
    "q": {"capacity": 24, "warm_up": 4, "n_updates": 1, "batch_size": 4, "target_interval": 1},
}
STRIPPED = (
    "modules", "signature.json", "tensorboard", "report.log", "provenance.patch", "running.lock",
    "checkpoints/checkpoint-0",
)  # fmt: skip


def make(method: str, place: Path) -> Path:
    """Train below `place` and return the session, stripped."""
    session = digideep.run(
        f"digideep.testing.toy_{method}",
        {**KNOBS, **METHODS[method]},
        session_path=str(place),
        session_name=f"format_{FORMAT_VERSION}_{method}",
        monitor_cpu=False,
        monitor_gpu=False,
        log_level="error",
        device="cpu",
        msg="a golden session",
    )
    root: Path = session.paths.root
    for name in STRIPPED:
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return root


def main() -> int:
    """Make the sessions beside this file, unless there are some of this format."""
    if list(PLACE.glob(f"format_{FORMAT_VERSION}_*")):
        print(f"there are golden sessions of format {FORMAT_VERSION} already: they are made once")
        return 1
    actions = json.loads(ACTIONS.read_text()) if ACTIONS.exists() else {}
    warnings.simplefilter("ignore")  # the copy of the code is gone, so that it cannot be compared
    with tempfile.TemporaryDirectory() as directory:
        for method in METHODS:
            made = make(method, Path(directory))
            actions[made.name] = np.asarray(load(made).policy().act(OBSERVATION)).tolist()
            shutil.copytree(made, PLACE / made.name)
            print(PLACE / made.name)
    ACTIONS.write_text(json.dumps(actions, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
