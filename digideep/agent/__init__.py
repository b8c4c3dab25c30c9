"""Agents: policies, their losses and their optimisers, one folder a method."""
