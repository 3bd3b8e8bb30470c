"""Recordings of workers, written by hand in ms."""

import numpy as np

from znnpy.scheduler.recording import EVENT, SEARCH, WorkerRecording

MS = 1_000_000


def worker(events, searches):
    made = np.array([(t, s * MS, e * MS, w) for t, s, e, w in events], EVENT)
    idle = np.array([(s * MS, p * MS, e * MS, 1) for s, p, e in searches], SEARCH)
    return WorkerRecording(made, len(made), 0, 0, 0, 0, idle, len(idle))
