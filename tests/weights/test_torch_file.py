"""PyTorch's files read without PyTorch: what they hold, and that nothing of them runs."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_files import Call, Kept, Named, pickled, save, tensor, write

from znnpy.errors import ModelFileError
from znnpy.weights.pickled import STEPS, Inert
from znnpy.weights.torch_file import read_torch

EIGHT = np.arange(8, dtype="<f4")
STORED = {"0": EIGHT.tobytes()}


def number(value: float, code: str = "f8", order: str = "<") -> Call:
    """A NumPy scalar, as pickles of protocol 2 hold it."""
    dtype = Call("numpy", "dtype", (code, False, True), (3, order, None, None, None, -1, -1, 0))
    text = np.array(value, order + code if code != "O8" else "<f8").tobytes().decode("latin1")
    return Call(
        "numpy._core.multiarray", "scalar", (dtype, Call("_codecs", "encode", (text, "latin1")))
    )


def of_pickle(folder: Path, value: Any) -> Any:
    data = value if isinstance(value, bytes) else pickled(value)
    return read_torch(write(folder / "a.pth", data, STORED))


def test_what_checkpoints_hold(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "a.weight": rng.standard_normal((3, 2, 1, 3, 3)).astype("<f4"),
        "b": rng.standard_normal(5),
        "steps": np.array(7),
        "none": np.empty((0, 3), "<f4"),
        "half": np.float16([1.5, -2]),
    }
    beside = {
        "logging": {"loss": [number(0.25), number(0.5, "f4")], "epoch": number(3, "i8")},
        "init_args": {"device": Call("torch", "device", ("cpu",)), "fold": 0, "unpack": True},
        "axes": (0, 1, 2),
        "none": None,
    }
    found = read_torch(save(tmp_path / "a.pth", arrays, **beside))
    assert list(found["state"]) == list(arrays)
    for name, array in arrays.items():
        read = found["state"][name].array()
        assert read.dtype == array.dtype
        assert np.array_equal(read, array)
    assert found["logging"] == {"loss": [0.25, 0.5], "epoch": 3}
    assert found["init_args"]["device"].of == "torch.device"
    assert found["axes"] == (0, 1, 2)
    assert found["none"] is None


def test_views_share_what_is_stored(tmp_path: Path) -> None:
    turned = tensor("0", (2, 4), 8, claimed=(4, 2), strides=(1, 4))
    found = of_pickle(tmp_path, [turned, tensor("0", (3,), 8, offset=5)])
    assert np.array_equal(found[0].array(), EIGHT.reshape(2, 4).T)
    assert np.array_equal(found[1].array(), [5, 6, 7])
    assert found[0].array().base is not None
    assert np.shares_memory(found[0].array(), found[1].array())
    with pytest.raises(ValueError, match="read-only"):
        found[1].array()[0] = 1


def bombs() -> dict[str, Any]:
    """Pickles that run code, or take memory or the stack, in unpicklers that let them."""
    deep = b"\x80\x02" + b")" + b"\x85" * (STEPS // 2) + b"."
    return {
        "os.system": Call("os", "system", ("touch ran",)),
        "eval": Call("builtins", "eval", ("open('ran', 'w')",)),
        "getattr": Call("builtins", "getattr", (Named("os", "system"), "__call__")),
        "a name within a name": Call("torch", "_utils.os.system", ("touch ran",)),
        "load from bytes": Call("torch.storage", "_load_from_bytes", (b"cos\nsystem\n(S'touch ran'\ntR.",)),
        "within a known name": Call("torch._utils", "_rebuild_parameter", (Call("os", "system", ("touch ran",)),)),
        "pip": Call("pip", "main", (["install", "x"],)),
        "state of a class": Call("collections", "OrderedDict", (), {"__class__": Named("os", "system")}),
        "object scalar": number(0.5, "O8"),
        "other order": number(0.5, "f8", ">"),
        "array of objects": Call("numpy._core.multiarray", "_reconstruct", (Named("numpy", "ndarray"), (0,), b"b")),
        "deep": deep,
    }  # fmt: skip


@pytest.mark.parametrize("name", bombs())
def test_no_code_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = of_pickle(tmp_path, bombs()[name])
    assert not (tmp_path / "ran").exists()
    # What is called is never made: an empty object stands for it, or a plain value.
    assert isinstance(found, Inert | dict | tuple)


REFUSED = {
    "no storage": (Call("torch._utils", "_rebuild_tensor_v2", (1, 0, (1,), (1,))), "no storage"),
    "beyond": (tensor("0", (8,), 8, offset=1), "reaches beyond"),
    "far beyond": (tensor("0", (2, 2), 8, strides=(1 << 40, 1)), "reaches beyond"),
    "backwards": (tensor("0", (2,), 8, offset=7, strides=(-1,)), "no such numbers"),
    "endless": (tensor("0", (1 << 20, 1 << 20), 8, strides=(0, 0)), "repeats"),
    "many axes": (tensor("0", (1,) * 9, 8), "more axes"),
    "no numbers": (tensor("0", (8,), 8, claimed=("8",)), "no such numbers"),
    "truths": (tensor("0", (1,), 8, claimed=(True,)), "no such numbers"),
    "other size": (tensor("0", (8,), 9), "another size"),
    "other type": (tensor("0", (8,), 8, "<f8"), "another size"),
    "no such key": (tensor("1", (8,), 8), "missing"),
    "a way out": (tensor("../data.pkl", (8,), 8), "missing"),
    "unknown storage": (Kept(("storage", Named("os", "system"), "0", "cpu", 8)), "stored as os.system"),
    "module": (Kept(("module", "x", "y", "z")), "other than numbers"),
    "a call of a number": (b"\x80\x02K\x01)R.", "calls a int"),
    "memory of the memo": (b"\x80\x02h\xff.", "never kept"),
    "long text": (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b".", "only"),
    "long bytes": (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b".", "only"),
    "long number": (b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b".", "not enough data"),
    "steps": (b"\x80\x02" + b"N0" * (STEPS // 2 + 1) + b"N.", "steps"),
    "nothing": (b"\x80\x02.", "more than one"),
    "two values": (b"\x80\x02NN.", "more than one"),
    "no end": (b"\x80\x02N", "no sound"),
    "instances": (b"\x80\x02(ios\nsystem\n.", "INST"),
    "extensions": (b"\x80\x02\x82\x01.", "EXT1"),
    "buffers": (b"\x80\x05\x97.", "NEXT_BUFFER"),
    "below a mark": (b"\x80\x02N(0t.", "not there"),
    "no mark": (b"\x80\x02Nt.", "did not begin"),
    "a tuple as key": (b"\x80\x02})NsN0.", "key of type tuple"),
    "unhashable": (b"\x80\x02}]Ns.", "key of type list"),
    "appended to": (b"\x80\x02K\x01Na.", "appends to"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    value, words = REFUSED[name]
    with pytest.raises(ModelFileError, match=words) as error:
        of_pickle(tmp_path, value)
    assert "a.pth" in str(error.value)


def test_a_place_in_the_memo_costs_nothing(tmp_path: Path) -> None:
    assert of_pickle(tmp_path, b"\x80\x02Nr\xff\xff\xff\xff0j\xff\xff\xff\xff.") is None


def test_archives_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    with pytest.raises(ModelFileError, match="is no file"):
        read_torch(path)
    for data, words in (
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "before 1.6"),
        (b"\x89HDF\r\n\x1a\n", "no PyTorch file"),
        (b"PK\3\4" + bytes(100), "cut short"),
    ):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match=words):
            read_torch(path)
    whole = save(path, {"a": EIGHT}).read_bytes()
    for cut in (len(whole) - 1, len(whole) // 2, 30):
        path.write_bytes(whole[:cut])
        with pytest.raises(ModelFileError, match="no sound"):
            read_torch(path)
    write(path, pickled({}), {}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="compressed"):
        read_torch(path)
    for names, words in (
        (["archive/other"], "no data.pkl"),
        (["a/data.pkl", "b/data.pkl"], "no data.pkl"),
        (["a/data.pkl", "a/constants.pkl"], "TorchScript"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, b"")
        with pytest.raises(ModelFileError, match=words):
            read_torch(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickled({}))
        archive.writestr("a/byteorder", "big")
    with pytest.raises(ModelFileError, match="big-endian"):
        read_torch(path)


def test_damaged_numbers_are_found_when_they_are_read(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", {"a": EIGHT, "b": EIGHT + 100})
    data = bytearray(path.read_bytes())
    data[data.index(EIGHT.tobytes()) + 5] ^= 1
    path.write_bytes(data)
    found = read_torch(path)["state"]
    assert np.array_equal(found["b"].array(), EIGHT + 100)
    with pytest.raises(ModelFileError, match="checksum"):
        found["a"].array()


def test_a_long_list_of_members_is_not_read(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", {"a": EIGHT})
    data = bytearray(path.read_bytes())
    data[-10:-6] = struct.pack("<I", 1 << 30)
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="longer than"):
        read_torch(path)
