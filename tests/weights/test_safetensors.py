"""safetensors files beside the library's own, and files that are none."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from znnpy.errors import ModelFileError
from znnpy.weights.safetensors import read_safetensors


def written(path: Path, header: Any, data: bytes = bytes(32)) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_what_the_library_writes(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal((2, 3, 4)).astype(np.float32),
        "b": np.arange(5),
        "c": np.array(2.5),
        "d": np.array([True, False]),
        "e": np.float16([[1, 2]]),
    }
    path = tmp_path / "a.safetensors"
    library.save_file(arrays, path, metadata={"format": "np"})
    found = read_safetensors(path)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(found[name].array(), array)
        assert found[name].array().dtype == array.dtype


def test_the_upper_half_of_a_float(tmp_path: Path) -> None:
    values = np.float32([1.5, -0.25])
    header = {"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    data = (values.view("<u4") >> 16).astype("<u2").tobytes()
    found = read_safetensors(written(tmp_path / "a", header, data))
    assert np.array_equal(found["a"].array(), values)


def entry(**changes: Any) -> Any:
    return {"a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32], **changes}}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ([], "no JSON object"),
        (entry(dtype="Q9"), "of type Q9"),
        (entry(data_offsets=[0, 40]), "outside"),
        (entry(data_offsets=[-4, 28]), "outside"),
        (entry(data_offsets=[32, 0]), "outside"),
        (entry(shape=[3, 4]), "another size"),
        (entry(shape=[-2, -4]), "another size"),
        (entry(shape=["2", 4]), "outside"),
        (entry(shape=[2, 4] + [1] * 20), "more axes"),
        ({"a": 1}, "no sound"),
        ({"a": {}}, "no sound"),
    ],
)
def test_what_is_refused(header: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=words):
        read_safetensors(written(tmp_path / "a", header))


def test_headers_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data in (b"", b"1234567", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"{"):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match="no sound"):
            read_safetensors(path)
