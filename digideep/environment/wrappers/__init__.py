"""What stands between an environment and the slab."""
