"""What methods share that learn from a replay memory: DQN, and those below `continuous`."""
