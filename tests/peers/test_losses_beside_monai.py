"""Losses beside PyTorch's and MONAI's: values and gradients in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from objectives import objective_of

from znnpy.learning.readings import CLASSES, LOGITS

torch = pytest.importorskip("torch")
losses = pytest.importorskip("monai.losses")

SHAPE = (2, 3, 4, 5, 6)


def made(seed: int = 0) -> tuple[Any, Any, Any]:
    """Logits, one-hot targets, and class numbers."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 3, (SHAPE[0], *SHAPE[2:]))
    one_hot = (np.arange(3)[:, None, None, None] == numbers[:, None]).astype(np.float64)
    return 2 * rng.standard_normal(SHAPE), one_hot, numbers


def check(
    objective: Any,
    theirs: Any,
    target: Any,
    weight: Any = None,
    factor: float = 1,
    error: float = 1e-9,
) -> None:
    """`theirs(logits)` times a factor is the objective's value, and its gradient too."""
    values = made()[0]
    logits = torch.tensor(values, requires_grad=True)
    wanted = theirs(logits) * factor
    wanted.backward()
    found, gradient = objective.value_and_gradient(values, target, weight)
    assert found == pytest.approx(wanted.item(), rel=error)
    np.testing.assert_allclose(gradient, logits.grad.numpy(), rtol=100 * error, atol=error / 1000)


@pytest.mark.parametrize(
    ("name", "theirs"), [("square", "MSELoss"), ("binomial_cross_entropy", "BCEWithLogitsLoss")]
)
def test_means_over_voxels_and_images(name: str, theirs: str) -> None:
    _, target, _ = made()
    check(
        objective_of(name), lambda x: getattr(torch.nn, theirs)()(x, torch.tensor(target)), target
    )


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("reading", [LOGITS, CLASSES])
def test_dice(reading: Any, background: bool, batch: bool) -> None:
    _, target, _ = made()
    theirs = losses.DiceLoss(
        include_background=background, batch=batch, sigmoid=reading == LOGITS,
        softmax=reading == CLASSES, smooth_nr=0.3, smooth_dr=0.3,
    )  # fmt: skip
    keys = {"smooth": 0.3, "batch": batch, "include_background": background}
    objective = objective_of("dice", reading, **keys)
    check(objective, lambda x: theirs(x, torch.tensor(target)), target)


def test_masked_dice() -> None:
    _, target, _ = made()
    mask = (np.random.default_rng(1).random((2, 1, *SHAPE[2:])) < 0.6).astype(np.float64)
    theirs = losses.DiceLoss(sigmoid=False)

    def masked(x: Any) -> Any:
        kept = torch.tensor(mask)
        return theirs(torch.sigmoid(x) * kept, torch.tensor(target) * kept)

    check(objective_of("dice", LOGITS), masked, target, mask)


def test_cross_entropy_and_dice() -> None:
    _, target, _ = made()
    truth = torch.tensor(target)
    theirs = losses.DiceCELoss(softmax=True, lambda_dice=2.0, lambda_ce=0.5)
    check(objective_of("ce_dice", ce=0.5, dice=2.0), lambda x: theirs(x, truth), target)
    dice = losses.DiceLoss(sigmoid=True)
    bce = torch.nn.BCEWithLogitsLoss()
    ours = objective_of("bce_dice", bce=0.5, dice=2.0)
    check(ours, lambda x: 2 * dice(x, truth) + 0.5 * bce(x, truth), target)


@pytest.mark.parametrize("alpha", [None, 0.25])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("reading", [LOGITS, CLASSES])
def test_focal(reading: Any, gamma: float, alpha: float | None) -> None:
    _, target, _ = made()
    theirs = losses.FocalLoss(use_softmax=reading == CLASSES, gamma=gamma, alpha=alpha)
    # MONAI computes in float32, and its mean is over voxels and classes; ours is over voxels.
    factor = 1 if reading == LOGITS else SHAPE[1]
    objective = objective_of("focal", reading, gamma=gamma, alpha=alpha)
    check(objective, lambda x: theirs(x, torch.tensor(target)), target, factor=factor, error=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 1.0)])
@pytest.mark.parametrize("ignored", [False, True])
def test_cross_entropy(smoothing: float, weights: Any, ignored: bool) -> None:
    _, target, numbers = made()
    numbers = np.where(ignored & (numbers == 1), 255, numbers)
    theirs = torch.nn.CrossEntropyLoss(
        weight=None if weights is None else torch.tensor(weights, dtype=torch.float64),
        label_smoothing=smoothing, ignore_index=255,
    )  # fmt: skip
    counted = (numbers != 255).astype(np.float64)[:, None]
    objective = objective_of("softmax", label_smoothing=smoothing, class_weights=weights)
    check(objective, lambda x: theirs(x, torch.tensor(numbers)), target, counted)
