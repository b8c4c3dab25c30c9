"""Parts that know nothing of reinforcement learning: profile, monitor, logs, seeds, nodes, state trees."""
