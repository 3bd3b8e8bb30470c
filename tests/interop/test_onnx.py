"""ONNX files as runs: values beside ONNX's own evaluator, names, sizes, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_files import CONV, NET, WEIGHTS, drawn, written

from znnpy import Hardware, Model, load_network
from znnpy.config import load_config
from znnpy.errors import ModelFileError
from znnpy.geometry import fit_input
from znnpy.interop.operators.described import described
from znnpy.interop.operators.sketch import Sketch
from znnpy.interop.operators.value import Value
from znnpy.interop.run import write_run
from znnpy.interop.source import is_model, read_model
from znnpy.network import training_losses
from znnpy.train.progress import Quiet
from znnpy.train.start import read_run

IMAGE = drawn(1, 2, 6, 8, 12)


def ours(path: Path, image: Any = IMAGE) -> dict[str, Any]:
    """Outputs by name, in float64."""
    found = read_model(path)
    network = load_network(found.config["network"])
    solid = image if image.ndim == 5 else image[:, :, None]
    shapes = dict(fit_input(network, solid.shape[2:]).output_shapes)
    hardware = Hardware(precision="float64")
    with Model(
        network, shapes, training=False, hardware=hardware, loss=found.config["training"]["loss"]
    ) as made:
        made.set_parameters(found.members["weights"]())
        values = made.forward(solid)
    return values if isinstance(values, dict) else {network.outputs[0].name: values}


def theirs(path: Path, image: Any = IMAGE) -> list[Any]:
    return ReferenceEvaluator(str(path)).run(None, {"x": image})


def check(path: Path, image: Any = IMAGE) -> None:
    found, wanted = ours(path, image), theirs(path, image)
    assert len(found) == len(wanted)
    for array, (name, value) in zip(wanted, found.items(), strict=True):
        solid = array if array.ndim == 5 else array[:, :, None]
        np.testing.assert_allclose(value, solid, rtol=1e-4, atol=1e-5, err_msg=name)


FEWER = ("MaxPool", "x", "f", {"kernel_shape": [1, 2, 3], "strides": [1, 2, 3]})
SMALLER = ("MaxPool", "x", "f", {"kernel_shape": [1, 3, 4]})
ONES, ZEROS = np.ones(2, np.float32), np.zeros(2, np.float32)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one of many kinds": NET,
    "same, upper": (
        [("Conv", "x c.weight", "y", {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]})],
        {"c.weight": drawn(3, 2, 3, 4, 2)},
    ),
    "same, lower": (
        [("Conv", "x c.weight", "y", {"auto_pad": "SAME_LOWER"})], {"c.weight": drawn(3, 2, 3, 4, 2)},
    ),
    "padding beyond the filter": (
        [("Conv", "x c.weight", "y", {"pads": [0, 3, 0, 1, 0, 2]})], {"c.weight": drawn(3, 2, 1, 3, 2)},
    ),
    "dilated, grouped": (
        [("Conv", "x c.weight", "y", {"dilations": [1, 2, 3], "group": 2})],
        {"c.weight": drawn(4, 1, 2, 3, 2)},
    ),
    "transposed": (
        [FEWER, ("ConvTranspose", "f c.weight b", "y",
          {"strides": [1, 2, 3], "pads": [0, 1, 0, 1, 0, 1], "output_padding": [0, 1, 2]})],
        {"c.weight": drawn(2, 3, 3, 2, 3), "b": drawn(3)},
    ),
    "averages without padding": (
        [("AveragePool", "x", "y", {"kernel_shape": [3, 2, 2], "pads": [1, 0, 1, 1, 1, 0]})], {},
    ),
    "nearest by scales": ([FEWER, ("Resize", "f - s", "y", {"coordinate_transformation_mode": "asymmetric",
                           "nearest_mode": "floor"})], {"s": np.array([1, 1, 1, 2, 3], np.float32)}),
    "nearest of centres": ([FEWER, ("Resize", "f - s", "y")], {"s": np.array([1, 1, 1, 2, 3], np.float32)}),
    "linear between corners": (
        [FEWER, ("Resize", "f - s", "y", {"mode": "linear", "coordinate_transformation_mode": "align_corners"})],
        {"s": np.array([1, 1, 1, 2, 3], np.float32)},
    ),
    **{
        f"resized to {size}, {mode}, {how}, {rounds}": (
            [SMALLER if size[0] == 8 else FEWER, ("Resize", "f - - s", "y",
             {"mode": mode, "coordinate_transformation_mode": how, "nearest_mode": rounds})],
            {"s": np.array([1, 2, 6, *size])},
        )
        for size in ((8, 12), (4, 6), (2, 4))
        for mode, how, rounds in (
            ("nearest", "asymmetric", "floor"), ("nearest", "half_pixel", "round_prefer_ceil"),
            ("linear", "half_pixel", "floor"), ("linear", "align_corners", "floor"),
        )
    },
    "replicated border": (
        [("Pad", "x p", "q", {"mode": "edge"}), ("Conv", "q c.weight", "y")],
        {"p": np.array([0, 0, 1, 0, 1, 0, 0, 0, 0, 2]), "c.weight": drawn(3, 2, 3, 1, 4)},
    ),
    "borders by themselves": (
        [("Pad", "x p", "q", {"mode": "reflect"}), ("Pad", "q p", "r", {"mode": "edge"}), ("Pad", "r p", "y")],
        {"p": np.array([0, 0, 1, 0, 3, 0, 0, 0, 2, 1])},
    ),
    "cropped unevenly": (
        [("Slice", "x s e a", "y")],
        {"s": np.array([1, -7]), "e": np.array([2**62, 7]), "a": np.array([2, 3])},
    ),
    "cut by channels": (
        [("Slice", "x s e a", "one"), ("Split", "x", "two three", {"axis": 1, "num_outputs": 2}),
         ("Sub", "one three", "d"), ("Neg", "d", "n"), ("Max", "n two", "y")],
        {"s": np.array([0]), "e": np.array([1]), "a": np.array([1])},
    ),
    "numbers": (
        [("Mul", "x g", "a"), ("Add", "a h", "b"), ("Sub", "k b", "c"), ("Div", "c g", "y")],
        {"g": drawn(1, 2, 1, 1, 1), "h": drawn(2, 1, 1, 1), "k": np.float32(0.7)},
    ),
    "repeated constants": (
        [CONV, ("Tile", "g twice", "t"), ("Mul", "c t", "y")],
        {**WEIGHTS, "g": drawn(1, 2, 1, 1, 1), "twice": np.array([1, 2, 1, 1, 1])},
    ),
    "groups by reshape": (
        [CONV, ("Reshape", "c to", "r"), ("InstanceNormalization", "r one nil", "i"), ("Shape", "c", "s"),
         ("Reshape", "i s", "b"), ("Mul", "b g", "m"), ("Add", "m h", "y")],
        {**WEIGHTS, "to": np.array([0, 2, -1]), "one": ONES, "nil": ZEROS, "g": drawn(4, 1, 1, 1),
         "h": drawn(4, 1, 1, 1)},
    ),
    "linear layers of means": (
        [CONV, ("ReduceMean", "c axes", "m", {"keepdims": 0}),
         ("Gemm", "m f.weight f.bias", "f", {"transB": 1}), ("Sigmoid", "f", "g"),
         ("Unsqueeze", "g back", "u"), ("Mul", "c u", "y")],
        {**WEIGHTS, "axes": np.array([2, 3, 4]), "back": np.array([2, 3, 4]),
         "f.weight": drawn(4, 4), "f.bias": drawn(4)},
    ),
    "groups with a scale for each": (
        [CONV, ("Reshape", "c to", "r"), ("InstanceNormalization", "r g h", "i"), ("Shape", "c", "s"),
         ("Reshape", "i s", "y")],
        {**WEIGHTS, "to": np.array([0, 2, -1]), "g": drawn(2), "h": drawn(2, seed=1)},
    ),
    "groups": (
        [CONV, ("GroupNormalization", "c g h", "y", {"num_groups": 2})],
        {**WEIGHTS, "g": drawn(2), "h": drawn(2, seed=1)},
    ),
    "cut off at both ends": (
        [CONV, ("Clip", "c lo hi", "k"), ("HardSigmoid", "k", "y", {"alpha": 0.3, "beta": 0.4})],
        {**WEIGHTS, "lo": np.float32(-0.1), "hi": np.float32(0.25)},
    ),
    "outputs that nothing reads": (
        [CONV, ("Dropout", "c", "d mask"), ("MaxPool", "d", "y places", {"kernel_shape": [2, 2, 2]})], WEIGHTS,
    ),
    "silu": ([CONV, ("Sigmoid", "c", "s"), ("Mul", "c s", "y")], WEIGHTS),
    "gelu": ([CONV, ("Gelu", "c", "y", {"approximate": "tanh"})], WEIGHTS),
    "gelu in parts": (
        [CONV, ("Div", "c r", "d"), ("Erf", "d", "e"), ("Add", "e o", "a"), ("Mul", "c a", "m"), ("Mul", "m h", "y")],
        {**WEIGHTS, "r": np.float32(2**0.5), "o": np.float32(1), "h": np.float32(0.5)},
    ),
    "hard swish in parts": (
        [CONV, ("HardSigmoid", "c", "h", {"alpha": 1 / 6}), ("Mul", "h c", "y")], WEIGHTS,
    ),
    "padding of a transposed convolution beyond its filters": (
        [FEWER, ("ConvTranspose", "f c.weight", "y", {"strides": [1, 2, 3], "pads": [0, 2, 2, 1, 0, 3]})],
        {"c.weight": drawn(2, 3, 1, 2, 3)},
    ),
    "functions": (
        [CONV, ("LeakyRelu", "c", "l", {"alpha": 0.2}), ("Elu", "l", "e", {"alpha": 0.7}),
         ("HardSwish", "e", "h"), ("PRelu", "h p", "q"), ("Softmax", "q", "y", {"axis": 1})],
        {**WEIGHTS, "p": drawn(4, 1, 1, 1)},
    ),
    "voxels of a resize along two axes": (
        [FEWER, ("Gather", "f i", "a", {"axis": 3}), ("Gather", "a j", "b", {"axis": -1}), ("Relu", "b", "y")],
        {"i": np.arange(8) // 2, "j": np.arange(6) * 4 // 6},
    ),
    "voxels of a resize that are read between axes": (
        [FEWER, ("Gather", "f i", "z", {"axis": 3}), ("Gather", "z j", "y", {"axis": 4})],
        {"i": np.arange(8) // 2, "j": (2 * np.arange(6) + 1) * 4 // 12},
    ),
    "voxels of two resizes along one axis": (
        [FEWER, ("Gather", "f i", "a", {"axis": 3}), ("Gather", "a j", "y", {"axis": 3})],
        {"i": np.arange(6) * 4 // 6, "j": np.arange(4) * 6 // 4},
    ),
    "voxels of two resizes that round otherwise": (
        [FEWER, ("Gather", "f i", "a", {"axis": 3}), ("Gather", "a j", "b", {"axis": 4}),
         ("MaxPool", "b", "y", {"kernel_shape": [1, 3, 1], "strides": [1, 3, 1]})],
        {"i": np.arange(6) * 4 // 6, "j": (2 * np.arange(6) + 1) * 4 // 12},
    ),
    "voxels after a resize by lines": (
        [FEWER, ("Resize", "f - s", "u", {"mode": "linear"}), ("Gather", "u j", "y", {"axis": 4})],
        {"s": np.array([1, 1, 1, 2, 1], np.float32), "j": np.arange(6) * 4 // 6},
    ),
    "voxels and channels by number": (
        [("Gather", "x i", "a", {"axis": 3}), ("Gather", "a j", "y", {"axis": 1})],
        {"i": np.arange(2, 7) - 8, "j": np.array([1, 0, -1])},
    ),
    "an output that is read": ([CONV, ("Relu", "c", "y"), ("Add", "y c", "z")], WEIGHTS),
    "shapes of shapes": (
        [("Conv", "x c.weight c.bias", "c", {"pads": [1] * 6, "strides": [2, 1, 2]}), ("Shape", "c", "s"),
         ("Slice", "s two five nought", "z"), ("Cast", "z", "f", {"to": 1}),
         ("Mul", "f twice", "t"), ("Floor", "t", "fl"), ("Cast", "fl", "i", {"to": 7}),
         ("Slice", "s nil two nought", "b"), ("Gather", "s one", "g"), ("Concat", "first four i", "sz", {"axis": 0}),
         ("Resize", "c - - sz", "y", {"mode": "linear"})],
        {**WEIGHTS, "two": np.array([2]), "five": np.array([5]), "nought": np.array([0]), "nil": np.array([0]),
         "one": np.array([1]), "first": np.array([1]), "four": np.array([4]), "twice": np.float32([2, 1, 2])},
    ),
}  # fmt: skip


READ = ("an output that is read", "voxels of a resize that are read between axes")


@pytest.mark.parametrize("case", CASES)
def test_values(case: str, tmp_path: Path) -> None:
    nodes, weights = CASES[case]
    outputs = ("y", "z") if case in READ else ("y",)
    check(written(tmp_path / "a.onnx", nodes, weights, outputs=outputs, opset=20))


@pytest.mark.parametrize(("before", "after"), [(3, -1), (2, -3), (-3, 2), (-1, 1)])
def test_channels_cut_off_among_those_that_are_added(
    before: int, after: int, tmp_path: Path
) -> None:
    """Which ONNX's own evaluator cannot."""
    pads = np.array([0, before, 0, 0, 0, 0, after, 0, 0, 0])
    (found,) = ours(written(tmp_path / "a.onnx", [("Pad", "x p", "y")], {"p": pads})).values()
    more = [(0, 0), (max(before, 0), max(after, 0)), (0, 0), (0, 0), (0, 0)]
    wanted = np.pad(IMAGE, more)[:, max(-before, 0) :]
    np.testing.assert_array_equal(found, wanted[:, : wanted.shape[1] + min(after, 0)])


