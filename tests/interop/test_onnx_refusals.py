"""ONNX files that are damaged, absurd, unsafe, or of what is not supported: one error each, nothing written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_files import CONV, NET, WEIGHTS, drawn, model, written

from znnpy.errors import ModelFileError
from znnpy.interop.run import write_run
from znnpy.interop.source import read_model


def apart(folder: Path, **more: str) -> Path:
    """A model whose tensors lie in a file beside it, with other entries of where."""
    made = model([CONV, ("Relu", "c", "y")], WEIGHTS)
    onnx.save(
        made, folder / "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0
    )
    made = onnx.load(folder / "a.onnx", load_external_data=False)
    for entry in made.graph.initializer[0].external_data:
        entry.value = more.get(entry.key, entry.value)
    (folder / "a.onnx").write_bytes(made.SerializeToString())
    return folder / "a.onnx"


def test_data_beside_the_model(tmp_path: Path) -> None:
    found = read_model(apart(tmp_path)).members["weights"]()
    assert np.array_equal(found["c"], WEIGHTS["c.weight"])


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (
            {"location": "../secret"},
            "c.weight: its data lie in '../secret', outside of the model's folder",
        ),
        ({"location": "/etc/passwd"}, "outside of the model's folder"),
        ({"location": "link/secret"}, "outside of the model's folder"),
        ({"location": ""}, "outside of the model's folder"),
        ({"location": "no.data"}, "there is no file .*no.data"),
        ({"offset": "-4"}, "bytes -4 to .* are not those of its shape"),
        ({"length": "12"}, "are not those of its shape"),
        ({"offset": "99999999999999"}, "are not those of its shape"),
        ({"offset": "many"}, "cannot be read"),
    ],
)
def test_data_that_lie_elsewhere(entries: dict[str, str], words: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(864))
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(ModelFileError, match=words):
        read_model(apart(folder, **entries))


X = "x"
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "operator": ([("Einsum", "x", "y", {"equation": "a"})], {}, "Einsum /a/y/Einsum: is not supported"),
    "attribute": (
        [("MaxPool", "x", "y", {"kernel_shape": [2, 2, 2], "dilations": [2, 2, 2]})], {},
        "MaxPool /a/y/MaxPool: attribute dilations: .2, 2, 2. is not supported",
    ),
    "unknown attribute": ([("Relu", "x", "y", {"speed": 3})], {}, "Relu /a/y/Relu: attribute speed is not supported"),
    "type of an attribute": (
        [("Conv", "x c.weight", "y", {"group": 1.5})], WEIGHTS, "attribute group is '1.5', and must be of type int",
    ),
    "cycle": (
        [("Add", "x b", "a"), ("Relu", "a", "b"), ("Relu", "b", "y")], {}, "Add: reads b, which nothing before",
    ),
    "made twice": ([("Relu", "x", "y"), ("Relu", "y", "y")], {}, "makes y, which is made already"),
    "nothing made": ([("Relu", "x", "z")], {}, "output y is made by no operator"),
    "channels": ([("Conv", "x d.weight", "y")], WEIGHTS, "filters of 4 channels in 1 groups for 2 channels"),
    "too small": (
        [("Conv", "x c.weight", "y")], {"c.weight": drawn(1, 2, 7, 1, 1)}, r"a feature map of \(6, 8, 12\) voxels",
    ),
    "attention, after a layer that is not supported": (
        [("Mish", "x", "m"), ("MatMul", "m x", "s"), ("Softmax", "s", "p"), ("Dropout", "p", "d"),
         ("MatMul", "d x", "y")],
        {}, "Softmax /a/p/Softmax: is of attention, which is not supported",
    ),
    "softmax times weights": (
        [("Softmax", "x", "p"), ("MatMul", "p w", "y")], {"w": drawn(12, 12)},
        r"Softmax /a/p/Softmax: (?!is of attention)",
    ),
    "cubic": (
        [("Resize", "x - s", "y", {"mode": "cubic"})],
        {"s": np.array([1, 1, 2, 2, 2], np.float32)}, "attribute mode: cubic is not supported",
    ),
    "finer than the input": (
        [("Resize", "x - s", "y", {"mode": "linear"})], {"s": np.array([1, 1, 1, 1.5, 1], np.float32)},
        "its voxels lie 1 x 2/3 x 1 input voxels apart .z, y, x., but those of an output lie whole numbers apart",
    ),
    "parts of voxels": (
        [("Resize", "x - s", "y", {"mode": "linear"})], {"s": np.array([1, 1, 1, 0.7, 1], np.float32)},
        "Resize /a/y/Resize: scale 0.7 of 8 voxels leaves a part of a voxel over",
    ),
    "one voxel of PyTorch's": (
        [("Resize", "x - s", "y", {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"})],
        {"s": np.array([1, 1, 1, 0.125, 1], np.float32)}, "pytorch_half_pixel to one voxel is not supported",
    ),
    "nearest to one voxel of PyTorch's": (
        [("Resize", "x - s", "y", {"coordinate_transformation_mode": "pytorch_half_pixel",
          "nearest_mode": "round_prefer_ceil"})],
        {"s": np.array([1, 1, 1, 0.125, 1], np.float32)}, "pytorch_half_pixel to one voxel is not supported",
    ),
    "part of an image, of its size": (
        [("Resize", "x r s", "y", {"coordinate_transformation_mode": "tf_crop_and_resize"})],
        {"r": np.array([0, 0, 0, 0.2, 0.2, 1, 1, 1, 0.8, 0.8], np.float32), "s": np.ones(5, np.float32)},
        "coordinate_transformation_mode: tf_crop_and_resize is not supported",
    ),
    "slopes along the last axis": (
        [("Conv", "x c", "k"), ("PRelu", "k p", "y")], {"c": drawn(12, 2, 1, 1, 1), "p": drawn(12)},
        r"PRelu /a/y/PRelu: a constant of shape \(12,\) beside a tensor",
    ),
    "nearest of another rounding": (
        [("Resize", "x - s", "y", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"})],
        {"s": np.array([1, 1, 2, 2, 2], np.float32)}, "attributes asymmetric and ceil from 6 to 12 voxels",
    ),
    "sums of sizes": (
        [("MaxPool", "x", "m", {"kernel_shape": [1, 1, 5]}), ("Add", "x m", "y")], {},
        r"Add /a/y/Add: joins shapes \(1, 2, 6, 8, 12\) and \(1, 2, 6, 8, 8\)",
    ),
    "places of maxima": (
        [("MaxPool", "x", "m y", {"kernel_shape": [2, 2, 2]})], {}, "MaxPool /a/m/MaxPool: output y is not supported",
    ),
    "one bound": ([("Clip", "x k", "y")], {"k": np.float32(0)}, "Clip /a/y/Clip: without a lower and an upper bound"),
    "ceil": (
        [("MaxPool", "x", "y", {"kernel_shape": [4, 2, 2], "strides": [4, 2, 2], "ceil_mode": 1})], {}, "ceil_mode",
    ),
    "training": (
        [("BatchNormalization", "x o n n o", "y", {"training_mode": 1})],
        {"o": np.ones(2, np.float32), "n": np.zeros(2, np.float32)}, "training_mode: 1 is not supported",
    ),
    "value of padding": (
        [("Pad", "x p v", "y")], {"p": np.array([0, 0, 1, 1, 1] * 2), "v": np.float32(3)}, "other than 0",
    ),
    "no channels": (
        [("Pad", "x p", "y")], {"p": np.array([0, 1, 0, 0, 0, 0, -4, 0, 0, 0])}, "leave no channels",
    ),
    "mirrored beyond": (
        [("Pad", "x p", "y", {"mode": "reflect"})], {"p": np.array([0, 0, 1, 8, 1] * 2)},
        "Pad /a/y/Pad: mirrors .* voxels of a feature map",
    ),
    "constant": ([("Add", "x k", "y")], {"k": drawn(6, 8, 12)}, r"a constant of shape \(6, 8, 12\) beside a tensor"),
    "many numbers": (
        [("ConstantOfShape", "k", "c"), ("Add", "x c", "y")], {"k": np.array([1, 1, 2000, 2000, 2000])},
        "ConstantOfShape /a/c/ConstantOfShape: would make a constant of shape",
    ),
    "doubled again and again": (
        [("Concat", "c0 c0", "c1", {"axis": 0}),
         *[("Concat", f"c{n} c{n}", f"c{n + 1}", {"axis": 0}) for n in range(1, 40)], ("Add", "x c40", "y")],
        {"c0": np.ones(2, np.float32)}, "would make a constant of shape",
    ),
    "not finite": ([CONV, ("Relu", "c", "y")], {**WEIGHTS, "c.bias": np.full(4, np.nan, np.float32)}, "not finite"),
    "numbers out": ([("GlobalAveragePool", "x", "y")], {}, r"output y: of shape \(1, 2, 1, 1, 1\) is not supported"),
    "transposed": (
        [("Transpose", "x", "t", {"perm": [0, 1, 4, 3, 2]}), ("Relu", "t", "y")], {},
        "Relu: reads a tensor that was transposed",
    ),
    "transposed at the end": ([("Transpose", "x", "y", {"perm": [0, 1, 4, 3, 2]})], {}, "output y: of shape"),
    "part of a function": ([("Erf", "x", "y")], {}, "y: erf by itself is not supported"),
    "samples": ([("Reshape", "x s", "y")], {"s": np.array([2, 1, 6, 8, 12])}, "output y: of shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_named(case: str, tmp_path: Path) -> None:
    nodes, weights, words = REFUSED[case]
    path = written(tmp_path / "a.onnx", nodes, weights)
    with pytest.raises(ModelFileError, match=words) as found:
        write_run(read_model(path), tmp_path / "run")
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "run").exists()


def test_files_that_are_none(tmp_path: Path) -> None:
    for content in (b"", b"text", bytes(100), b"\x89HDF"):
        (tmp_path / "a.onnx").write_bytes(content)
        with pytest.raises(ModelFileError, match="is no ONNX file"):
            read_model(tmp_path / "a.onnx")


@pytest.mark.parametrize(
    ("opset", "domain", "words"),
    [
        (9, "", "opset 9 is not"),
        (999, "", "opset 999 is not"),
        (18, "com.microsoft", "of com.microsoft"),
    ],
)
def test_other_versions_and_domains(opset: int, domain: str, words: str, tmp_path: Path) -> None:
    made = model([("Relu", "x", "y")], opset=opset)
    made.graph.node[0].domain = domain
    (tmp_path / "a.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ModelFileError, match=words):
        read_model(tmp_path / "a.onnx")


def test_absurd_shapes(tmp_path: Path) -> None:
    made = model([CONV, ("Relu", "c", "y")], WEIGHTS)
    made.graph.initializer[0].dims[0] = 1 << 50
    (tmp_path / "a.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ModelFileError, match=r"c.weight: shape .* is no tensor's"):
        read_model(tmp_path / "a.onnx")
    made = model([("Relu", "x", "y")], shape=(1, 2, 1 << 40, 8, 8))
    (tmp_path / "a.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ModelFileError, match="input x has shape"):
        read_model(tmp_path / "a.onnx")


def test_two_inputs(tmp_path: Path) -> None:
    made = model([("Add", "x z", "y")])
    made.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 2, 6, 8, 12]))
    (tmp_path / "a.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(ModelFileError, match="one input is supported; it has x, z"):
        read_model(tmp_path / "a.onnx")


def test_numbers_in_lists_and_of_half_precision(tmp_path: Path) -> None:
    made = model([CONV, ("Relu", "c", "y")], WEIGHTS)
    half = numpy_helper.from_array(WEIGHTS["c.weight"].astype(np.float16), "c.weight")
    made.graph.initializer[0].CopyFrom(half)
    listed = helper.make_tensor("c.bias", TensorProto.FLOAT, [4], WEIGHTS["c.bias"].tolist())
    made.graph.initializer[1].CopyFrom(listed)
    (tmp_path / "a.onnx").write_bytes(made.SerializeToString())
    found = read_model(tmp_path / "a.onnx").members["weights"]()
    assert np.array_equal(found["c"], WEIGHTS["c.weight"].astype(np.float16).astype(np.float32))
    assert np.array_equal(found["c.out"] if "c.out" in found else found["y"], WEIGHTS["c.bias"])


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.onnx", *NET)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ModelFileError, match=r'pip install "znnpy\[onnx\]"'):
        read_model(path)
