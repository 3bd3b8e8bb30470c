import json

import numpy as np
import pytest

from znnpy.config import config_from
from znnpy.data.sampling.targets import AffinityTarget, BoundaryTarget
from znnpy.data.scene import Scene
from znnpy.data.volume import ArrayVolume
from znnpy.errors import VolumeError
from znnpy.evaluation.scores import Labelled, Objects, safe_threshold
from znnpy.evaluation.volume import evaluate, read_known
from znnpy.infer.blocks import whole_field
from znnpy.infer.config_model import Weights
from znnpy.metrics import adapted_rand, variation
from znnpy.network import build_network
from znnpy.segment.job import Request, segment

CONFIG = {
    "network": {"layers": [{"conv": {"channels": 1, "size": 1, "init": -3.0, "bias_init": 0}}]},
    "data": {"border": "mirror", "normalize": "mean_std"},
    "training": {"output_shape": 4},
}


def cubes():
    """8 objects of 9^3 voxels with dark walls; noise so that one threshold is not quite enough."""
    labels = np.zeros((20, 20, 20), np.uint8)
    for number, (z, y, x) in enumerate(np.ndindex(2, 2, 2), start=1):
        labels[z * 10 : z * 10 + 9, y * 10 : y * 10 + 9, x * 10 : x * 10 + 9] = number
    noise = np.random.default_rng(0).normal(0, 5, labels.shape)
    raw = (labels > 0) * 100 + noise
    return Scene(
        {"input": ArrayVolume(raw.astype(np.float32), "raw")},
        {"output": ArrayVolume(labels, "labels")},
    )


def weights():
    config = config_from(CONFIG)
    network = build_network(config.network)
    parameters = {
        "conv1": np.full((1, 1, 1, 1, 1), -3, np.float32),
        "output": np.full(1, -2, np.float32),
    }
    return Weights(config, network, None, parameters)


def test_perfect_and_trivial_predictors():
    """The network inverts the raw image, so boundaries are positive: nearly perfect by design."""
    scene = cubes()
    (found,) = evaluate(weights(), scene, scene)
    network, mean = found.scores["network"], found.scores["predicting the mean"]
    share = found.known.target.mean()
    # Voxels of objects that touch a wall are boundary too, and not dark.
    assert network.average_precision > 0.75 > mean.average_precision == pytest.approx(share)
    assert network.adapted_rand_error < 0.1
    assert mean.adapted_rand_error > 0.5
    assert found.record()["scores"]["network"]["voi"] == network.voi
    (grown,) = evaluate(weights(), scene, scene, Objects(min_size=20, grow=3))
    assert grown.scores["network"].adapted_rand_error == pytest.approx(0, abs=1e-9)
    assert grown.scores["network"].voi == pytest.approx(0, abs=1e-9)
    (alone,) = evaluate(weights(), scene)
    assert list(alone.scores) == ["network"]


def test_objects_are_those_of_segment():
    scene = cubes()
    (found,) = evaluate(weights(), scene)
    same = segment(ArrayVolume(found.found, "p"), Request())
    assert found.scores["network"].threshold == same.threshold
    assert len(same.sizes) >= 8
    assert variation(found.objects, same.labels.astype(np.int64)).total == 0
    assert adapted_rand(scene.labels["output"].read_all()[0], found.objects).error == (
        found.scores["network"].adapted_rand_error
    )


def test_labels_must_be_there():
    scene = cubes()
    with pytest.raises(VolumeError, match="no labels for output output"):
        evaluate(weights(), Scene(scene.images, {}))


def test_a_threshold_of_0_is_one():
    scene = cubes()
    for train in (scene, None):
        (found,) = evaluate(weights(), scene, train, Objects(threshold=0.0))
        assert found.scores["network"].threshold == 0
        assert found.scores["network"].voi_merge < 1e-9  # no voxel lies below: nothing is joined


def test_where_nothing_counts_nothing_is_scored():
    scene = cubes()
    nothing = ArrayVolume(np.zeros((20, 20, 20), np.uint8), "mask")
    masked = Scene(scene.images, scene.labels, {"output": nothing})
    with pytest.raises(VolumeError, match="labels: no voxel that is predicted counts"):
        evaluate(weights(), masked, scene)
    with pytest.warns(UserWarning, match="raw: in the middle .* nothing counts.*no baselines"):
        (found,) = evaluate(weights(), scene, masked)
    assert list(found.scores) == ["network"]


def test_baselines_need_voxels_that_count_in_each_image():
    """Affinities along z have none in a volume of one plane."""
    config = config_from(
        {
            "network": {"layers": [{"conv": {"channels": 3, "size": 1}}]},
            "data": {"border": "mirror", "target": "affinity"},
            "training": {"output_shape": 4},
        }
    )
    parameters = {"conv1": np.ones((3, 1, 1, 1, 1), np.float32), "output": np.zeros(3, np.float32)}
    affinities = Weights(config, build_network(config.network), None, parameters)
    plane = cubes()
    flat = Scene(
        *(
            {name: ArrayVolume(it.read_all()[:, :1], it.name) for name, it in volumes.items()}
            for volumes in (plane.images, plane.labels)
        )
    )
    with pytest.warns(UserWarning, match=r"raw: in the middle \(1, .* not in all channels"):
        (found,) = evaluate(affinities, cubes(), flat)
    assert list(found.scores) == ["network"]