@pytest.mark.parametrize("shifts", [True, False])
def test_a_layer_norm_of_channels_last(shifts: bool, tmp_path: Path) -> None:
    weights = {**WEIGHTS, "n.weight": drawn(4), "n.bias": drawn(4, seed=1)}
    nodes = [
        CONV,
        ("Transpose", "c", "t", {"perm": [0, 2, 3, 4, 1]}),
        (
            "LayerNormalization",
            "t n.weight" + " n.bias" * shifts,
            "n",
            {"axis": -1, "epsilon": 1e-3},
        ),
        ("Transpose", "n", "y", {"perm": [0, 4, 1, 2, 3]}),
    ]
    check(written(tmp_path / "a.onnx", nodes, weights, opset=20))
    nodes[2] = ("LayerNormalization", "c n.weight n.bias", "n", {"axis": 1})
    with pytest.raises(ModelFileError, match=r"LayerNormalization.*axis: 1 is not supported"):
        read_model(written(tmp_path / "b.onnx", nodes, weights, opset=20))


SCALE, SHIFT = ("Mul", "u g", "m"), ("Add", "m h", "y")
WRITTEN: dict[str, list[Any]] = {
    "channel": [
        ("ReduceMean", "c one", "mean"), ("Sub", "c mean", "away"), ("Pow", "away two", "square"),
        ("ReduceMean", "square one", "v"), ("Add", "v tiny", "w"), ("Sqrt", "w", "s"),
        ("Div", "away s", "u"), SCALE, SHIFT,
    ],
    "channel, a product": [
        ("ReduceMean", "c one", "mean"), ("Sub", "c mean", "away"), ("Mul", "away away", "square"),
        ("ReduceMean", "square one", "v"), ("Add", "v tiny", "w"), ("Pow", "w half", "s"), ("Div", "away s", "y"),
    ],
    "length": [("ReduceL2", "c one", "l"), ("Max", "l tiny", "s"), ("Div", "c s", "u"), SCALE, SHIFT],
    "length, clipped": [
        ("Pow", "c two", "q"), ("ReduceSum", "q one", "t"), ("Sqrt", "t", "l"),
        ("Clip", "l tiny", "s"), ("Expand", "s whole", "e"), ("Div", "c e", "y"),
    ],
    "response": [
        ("ReduceL2", "c space", "n"), ("ReduceMean", "n one", "a"), ("Add", "a tiny", "b"), ("Div", "n b", "r"),
        ("Mul", "c r", "u"), SCALE, ("Add", "m h", "k"), ("Add", "k c", "y"),
    ],
}  # fmt: skip
PARTS = {
    "one": np.array([1]), "space": np.array([2, 3, 4]), "two": np.float32(2), "half": np.float32(0.5),
    "tiny": np.float32(1e-3), "whole": np.array([1, 4, 1, 1, 1]),
    "g": drawn(4, 1, 1, 1), "h": drawn(4, 1, 1, 1, seed=1),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN)
