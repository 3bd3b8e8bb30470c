"""Objects from predictions of whole volumes: `znnpy segment`."""

from znnpy.segment.job import METHODS, Request, Segmented, segment

__all__ = ["METHODS", "Request", "Segmented", "segment"]
