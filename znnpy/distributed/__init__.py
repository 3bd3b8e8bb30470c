"""Ranks that train one network together: the world, its messages, who adds up what, and who tells whom.

Nothing here knows networks or tasks, and mpi4py is imported by `mpi.py` alone, where ranks exist.
"""