def test_norms_that_are_written_out(case: str, tmp_path: Path) -> None:
    path = written(tmp_path / "a.onnx", [CONV, *WRITTEN[case]], {**WEIGHTS, **PARTS}, opset=20)
    check(path)
    nodes = read_model(path).config["network"]["nodes"].values()
    assert [node["norm"]["kind"] for node in nodes if "norm" in node] == [case.partition(",")[0]]


@pytest.mark.parametrize(
    "nodes",
    [
        [("ReduceL2", "c one", "l"), ("Add", "c l", "y")],
        [("ReduceL2", "c space", "l"), ("Div", "c l", "y")],
        [("Pow", "c two", "y")],
        [("Abs", "c", "a"), ("Relu", "a", "y")],
        [("Abs", "c", "a"), ("Neg", "a", "y")],
        [("ReduceMean", "c one", "m"), ("Relu", "m", "y")],
        [("ReduceL2", "c one", "l"), ("Concat", "c l", "y", {"axis": 1})],
        [("Pow", "c two", "q"), ("Reshape", "q flat", "y")],
        [("ReduceSum", "c one", "mean"), *WRITTEN["channel"][1:]],
        [WRITTEN["response"][0], ("ReduceSum", "n one", "a"), *WRITTEN["response"][2:]],
        [("ReduceL2", "c one", "n"), *WRITTEN["response"][1:]],
        [*WRITTEN["response"][:-1], ("Add", "k d", "y")],
    ],
)
def test_parts_of_norms_alone_are_refused(nodes: list[Any], tmp_path: Path) -> None:
    weights = {**WEIGHTS, **PARTS, "flat": np.array([1, 4, -1])}
    path = written(tmp_path / "a.onnx", [CONV, ("Relu", "c", "d"), *nodes], weights, opset=20)
    with pytest.raises(
        ModelFileError, match=r"part of a norm|not supported: channels at voxels are"
    ):
        read_model(path)


