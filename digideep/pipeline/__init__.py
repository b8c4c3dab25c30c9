"""Sessions and their lifecycle: command line, directory, checkpoints, logs, signals, runner and engine."""
