"""Losses against hand-computed values and finite differences."""

import numpy as np
import pytest
from objectives import every_objective, objective_of

from znnpy.errors import ShapeError, ZnnpyError
from znnpy.learning.dice import OverlapKeys

OBJECTIVES = every_objective()


def loss_and_gradient(loss, *arrays):
    objective = objective_of(loss) if isinstance(loss, str) else loss
    return objective.value_and_gradient(*arrays)


SHAPE = (2, 3, 1, 2, 2)


def sample(seed=0):
    rng = np.random.default_rng(seed)
    shares = rng.random(SHAPE)
    weight = rng.random((SHAPE[0], 1, *SHAPE[2:]))
    return rng.standard_normal(SHAPE), shares / shares.sum(axis=1, keepdims=True), weight


@pytest.mark.quick(15)
@pytest.mark.parametrize("name", OBJECTIVES, ids=lambda it: f"{it.keys!r}-{it.reading.name}")
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_the_finite_difference(name, weighted):
    values, target, weight = sample()
    chosen = weight if weighted else None
    _, gradient = loss_and_gradient(name, values, target, chosen)
    for index in np.ndindex(*SHAPE):
        step = np.zeros(SHAPE)
        step[index] = 1e-6
        above, _ = loss_and_gradient(name, values + step, target, chosen)
        below, _ = loss_and_gradient(name, values - step, target, chosen)
        np.testing.assert_allclose(gradient[index], (above - below) / 2e-6, rtol=1e-5, atol=1e-9)


def test_losses_counted_by_hand():
    values = np.array([0.0, 2.0]).reshape(1, 2, 1, 1, 1)
    target = np.array([1.0, 0.0]).reshape(1, 2, 1, 1, 1)
    assert loss_and_gradient("square", values, target)[0] == pytest.approx((1 + 4) / 2)
    logistic = 1 / (1 + np.exp(-2.0))
    expected = (np.log(2) - np.log(1 - logistic)) / 2
    assert loss_and_gradient("binomial_cross_entropy", values, target)[0] == pytest.approx(expected)
    share = 1 / (1 + np.exp(2.0))
    assert loss_and_gradient("softmax", values, target)[0] == pytest.approx(-np.log(share))


def test_softmax_reads_the_first_image_of_a_weight():
    values, target, weight = sample()
    full = np.concatenate([weight, 0 * weight, 7 * weight], axis=1)
    one = loss_and_gradient("softmax", values, target, weight)
    assert loss_and_gradient("softmax", values, target, full)[0] == one[0]


def test_a_weight_of_zero_does_not_hide_nan():
    values, target, weight = sample()
    weight[0, 0, 0, 0, 0] = 0.0
    values[0, 0, 0, 0, 0] = np.nan
    assert np.isnan(loss_and_gradient("square", values, target, weight)[0])


def test_a_weight_of_one_image_counts_for_all_images():
    values, target, weight = sample()
    full = np.broadcast_to(weight, SHAPE)
    one = loss_and_gradient("square", values, target, weight)
    all_images = loss_and_gradient("square", values, target, full)
    assert one[0] == pytest.approx(all_images[0])
    np.testing.assert_allclose(one[1], all_images[1])


@pytest.mark.parametrize("name", OBJECTIVES, ids=lambda it: f"{it.keys!r}-{it.reading.name}")
def test_masked_voxels_weigh_nothing(name):
    values, target, weight = sample()
    weight[:, :, :, 0] = 0.0
    spoilt = values.copy()
    spoilt[:, :, :, 0] = 1e3
    clean = loss_and_gradient(name, values, target, weight)
    got = loss_and_gradient(name, spoilt, target, weight)
    assert got[0] == pytest.approx(clean[0])
    np.testing.assert_array_equal(got[1], clean[1])
    assert loss_and_gradient(name, values, target, 0 * weight)[0] == 0.0


@pytest.mark.parametrize("name", OBJECTIVES, ids=lambda it: f"{it.keys!r}-{it.reading.name}")
def test_targets_that_weigh_nothing_may_be_nan(name):
    values, target, weight = sample()
    weight[:, :, :, 0] = 0.0
    clean = loss_and_gradient(name, values, target, weight)
    target[:, :, :, 0] = [[[[np.nan]]]]
    got = loss_and_gradient(name, values, target, weight)
    assert np.isfinite(got[0])
    assert got[0] == clean[0]
    np.testing.assert_array_equal(got[1], clean[1])


@pytest.mark.parametrize("name", OBJECTIVES, ids=lambda it: f"{it.keys!r}-{it.reading.name}")
def test_nan_and_huge_logits_show(name):
    values, target, _ = sample()
    assert np.isnan(loss_and_gradient(name, values * np.nan, target)[0])
    loss, gradient = loss_and_gradient(name, values * 1e4, target)
    assert np.isfinite(loss)
    assert np.isfinite(gradient).all()


def test_wrong_names_and_shapes_are_refused():
    values, target, weight = sample()
    with pytest.raises(ZnnpyError, match="binomial_cross_entropy"):
        loss_and_gradient("binomal", values, target)
    with pytest.raises(ShapeError, match="target"):
        loss_and_gradient("square", values, target[:, :2])
    with pytest.raises(ShapeError, match="weight"):
        loss_and_gradient("softmax", values, target, weight[:1])


@pytest.mark.parametrize(
    "objective",
    [it for it in OBJECTIVES if not isinstance(it.keys, OverlapKeys)],
    ids=lambda it: f"{it.keys!r}-{it.reading.name}",
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_weight_of_a_mean_is_known_without_values(objective, weighted):
    """Targets that weigh nothing may be NaN."""
    values, target, weight = sample()
    weight[0, :, 0, 0] = 0.0
    target[0, :, 0, 0] = np.nan if weighted else target[0, :, 0, 0]
    given = (target, objective.counting(weight, values.shape) if weighted else None)
    (wanted,) = objective.part_weights(values, *given)
    assert objective.total_weights(*given)[0] == pytest.approx(wanted)
    counted = objective.counting(given[1], values.shape)
    per = len(values) if objective.loss.by_sample else float(counted.sum())
    assert objective.total_weights(*given)[1] == pytest.approx(per)


@pytest.mark.parametrize(
    ("name", "keys", "images", "why"),
    [
        ("malis", {}, 3, ""),
        ("malis", {}, 2, "has 3 offsets"),
        ("softmax", {}, 5, ""),
        ("softmax", {"class_weights": (1.0, 2.0)}, 2, ""),
        ("softmax", {"class_weights": (1.0, 2.0)}, 3, "has 2 class_weights"),
        ("dice", {"include_background": False}, 2, ""),
        ("dice", {"include_background": False}, 1, "leaves the first channel out"),
        ("dice", {}, 1, ""),
    ],
)
def test_outputs_of_a_number_of_images_that_a_loss_cannot_train(name, keys, images, why):
    objective = objective_of(name, **keys)
    refused = objective.loss.refused(objective.keys, objective.reading, images)
    assert refused.startswith(why)
    assert bool(refused) == bool(why)