def test_ones_and_zeros_are_learned_where_they_are_named_as_weights(tmp_path: Path) -> None:
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    for names, affine in ((("n.weight", "n.bias"), True), (("one", "nil"), False)):
        nodes = [CONV, ("InstanceNormalization", f"c {names[0]} {names[1]}", "y")]
        weights = {**WEIGHTS, names[0]: ones, names[1]: zeros}
        found = read_model(written(tmp_path / "a.onnx", nodes, weights)).config["network"]["nodes"]
        assert found["y"]["norm"]["affine"] == affine


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21, onnx.defs.onnx_opset_version()])
def test_opsets(opset: int, tmp_path: Path) -> None:
    nodes, weights = NET
    path = written(tmp_path / "a.onnx", nodes, weights, opset=max(opset, 11))
    found = ours(path)["y"]
    np.testing.assert_allclose(
        found, theirs(written(tmp_path / "b.onnx", nodes, weights))[0], rtol=1e-4, atol=1e-5
    )


def test_softmax_of_older_opsets(tmp_path: Path) -> None:
    turn = {"perm": [0, 4, 2, 3, 1]}
    nodes = [
        CONV,
        ("Transpose", "c", "t", turn),
        ("Softmax", "t", "s", {"axis": 4}),
        ("Transpose", "s", "y", turn),
    ]
    check(written(tmp_path / "a.onnx", nodes, WEIGHTS, opset=11))


