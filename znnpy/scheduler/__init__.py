"""Executors run any task graph: on native threads without the GIL, or serially; they know no networks."""

from znnpy.scheduler.core_count import available_cores
from znnpy.scheduler.errors import SchedulerError
from znnpy.scheduler.executor import Executor
from znnpy.scheduler.recording import EVENT, WorkerRecording
from znnpy.scheduler.serial import SerialExecutor

__all__ = [
    "EVENT",
    "Executor",
    "SchedulerError",
    "SerialExecutor",
    "WorkerRecording",
    "available_cores",
]
