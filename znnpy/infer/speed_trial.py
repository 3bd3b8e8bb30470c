"""Predicts how long a prediction takes: times one small patch on this machine, and scales the estimate by it."""

from __future__ import annotations

import time

import numpy as np

from znnpy.data.volume import Triple
from znnpy.engine.model import Model
from znnpy.geometry import voxels
from znnpy.infer.config_model import patch_model
from znnpy.infer.forward_costs import forward_seconds
from znnpy.infer.job import Job
from znnpy.infer.patch_search import Candidate, covering
from znnpy.infer.predict import Floats

# Longer trials fill caches and cores more like the real patch.
MOST_SECONDS = 0.3  # of a trial, by estimate: not felt before a command's answer
SMALLEST = 8  # voxels along an axis; smaller runs say nothing of larger ones
RUNS = 3  # of which the fastest counts


def trial_seconds(job: Job) -> float:
    """Return the seconds of one network run of a job by all its threads: its estimate, scaled by a trial."""
    small = _smaller(job)
    given = [
        np.random.default_rng(0).standard_normal((1, node.channels, *shape)).astype(np.float32)
        for node in job.network.inputs
        for shape in (small.geometry.input_shapes[node.name],)
    ]
    inputs = {node.name: x for node, x in zip(job.network.inputs, given, strict=True)}
    config, record = job.weights.config, small.plan.to_record()
    with patch_model(config, job.network, small.patch, record) as model:
        model.set_parameters(job.weights.parameters)
        # The first run touches fresh memory and starts threads; disturbance only adds time.
        best = min(_timed(model, inputs, job) for _ in range(RUNS))
    return job.candidate.seconds * best / small.seconds


def _timed(model: Model, inputs: dict[str, Floats], job: Job) -> float:
    start = time.perf_counter()
    found = model.forward(inputs if len(inputs) > 1 else next(iter(inputs.values())))
    for values in found.values() if isinstance(found, dict) else [found]:
        job.finish.encoded(job.finish.activated(values[0]))
    return time.perf_counter() - start


def _smaller(job: Job) -> Candidate:
    """Return the job's plan for a patch that takes less than MOST_SECONDS."""
    plan, patch = job.candidate.plan, job.patch
    while True:
        made = Candidate(job.network, patch, job.candidate.conv, plan.to_record())
        smaller = covering(job.network, _cut(patch))
        quick = forward_seconds(job.network, made.geometry, plan) <= MOST_SECONDS
        if quick or voxels(smaller) >= voxels(patch):
            return made
        patch = smaller


def _cut(patch: Triple) -> Triple:
    sizes = list(patch)
    axis = sizes.index(max(sizes))
    # A quarter at a time along the longest axis, as autotuning shrinks its patches.
    sizes[axis] = max(min(SMALLEST, sizes[axis]), sizes[axis] * 3 // 4)
    return sizes[0], sizes[1], sizes[2]
