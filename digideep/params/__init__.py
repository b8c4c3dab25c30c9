"""Presets, what they share, and how the parameters of a session are loaded."""
