"""What methods of a replay memory share whose policies give real numbers, judged by critics: DDPG, TD3, SAC."""
