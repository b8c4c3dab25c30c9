"""Deep Q-learning: double, dueling, of several steps, from a prioritised memory, with noisy weights."""