def test_channels_last(tmp_path: Path) -> None:
    """As TensorFlow's nets are written."""
    nodes = [
        ("Transpose", "x", "t", {"perm": [0, 4, 1, 2, 3]}),
        ("Conv", "t c.weight c.bias", "c", {"auto_pad": "SAME_UPPER"}),
        ("Transpose", "c", "y", {"perm": [0, 2, 3, 4, 1]}),
    ]
    path = written(tmp_path / "a.onnx", nodes, WEIGHTS, shape=(1, 6, 8, 12, 2))
    wanted = theirs(path, IMAGE.transpose(0, 2, 3, 4, 1))[0].transpose(0, 4, 1, 2, 3)
    np.testing.assert_allclose(ours(path)["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, -1])
def test_a_single_channel_that_is_last(batch: int, tmp_path: Path) -> None:
    """It is moved by a shape, as TensorFlow's exporter writes it."""
    nodes = [
        ("Reshape", "x first", "t"),
        ("Conv", "t c.weight", "c", {"auto_pad": "SAME_UPPER"}),
        ("Reshape", "c last", "y"),
    ]
    weights = {
        "c.weight": drawn(1, 1, 3, 3, 3),
        "first": np.array([batch, 1, 6, 8, 12]),
        "last": np.array([batch, 6, 8, 12, 1]),
    }
    path = written(tmp_path / "a.onnx", nodes, weights, shape=(1, 6, 8, 12, 1))
    image = drawn(1, 1, 6, 8, 12)
    wanted = theirs(path, image.reshape(1, 6, 8, 12, 1))[0].reshape(image.shape)
    np.testing.assert_allclose(ours(path, image)["y"], wanted, rtol=1e-4, atol=1e-5)


def test_voxels_that_are_repeated(tmp_path: Path) -> None:
    """Along one axis after the other, as TensorFlow's nets grow, whose channels are last in between."""
    nodes = [
        CONV,
        ("MaxPool", "c", "p", {"kernel_shape": [3, 2, 1], "strides": [3, 2, 1]}),
        ("Unsqueeze", "p behind_z", "u"),
        ("Tile", "u thrice", "t"),
        ("Transpose", "t", "l", {"perm": [0, 2, 3, 4, 5, 1]}),
        ("Reshape", "l taller", "z"),
        ("Shape", "z", "s"),
        ("Unsqueeze", "z behind_y", "v"),
        ("Tile", "v twice", "w"),
        ("Mul", "s wider", "n"),
        ("Reshape", "w n", "r"),
        ("Transpose", "r", "y", {"perm": [0, 4, 1, 2, 3]}),
    ]
    z, y, x, channels = (2, 4, 12, len(WEIGHTS["c.weight"]))
    constants = {
        "behind_z": [3],
        "thrice": [1, 1, 1, 3, 1, 1],
        "taller": [-1, 3 * z, y, x, channels],
        "behind_y": [3],
        "twice": [1, 1, 1, 2, 1, 1],
        "wider": [1, 1, 2, 1, 1],
    }
    weights = {**WEIGHTS, **{name: np.array(it) for name, it in constants.items()}}
    check(written(tmp_path / "a.onnx", nodes, weights))
    # Along an axis that is none of space's own, one that is not new, and absurdly often.
    for name, times in (
        ("thrice", [1, 1, 1, 1, 3, 1]),
        ("twice", [1, 1, 2, 1, 1, 1]),
        ("thrice", [1, 1, 1, 1 << 62, 1, 1]),
    ):
        wrong = written(tmp_path / "b.onnx", nodes, {**weights, name: np.array(times)})
        with pytest.raises(ModelFileError, match="repeats"):
            read_model(wrong)


def test_what_learns_apart_is_said(tmp_path: Path) -> None:
    nodes = [CONV, ("PRelu", "c p", "q"), ("Conv", "q s", "d"), ("Conv", "d s", "y")]
    weights = {**WEIGHTS, "p": np.full((1, 1, 1, 1), 0.2, np.float32), "s": drawn(4, 4, 1, 1, 1)}
    found = read_model(written(tmp_path / "a.onnx", nodes, weights))
    notes = found.notes
    (slope,) = (node for node in found.config["network"]["nodes"].values() if "tied" in node)
    assert slope["function"] == "prelu"
    assert slope["tied"] is True
    assert [
        note for note in notes if "Conv /a/y/Conv: filters that an earlier operator has" in note
    ]


def test_flat_nets_have_one_voxel_along_z(tmp_path: Path) -> None:
    nodes = [
        ("Conv", "x c.weight", "c", {"pads": [1, 0, 1, 2], "strides": [2, 2]}),
        ("MaxPool", "c", "p", {"kernel_shape": [2, 3]}),
        ("ConvTranspose", "p d.weight", "y", {"strides": [2, 2]}),
    ]
    weights = {"c.weight": drawn(4, 2, 3, 3), "d.weight": drawn(4, 3, 2, 2)}
    path = written(tmp_path / "a.onnx", nodes, weights, shape=(1, 2, 8, 10))
    check(path, drawn(1, 2, 8, 10))
    found = read_model(path).config["network"]["edges"]
    assert found["c"]["size"] == [1, 3, 3]
    assert found["c"]["padding"] == [[0, 0], [1, 1], [0, 2]]


def test_a_run_has_the_names_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.onnx", *NET)
    assert is_model(path)
    write_run(read_model(path), tmp_path / "run")
    config = load_config(tmp_path / "run" / "config.yaml")
    assert config.network.nodes is not None
    assert config.network.edges is not None
    assert {"c", "e", "d"} <= config.network.edges.keys()
    assert {"x", "n", "y"} <= config.network.nodes.keys()
    # Convolution, norm and function are one node; padding is part of the convolution that reads it.
    assert config.network.nodes["n"].function == "relu"
    assert config.network.edges["e"].padding[0] == (1, 1)  # type: ignore[attr-defined]
    assert config.training.output_shape == (6, 8, 12)
    saved = read_run(tmp_path / "run", Quiet())
    assert np.array_equal(saved.checkpoint.parameters["e"], NET[1]["e.weight"])
    assert np.array_equal(saved.checkpoint.parameters["n.running_variance"], NET[1]["n.var"])


@pytest.mark.parametrize("outputs", [("p", "q"), ("q", "p"), ("q", "r", "p")])
def test_one_value_may_be_two_outputs(outputs: tuple[str, ...], tmp_path: Path) -> None:
    net = [("Conv", "x a", "p"), ("Identity", "p", "q"), ("Conv", "x b", "r")]
    weights = {"a": drawn(3, 2, 1, 1, 1), "b": drawn(1, 2, 1, 1, 1)}
    net, weights = (net, weights) if "r" in outputs else (net[:2], {"a": weights["a"]})
    path = written(tmp_path / "net.onnx", net, weights, outputs=outputs)
    found = ours(path)
    assert found.keys() == set(outputs)
    for name, value in zip(outputs, theirs(path), strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_output_may_have_the_name_of_another_ones_operator() -> None:
    sketch = Sketch()
    image = sketch.node("x", "input", Value("", 2, (4, 4, 4), (1, 2, 4, 4, 4)))
    values = {name: sketch.node(name, "sum", image, 1) for name in ("a", "b", "c")}
    for name, value in values.items():
        sketch.link(f"to.{name}", image, value, "conv", drawn(1, 2, 1, 1, 1), size=[1, 1, 1])
    found = described(sketch, {"b": values["a"], "c": values["b"], "a": values["c"]})
    assert {edge.name: edge.target for edge in found.network.edges} == {
        "to.a": "b", "to.b": "c", "to.c": "a",
    }  # fmt: skip


def test_axes_of_any_size(tmp_path: Path) -> None:
    shape = ("batch", 2, None, "y", 12)
    found = read_model(written(tmp_path / "a.onnx", *NET, shape=shape)).config["training"]
    assert found["output_shape"] == [64, 64, 12]
    check(written(tmp_path / "a.onnx", *NET, shape=shape))


def test_outputs_of_several_kinds_have_losses_of_their_own(tmp_path: Path) -> None:
    """Classes, a boundary and values: each learns by the loss that its function goes with; values stay."""
    net = [("Conv", "x a", "p"), ("Softmax", "p", "kinds", {"axis": 1}), ("Conv", "x b", "q"),
           ("Sigmoid", "q", "edge"), ("Conv", "x b", "far")]  # fmt: skip
    weights = {"a": drawn(3, 2, 1, 1, 1), "b": drawn(1, 2, 1, 1, 1)}
    path = written(tmp_path / "net.onnx", net, weights, outputs=("kinds", "edge", "far"))
    check(path)
    write_run(read_model(path), tmp_path / "run")
    run = read_run(tmp_path / "run", Quiet())
    config = run.config
    losses = {name: own.loss.kind for name, own in config.training.outputs.items() if own.loss}
    assert losses == {"kinds": "softmax", "edge": "binomial_cross_entropy", "far": "square"}
    assert {name: config.target(name).kind for name in losses} == {
        "kinds": "labels",
        "edge": "unknown",
        "far": "unknown",
    }
    read = {name: it.reading.name for name, it in training_losses(config, run.network).items()}
    assert read == {"kinds": "classes", "edge": "logits", "far": "values"}


def test_voxels_of_two_axes_are_one_resize(tmp_path: Path) -> None:
    """Unless something reads what is between them."""
    edges = []
    for case in (
        "voxels of a resize along two axes",
        "voxels of a resize that are read between axes",
    ):
        nodes, weights = CASES[case]
        outputs = ("y", "z") if case in READ else ("y",)
        found = read_model(written(tmp_path / "a.onnx", nodes, weights, outputs=outputs, opset=20))
        network = load_network(found.config["network"])
        kinds = [edge.kind for edge in network.edges if edge.kind in ("resize", "upsample")]
        edges.append(kinds)
    assert edges == [["resize"], ["upsample", "resize"]]


@pytest.mark.parametrize(
    ("axis", "places", "words"),
    [
        (
            3,
            [0, 2, 1],
            r"takes voxels \[0, 2, 1\] ... of 8, which are neither a slice nor those of a resize",
        ),
        (3, [0, 8], r"indices \[0, 8\] are not among 8"),
        (3, [-9], r"indices \[-1\] are not among 8"),
        (3, [[0, 1]], r"of indices \(1, 2\) along axis 3 is not supported: a list is"),
        (3, 1, r"of indices \(\) along axis 3 is not supported"),
        (5, [0], r"along axis 5 is not supported"),
        (0, [0, 0], r"of samples is not supported"),
        (3, [], r"indices \[\] are not among 8"),
    ],
)
def test_other_voxels_are_refused(axis: int, places: Any, words: str, tmp_path: Path) -> None:
    nodes = [("Gather", "x i", "y", {"axis": axis})]
    path = written(tmp_path / "a.onnx", nodes, {"i": np.array(places, np.int64)}, opset=20)
    with pytest.raises(ModelFileError, match=rf"a.onnx: .*Gather.*{words}"):
        read_model(path)
