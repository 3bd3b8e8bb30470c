"""Runs any task graph, on native threads or serially; knows nothing of networks."""

from znnpy.scheduler.errors import SchedulerError
from znnpy.scheduler.recording import EVENT, WorkerRecording
from znnpy.scheduler.serial import SerialExecutor

__all__ = ["EVENT", "SchedulerError", "SerialExecutor", "WorkerRecording"]
