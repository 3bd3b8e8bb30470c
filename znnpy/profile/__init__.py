"""Profiling: records updates and reports where the time went: HTML report, Perfetto trace, advice."""

from znnpy.profile.command import (
    PredictionSubject,
    Subject,
    Wishes,
    profile_config,
    profile_subject,
)
from znnpy.profile.machine import OtherMachine
from znnpy.profile.recorded_updates import Profile, profile_predictions, profile_updates
from znnpy.profile.summary import summarise
from znnpy.profile.trace import write_trace

__all__ = [
    "OtherMachine",
    "PredictionSubject",
    "Profile",
    "Subject",
    "Wishes",
    "profile_config",
    "profile_predictions",
    "profile_subject",
    "profile_updates",
    "summarise",
    "write_trace",
]
