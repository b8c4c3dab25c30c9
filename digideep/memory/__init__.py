"""Memories: where chunks of experience wait to be learnt from."""
