"""State trees as JSON and arrays."""

from digideep.pipeline.codec import *  # noqa: F403
