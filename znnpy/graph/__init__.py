"""Task graphs: tasks, successors in CSR form, join counters, priorities, work T1 and span Tinf."""

from znnpy.graph.builder import GraphBuilder
from znnpy.graph.critical_path import GraphError
from znnpy.graph.joints import Joint, joints
from znnpy.graph.policies import BANDS, POLICIES
from znnpy.graph.task_description import BARRIER, Described, Named
from znnpy.graph.task_graph import TaskGraph
from znnpy.graph.touched import Touched

__all__ = [
    "BANDS",
    "BARRIER",
    "POLICIES",
    "Described",
    "GraphBuilder",
    "GraphError",
    "Joint",
    "Named",
    "TaskGraph",
    "Touched",
    "joints",
]
