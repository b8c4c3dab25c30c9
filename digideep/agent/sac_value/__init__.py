"""Soft actor-critic in its first version: a value network, twin critics, and a fixed temperature."""
