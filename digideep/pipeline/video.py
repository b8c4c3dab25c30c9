"""Episodes as mp4 files, through the `[video]` extra."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from digideep.errors import EnvironmentFailure, MissingExtraError, StorageError, one_line

__all__ = ["VideoRecorder", "require_video"]

_FPS = 30


def require_video() -> Any:
    """Return the library that writes videos.

    Raises:
        MissingExtraError: it is not installed; names the extra.
    """
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise MissingExtraError(
            '--record: expected the extra [video], found it is not installed; pip install "digideep[video]"'
        ) from error
    return imageio_ffmpeg


class VideoRecorder:
    """Writes `episode-<k>.mp4` for each episode whose frames it is given.

    Args:
        directory: where the files go; made with the first one.
        fps: frames a second.
    """

    def __init__(self, directory: Path, *, fps: int = _FPS) -> None:
        self._library = require_video()
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pictures are drawn in memory, also without a display
        self._directory = directory
        self._fps = fps
        self._episode: int | None = None
        self._writer: Any = None

    def add(self, episode: int, frame: Any) -> None:
        """Add a frame `[height, width, 3]` of bytes to an episode; another episode's number begins another file.

        Raises:
            EnvironmentFailure: the environment gave no picture.
            StorageError: the file cannot be written.
        """
        shape = getattr(frame, "shape", None)
        if shape is None or len(shape) != 3 or shape[2] != 3:
            raise EnvironmentFailure(
                f"--record: expected a picture [height, width, 3] from render(), found "
                f"{shape or type(frame).__name__}; the environment needs the render mode rgb_array"
            )
        try:
            if episode != self._episode:
                self.close()
                self._begin(episode, width=shape[1], height=shape[0])
            self._writer.send(frame.astype("uint8").tobytes())
        except OSError as error:
            raise StorageError(f"{one_line(self._directory)}: expected to write a video, found {error}") from error

    def close(self) -> None:
        """Finish the file of the running episode."""
        if self._writer is not None:
            self._writer.close()
        self._writer, self._episode = None, None

    def _begin(self, episode: int, *, width: int, height: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        # Blocks of 16 would enlarge pictures whose sides are no multiples of it; the codec itself needs even sides.
        self._writer = self._library.write_frames(
            str(self._directory / f"episode-{episode}.mp4"), (width, height), fps=self._fps, macro_block_size=2
        )
        self._writer.send(None)
        self._episode = episode
