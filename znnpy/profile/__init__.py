"""Profiling: recorded updates, their trace for Perfetto, and where the time went."""

from znnpy.profile.command import profile_config
from znnpy.profile.summary import summarise
from znnpy.profile.trace import write_trace
from znnpy.profile.updates import Profile, profile_updates

__all__ = ["Profile", "profile_config", "profile_updates", "summarise", "write_trace"]
