"""Environments: how they are made, stepped, saved and examined."""
