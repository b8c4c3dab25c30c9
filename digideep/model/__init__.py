"""Networks, distributions of actions, and parameters as one flat buffer."""
