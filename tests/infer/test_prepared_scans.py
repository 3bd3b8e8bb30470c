"""Logits of a window as means over members and mirror images, and labels of regions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from znnpy import Model
from znnpy.config import config_from
from znnpy.config.models import LabelsTarget
from znnpy.data.preparing.scan import Prepared
from znnpy.data.preparing.turning import Turn
from znnpy.errors import ConfigError, PredictionError
from znnpy.infer import scan_job
from znnpy.infer.config_model import Weights
from znnpy.infer.scan_job import needed_bytes, scan_model
from znnpy.infer.scans import ScanModel, flips_of, labelled, logits_of, windows_of
from znnpy.network import initial_parameters, trained_network

LAYERS = [
    {"conv": {"channels": 3, "size": 3, "padding": "same", "norm": "instance", "function": "relu"}},
    {"conv": {"channels": 2, "size": [1, 3, 5], "padding": "same"}},
]
WINDOW = (4, 6, 8)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(
        {"layers": LAYERS}, output_shape=WINDOW, threads=1, conv="direct", training=False
    ) as made:
        yield made


def read(nets: list[Any]) -> list[Callable[[], Any]]:
    """What reads the weights of members."""
    return [lambda net=net: dict(net) for net in nets]  # type: ignore[misc]


def members(model: Model, count: int) -> list[Any]:
    return [initial_parameters(model.network, seed) for seed in range(count)]


def test_means_over_members_and_mirror_images(model: Model) -> None:
    window = np.random.default_rng(0).standard_normal((1, *WINDOW)).astype(np.float32)
    nets = members(model, 2)
    scan = ScanModel(model, read(nets), (1, 3))
    (one,), (other,) = ([np.array(it) for it in scan.logits([window], n)] for n in (0, 1))
    found = one + other
    images = []
    for net in nets:
        model.set_parameters(net)
        for axes in ((), (1,), (3,), (1, 3)):
            seen = model.forward(np.flip(window, axes)[None])[0]
            images.append(np.flip(seen, axes))
    assert np.abs(images[0] - images[1]).max() > 0.01
    np.testing.assert_allclose(found, np.mean(images, axis=0), atol=1e-5)


def config(**inference: Any) -> Any:
    return config_from(
        {
            "network": {"layers": LAYERS},
            "data": {
                "prepare": {"normalize": ["none"], "transpose": [2, 0, 1]},
                "normalize": "none",
            },
            "training": {"output_shape": list(WINDOW)},
            "inference": {"blend": "nnunet", "spread": "even", **inference},
        }
    )


def prepared(array: np.ndarray) -> Prepared:
    """A scan of 9 x 10 x 12 voxels, axes turned, of which the first planes were cut off."""
    whole, kept = (
        (12, 9, 10),
        tuple(slice(n - k, n) for n, k in zip((12, 9, 10), array.shape[1:], strict=True)),
    )
    return Prepared(array, whole, kept, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), Turn((2, 0, 1)))  # type: ignore[arg-type]


def test_regions_are_painted_in_their_order(model: Model) -> None:
    scan = prepared(np.random.default_rng(1).standard_normal((1, 10, 8, 9)).astype(np.float32))
    net, plain = ScanModel(model, read(members(model, 1)), ()), config()
    logits = logits_of(net, scan, plain)
    assert logits.shape == (2, 9, 10, 12)
    assert not logits[:, 0].any()
    found = labelled(net, scan, config(regions=[7, 300]))
    assert found.dtype == np.uint16
    wanted = np.where(logits[1] > 0, 300, np.where(logits[0] > 0, 7, 0))
    assert np.array_equal(found, wanted)
    assert {0, 7, 300} == set(np.unique(found))
    classes = labelled(net, scan, plain)
    assert classes.dtype == np.uint8
    assert np.array_equal(classes[1:], logits[:, 1:].argmax(axis=0))


@pytest.mark.parametrize("flips", [(), (3,)])
def test_windows_that_share_passes_change_nothing(model: Model, flips: tuple[int, ...]) -> None:
    """To the bit of one member; of several the sums over windows go in other rows."""
    scan = prepared(np.random.default_rng(1).standard_normal((1, 10, 8, 9)).astype(np.float32))
    weights, counts = members(model, 2), list[tuple[int, int]]()
    one, both = (
        logits_of(ScanModel(model, read(weights[:n]), flips), scan, config()) for n in (1, 2)
    )
    with Model(
        {"layers": LAYERS}, WINDOW, batch=6, threads=1, conv="direct", training=False
    ) as made:
        net = ScanModel(made, read(weights[:1]), flips)
        assert np.array_equal(logits_of(net, scan, config()), one)
        net = ScanModel(made, read(weights), flips)
        found = logits_of(net, scan, config(), lambda *count: counts.append(count))
    np.testing.assert_allclose(found, both, atol=1e-6)
    assert counts == [(number, counts[-1][1]) for number in range(1, counts[-1][1] + 1)]


def test_memory_has_room_for_what_all_windows_of_a_pass_say(model: Model) -> None:
    """They overlap, and have more voxels than the planes that they lie in."""
    scan, said = prepared(np.zeros((1, 4, 8, 9), np.float32)), config(overlap=0.75)
    alone = ScanModel(model, read(members(model, 1)), ())
    larger: Any = SimpleNamespace(batch=6, network=model.network)
    together = ScanModel(larger, alone.members, ())
    one, six = (needed_bytes(it, scan, said, logits=False) for it in (alone, together))
    assert math.prod(map(len, windows_of(said, scan).starts)) >= 6
    assert six - one == 4 * 2 * (6 * math.prod(WINDOW) - scan.array.size)


def test_classes_have_the_numbers_of_their_labels(model: Model) -> None:
    """0 is what was cut off, as what nobody has labelled."""
    scan = prepared(np.random.default_rng(1).standard_normal((1, 10, 8, 9)).astype(np.float32))
    net = ScanModel(model, read(members(model, 1)), ())
    numbered = config()
    target = LabelsTarget(kind="labels", first=1)
    numbered = numbered.model_copy(
        update={"data": numbered.data.model_copy(update={"target": target})}
    )
    found, logits = labelled(net, scan, numbered), logits_of(net, scan, numbered)
    seen = logits.any(axis=0)
    assert 0 < seen.mean() < 1
    assert np.array_equal(found, np.where(seen, 1 + logits.argmax(axis=0), 0))


@pytest.mark.parametrize(("loss", "half"), [("bce", 0.0), ("square", 0.5)])
def test_a_mask_is_what_is_above_a_half(loss: str, half: float) -> None:
    layers = [*LAYERS[:1], {"conv": {"channels": 1, "size": 3, "padding": "same"}}]
    settings = config().model_dump(exclude_unset=True)
    settings["network"] = {"layers": layers}
    settings["data"]["target"], settings["training"]["loss"] = "mask", loss
    scan = prepared(np.random.default_rng(1).standard_normal((1, 10, 8, 9)).astype(np.float32))
    with Model(
        {"layers": layers}, output_shape=WINDOW, threads=1, conv="direct", training=False
    ) as made:
        net = ScanModel(made, read(members(made, 1)), ())
        logits = logits_of(net, scan, config_from(settings))
        found = labelled(net, scan, config_from(settings))
    assert ((logits > 0) != (logits > 0.5)).any()
    assert np.array_equal(found, logits[0] > half)


def test_channels_that_overlap_are_no_labels_but_have_logits() -> None:
    settings = config().model_dump(exclude_unset=True)
    settings["data"]["target"], settings["training"]["loss"] = "mask", "bce"
    settings["training"]["conv"] = "direct"
    made = config_from(settings)
    weights = Weights(made, trained_network(made), None, {})
    with (
        pytest.raises(ConfigError, match=r"may overlap.*inference\.regions=\[1,2\]"),
        scan_model(weights, []),
    ):
        pass
    with scan_model(weights, [], logits=True) as model:
        assert model.channels == 2


def test_passes_have_no_room_for_more_windows_than_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = config(flips=["x"]).model_dump(exclude_unset=True)
    settings["training"]["conv"] = "direct"
    made = config_from(settings)
    weights = Weights(made, trained_network(made), None, {})
    shared = scan_job.shared_pass
    monkeypatch.setattr(scan_job, "shared_pass", lambda *given: (8, shared(*given)[1]))
    z, y, x = WINDOW
    for extent, batch in {
        (z, y, x): 2,
        (1, y, x + 1): 4,
        (8 * z, y, x): 8,
        (9 * z, y, x): 6,
        None: 8,
    }.items():
        with scan_model(weights, [], extent=extent) as model:
            assert (model.model.batch, model.planned) == (batch, 8)


def test_axes_of_flips() -> None:
    assert flips_of(config(flips=["x", "z"])) == (1, 3)
    assert flips_of(config()) == ()


def test_values_that_are_not_finite_are_refused(model: Model) -> None:
    wild = {name: array * np.float32(1e30) for name, array in members(model, 1)[0].items()}
    with pytest.raises(PredictionError, match="NaN or infinite"):
        ScanModel(model, read([wild]), ()).logits([np.full((1, *WINDOW), 1e30, np.float32)])


def test_what_begins_early_is_not_done_again(model: Model) -> None:
    given, taken = members(model, 2), list[int]()

    def reading(number: int) -> Callable[[], Any]:
        return lambda: taken.append(number) or dict(given[number])

    windows = [np.random.default_rng(0).standard_normal((1, *WINDOW)).astype(np.float32)]
    wanted = [
        np.array(ScanModel(model, read(given), ()).logits(windows, number)[0]) for number in (0, 1)
    ]
    scan = ScanModel(model, [reading(0), reading(1)], ())
    for turn in range(2):
        scan.begin()
        assert taken == [0, 1] * turn + [0]
        for number in (0, 1):
            np.testing.assert_array_equal(scan.logits(windows, number)[0], wanted[number])
    assert taken == [0, 1, 0, 1]
