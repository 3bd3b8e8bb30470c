"""Undoes what weights of classes do to predicted probabilities: they shift logits, by a known number.

Where ones count u times as much as zeros, a cross-entropy is least at probabilities whose logits are those of the data
and log u (Saerens et al. 2002); a softmax, whose classes count u each, at log-probabilities and log u.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from znnpy.config.models import AffinityTarget, Config
from znnpy.data.config_volumes import make_targets
from znnpy.data.sampling.sample import Patch
from znnpy.errors import RunError
from znnpy.learning.loss import LossKeys, Objective
from znnpy.learning.readings import CLASSES, LOGITS
from znnpy.network import Network, training_losses
from znnpy.train.checkpoint import Arrays
from znnpy.train.run_directory import CALIBRATION, read_object, write_json

Shifts = Mapping[str, list[float]]
"""By output: what is taken off the logits of each channel."""
FEWEST, MOST = 8, 64  # patches that weights are taken from
VOXELS = 1 << 25  # of them all, about
SOUND = ("binomial_cross_entropy", "softmax")  # losses whose least value is known


class Source(Protocol):
    """Draws training patches; `Sampler` is one."""

    def sample(self, index: int) -> Patch:
        """Return a patch by number."""


def recalibrated_outputs(config: Config, network: Network) -> list[str]:
    """Return the outputs of which predictions undo what weighted classes do, where it is known."""
    return [node.name for node in network.outputs if _recalibrates(config, node.name)]


def _recalibrates(config: Config, output: str) -> bool:
    wanted = config.inference.recalibrate
    # What joins voxels and what keeps them apart is weighed against each other: watersheds want both alike.
    return not isinstance(config.target(output), AffinityTarget) if wanted is None else wanted


def weighed_outputs(config: Config, network: Network) -> list[str]:
    """Return the outputs whose classes training weighs, by `rebalance` or by their loss."""
    names = [node.name for node in network.outputs]
    weighed = {name for name in names if _weighs(config.training.loss_of(name))}
    if config.training.rebalance != "none":
        targets = make_targets(config, network)
        weighed |= {name for name in names if targets[name].balanced}
    return [name for name in names if name in weighed]


def _weighs(keys: LossKeys) -> bool:
    own = getattr(keys, "class_weights", None) or getattr(keys, "alpha", None)
    return own is not None


def found_shifts(config: Config, network: Network, source: Source) -> Shifts:
    """Return the shifts of all outputs; of those of which none is known, nothing. Reads some patches.

    Known are those of cross-entropies of targets of 0 and 1, for an output with a bias and without a norm, all of whose
    classes are among the patches.
    """
    losses, weighed = training_losses(config, network), weighed_outputs(config, network)
    sound = {name: losses[name] for name in weighed if _is_sound(network, name, losses[name])}
    if not sound:
        return {}
    if config.training.rebalance == "none":
        plain = {name: np.ones(network.node(name).channels) for name in sound}
        return _shifts(sound, plain)
    sums: dict[str, Any] = dict.fromkeys(sound, 0.0)
    first = source.sample(0)
    size = max(prod(target.shape) for target in first.targets.values())
    for number in range(min(MOST, max(FEWEST, VOXELS // size))):
        patch = source.sample(number) if number else first
        for name, objective in sound.items():
            sums[name] = sums[name] + _sums(objective, patch.targets[name], patch.weights[name])
    ratios = {name: _ratios(sound[name], found) for name, found in sums.items()}
    return _shifts(sound, {name: it for name, it in ratios.items() if it is not None})


def _is_sound(network: Network, name: str, objective: Objective) -> bool:
    node = network.node(name)
    smooth = getattr(objective.keys, "label_smoothing", 0.0)
    plain = node.kind == "transfer" and node.bias and node.norm is None
    reads = objective.reading in (LOGITS, CLASSES)
    return plain and reads and objective.loss.name in SOUND and not smooth


def _sums(
    objective: Objective, target: NDArray[np.float32], weight: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return for each channel weight and number of ones, weight and number of zeros, and number of other targets."""
    weight = np.broadcast_to(weight, target.shape)
    counts, axes = weight > 0, (1, 2, 3)
    groups = [target == 1, target == 0]
    sums = [(it * counts * by).sum(axes, np.float64) for it in groups for by in (weight, 1.0)]
    return np.stack([*sums, (counts & ~groups[0] & ~groups[1]).sum(axes, np.float64)])


