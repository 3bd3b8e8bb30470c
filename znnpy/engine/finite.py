"""Where numbers went bad: the first node or parameter that holds NaN or Inf."""

from __future__ import annotations

import numpy as np

from znnpy.engine.tasks import TaskEngine


def first_non_finite(engine: TaskEngine) -> str | None:
    """Name of the first node, in the order of the data, or else parameter that is not finite."""
    for node in engine.layout.network.nodes:
        if not np.isfinite(engine.images(node.name)).all():
            return node.name
    for name, parameter in engine.build.parameters.items():
        if not np.isfinite(engine.flat(parameter.values, parameter.floats)).all():
            return name
    return None
