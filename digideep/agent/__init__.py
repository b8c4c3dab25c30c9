"""Agents: policies, their losses and their optimisers.

- One folder a method, with the same files: `a2c`, `ddpg`, `dqn`, `ppo`, `sac`, `sac_value`, `td3`.
- `rollout`: what methods share that learn from the newest chunk (A2C, PPO).
- `replay`: what methods share that learn from a replay memory (DQN, and all of `continuous`).
- `continuous`: what those of them share whose policies give real numbers (DDPG, TD3, both forms of SAC).
- The modules beside them belong to no kind of method; `base` has the contract of all agents.
"""