def _ratios(objective: Objective, sums: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return how much each channel's class, or its ones beside its zeros, counts; None: that is not known."""
    ones, many, zeros, more, others = sums
    if others.any() or not many.all():
        return None
    if objective.reading is CLASSES:
        return np.asarray(ones / many)
    return np.asarray(ones / many / (zeros / more)) if more.all() else None


def _shifts(losses: Mapping[str, Objective], ratios: Mapping[str, NDArray[np.float64]]) -> Shifts:
    found = {}
    for name, ratio in ratios.items():
        given = ratio * losses[name].class_weights(len(ratio))
        if (given > 0).all():  # what never counts is never learned
            found[name] = np.log(given).tolist()
    return found


def recalibrated(parameters: Arrays, shifts: Shifts) -> Arrays:
    """Return parameters whose outputs have their logits less the shifts, in their biases."""
    moved = {
        name: (parameters[name] - np.array(by)).astype(parameters[name].dtype)
        for name, by in shifts.items()
    }
    return dict(parameters) | moved


def keep_shifts(run: Path, shifts: Shifts) -> None:
    """Write the shifts into a run; nothing where there are none."""
    if shifts:
        write_json(run / CALIBRATION, dict(shifts))


def shifts_of(run: Path, config: Config, network: Network) -> Shifts:
    """Return the shifts that predictions of a run undo; RunError for a damaged file."""
    names = recalibrated_outputs(config, network)
    kept = kept_shifts(run, network) if names else {}
    return {name: by for name, by in kept.items() if name in names}


def kept_shifts(run: Path, network: Network) -> Shifts:
    """Return the shifts that a run has; RunError for a damaged file."""
    path = run / CALIBRATION
    found = read_object(path) or {}
    nodes = {node.name: node for node in network.outputs}
    for name, shifts in found.items():
        channels = nodes[name].channels if name in nodes else 0
        good = isinstance(shifts, list) and len(shifts) == channels > 0
        if not good or not all(isinstance(it, float) and isfinite(it) for it in shifts):
            raise RunError(
                f"{path} is damaged: {name!r} has no list of {channels} numbers; put the file back, or set "
                "inference.recalibrate: false"
            )
    return found


def remark(config: Config, network: Network, shifts: Shifts) -> str | None:
    """Return what users should know of weighted classes, None where none are."""
    weighed = weighed_outputs(config, network)
    if not weighed:
        return None
    key = " and ".join(dict.fromkeys(map(config.loss_key, weighed)))
    if config.training.rebalance != "none":
        key = f"training.rebalance: {config.training.rebalance}"
    # Values to regress are no probabilities.
    asked = [
        it
        for it in recalibrated_outputs(config, network)
        if it in weighed and config.target(it).kind not in ("lsd", "image")
    ]
    unknown = [it for it in asked if it not in shifts]
    if not asked:
        return f"{key} weighs classes, which shifts probabilities; predictions keep that (inference.recalibrate)"
    if len(unknown) < len(asked):
        but = (
            f", but for {', '.join(unknown)}, of which it is not known by how much"
            if unknown
            else ""
        )
        return (
            f"{key} weighs classes, which shifts probabilities in training and its validations; predictions and scores "
            f"undo that (inference.recalibrate){but}"
        )
    return (
        f"{key} weighs classes, so that predicted probabilities are those of classes as frequent as their weights: 0.5 "
        "finds more of a rare class than is there. Here it is not known by how much, so nothing undoes that; "
        "rebalance: none does not"
    )
