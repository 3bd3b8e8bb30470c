"""Trains networks: the loop, run directories, checkpoints, logs, signals; `session.train` is the entrance."""
