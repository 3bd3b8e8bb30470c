"""Data-parallel training over ranks: the world, messages, gradient sums (all-reduce), failure detection.

Nothing here knows networks or tasks, and mpi4py is imported by `mpi.py` alone, where ranks exist.
"""