def test_scores_of_a_volume_without_positives_are_json(recwarn):
    scene = cubes()
    same = ArrayVolume(np.ones((20, 20, 20), np.uint8), "labels")
    (found,) = evaluate(weights(), Scene(scene.images, {"output": same}), scene)
    assert {one.average_precision for one in found.scores.values()} == {None}
    json.dumps(found.record(), allow_nan=False)
    assert all("labels that count are 1" in str(warning.message) for warning in recwarn.list)


def regression(raw, labels, target="image"):
    """Weights of a square loss, each output 0.5 * raw + 1, and a scene with labels (C, z, y, x)."""
    images = len(labels)
    config = config_from(
        {
            "network": {"layers": [{"conv": {"channels": images, "size": 1}}]},
            "data": {"border": "mirror", "normalize": "none", "target": target},
            "training": {"output_shape": 4, "loss": "square"},
        }
    )
    filters = np.full((images, 1, 1, 1, 1), 0.5, np.float32)
    parameters = {"conv1": filters, "output": np.ones(images, np.float32)}
    scene = Scene({"input": ArrayVolume(raw, "raw")}, {"output": ArrayVolume(labels, "labels")})
    return Weights(config, build_network(config.network), None, parameters), scene


def test_values_are_scored_as_values():
    raw = np.random.default_rng(0).normal(3, 2, (8, 9, 10)).astype(np.float32)
    labels = np.stack([0.5 * raw + 2, -raw, np.full(raw.shape, 7, np.float32)])
    weights, scene = regression(raw, labels)
    (found,) = evaluate(weights, scene, scene)
    network, mean = found.scores["network"], found.scores["predicting the mean"]
    apart = 0.5 * raw + 1 - labels
    assert network.squared_error == pytest.approx(np.mean(apart**2), rel=1e-5) == found.loss
    assert network.absolute_error == pytest.approx(np.abs(apart).mean(), rel=1e-5)
    assert network.correlation == (pytest.approx(1), pytest.approx(-1), None)
    variances = labels.var(axis=(1, 2, 3))
    assert mean.squared_error == pytest.approx(variances.mean(), rel=1e-5)
    assert mean.correlation == (None,) * 3
    assert list(found.scores) == ["network", "predicting the mean"]
    assert found.span == (labels.min(), labels.max())
    assert "voxel_error" not in json.dumps(found.record(), allow_nan=False)
    (alone,) = evaluate(weights, scene)
    assert alone.scores == {"network": network}


def test_the_config_says_whether_zeros_and_ones_are_values():
    raw = np.random.default_rng(0).normal(3, 2, (8, 9, 10)).astype(np.float32)
    labels = (raw > 3)[None].astype(np.float32)
    weights, scene = regression(raw, labels)
    (found,) = evaluate(weights, scene, scene)
    assert found.scores["network"].squared_error == pytest.approx(found.loss)
    weights, scene = regression(raw, labels, "mask")
    (found,) = evaluate(weights, scene, scene)
    assert found.scores["network"].voxel_error == np.mean((0.5 * raw + 1 > 0.5) != (raw > 3))
    assert found.span == (0, 1)


def test_known_region_is_cut_from_the_whole_target():
    scene, network = cubes(), weights().network
    corner = {"input": (0, 0, 0)}
    field = whole_field(network, scene.images, corner, mirror=False)
    inner = type(field)((3, 4, 5), (9, 8, 7), (1, 1, 1), corner)
    for target in (BoundaryTarget(2), AffinityTarget()):
        whole = read_known(scene, "output", target, field)
        part = read_known(scene, "output", target, inner)
        cut = (slice(3, 12), slice(4, 12), slice(5, 12))
        assert np.array_equal(part.target, whole.target[:, *cut])
        assert np.array_equal(part.objects, whole.objects[cut])
        assert np.array_equal(part.raw, whole.raw[cut])


def test_safe_threshold_stays_clear_of_the_leap():
    """Two objects that merge above 0.3 and are found voxel by voxel below."""
    truth = np.repeat([1, 2], 50).reshape(1, 1, 100).astype(np.uint8)
    ranking = np.linspace(0, 0.4, 100, dtype=np.float32).reshape(1, 1, 1, 100)
    known = Labelled(ranking, ranking, truth, ranking[0])

    def segment(found, level):
        if level > 0.3:
            return np.ones_like(truth)
        return np.where(found[0] < level + 0.1, truth, 0)

    assert 0.2 < safe_threshold(ranking, known, segment, cautious_first=True) < 0.3
    assert safe_threshold(ranking, known, None, cautious_first=True) is None
    high = safe_threshold(ranking, known, lambda _, level: truth, cautious_first=False)
    assert high == pytest.approx(0.32, abs=1e-6)
