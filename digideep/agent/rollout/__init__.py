"""What methods share that learn from the newest chunk, with a policy and a value function: PPO and A2C."""
