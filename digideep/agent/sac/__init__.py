"""Soft actor-critic with twin critics and a learned temperature."""
