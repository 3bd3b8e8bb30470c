"""Large filters of predictions that take little memory wait in a file."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import forked

from znnpy import Execution, Model
from znnpy.engine.memory import filter_file
from znnpy.errors import RunError, ZnnpyError
from znnpy.file_arrays import FileArray, KeptFile
from znnpy.network import initial_parameters, load_network

SHAPE = (8, 16, 16)
# Deep layers run directly, by Winograd's filtering in stages, and with filters transformed on the way.
NETWORK = load_network({"unet": {"widths": [8, 48, 64], "pool": "strided", "norm": "instance"}})


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_file, "LEAST", 8 << 10)
    monkeypatch.setattr(filter_file, "WORTH", 1)
    monkeypatch.setattr(filter_file, "PRODUCTS", 0)


def lean(conv: Any, threads: int = 2) -> Model:
    model = Model(
        NETWORK, SHAPE, conv=conv, training=False, threads=threads, execution=Execution(lean=True)
    )
    model.set_parameters(initial_parameters(NETWORK, 0))
    return model


@pytest.mark.parametrize("conv", ["direct", "winograd"])
def test_same_bits_in_less_memory(conv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, *SHAPE), np.float32)
    with lean(conv) as model:
        expected, memory, before = model.forward(x), model.memory, model.parameters
    monkeypatch.setattr(filter_file, "LEAST", 8 << 10)
    monkeypatch.setattr(filter_file, "WORTH", 1)
    monkeypatch.setattr(filter_file, "PRODUCTS", 0)
    with lean(conv) as model:
        assert model.memory < memory
        for _ in range(2):  # what is read shares memory with what a pass makes
            assert (model.forward(x) == expected).all()
        for name, values in model.parameters.items():
            assert (values == before[name]).all(), name
        # They may be set one by one.
        name = "down2.conv2"
        model.set_parameters({name: before[name] + 1})
        assert (model.parameters[name] == before[name] + 1).all()
        assert (model.forward(x) != expected).any()


def test_what_cannot_be_read_is_told(small: None) -> None:
    x = np.zeros((1, 1, *SHAPE), np.float32)
    with lean("direct") as model:
        file = model._engine._file
        os.truncate(file.number, 5000)
        with pytest.raises(RunError, match="could not be read"):
            model.forward(x)
        with pytest.raises(RunError, match="could not be read"):
            _ = model.parameters


def test_a_folder_that_is_not_there(small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(RunError, match=r"cannot be made in .*none: No such file"):
        lean("direct")


@pytest.mark.parametrize(
    ("number", "told"), [(errno.EOPNOTSUPP, ""), (errno.ENOSPC, "cannot be made in .*No space")]
)
def test_room_is_asked_for_beforehand(
    small: None, monkeypatch: pytest.MonkeyPatch, number: int, told: str
) -> None:
    def none(*given: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", none)
    if told:
        with pytest.raises(RunError, match=told):
            lean("direct")
        return
    # Not every file system can: then files grow as they are written.
    with lean("direct") as model:
        assert np.isfinite(model.forward(np.ones((1, 1, *SHAPE), np.float32))).all()


def test_a_full_disk(small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*given: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(filter_file, "ON_DISK", str(tmp_path / "none"))  # where others are, then
    with pytest.raises(RunError, match=r"cannot be written in /.*: No space left.*TMPDIR"):
        lean("direct")


def test_what_is_written_in_part_is_not_predicted_with(
    small: None, monkeypatch: pytest.MonkeyPatch
):
    x, other = np.zeros((1, 1, *SHAPE), np.float32), initial_parameters(NETWORK, 1)
    write, calls = os.pwrite, list[int]()

    def full(*given: Any) -> int:
        calls.append(1)
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(*given)

    with lean("direct") as model:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(RunError, match="No space left"):
                model.set_parameters(other)
        for _ in range(2):
            with pytest.raises(ZnnpyError, match="set in part"):
                model.forward(x)
        model.set_parameters(other)
        assert np.isfinite(model.forward(x)).all()


def test_nothing_is_left(small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with lean("direct") as model:
        number = model._engine._file.number
        assert os.fstat(number).st_size > 100_000
        assert not [*tmp_path.iterdir()]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)


def test_few_filters_stay_in_memory() -> None:
    with lean("direct") as model:
        assert model._engine._file is None


def test_filters_of_few_products_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over few voxels, as of flat windows, would take longer to read them than it gains."""
    monkeypatch.setattr(filter_file, "LEAST", 8 << 10)
    monkeypatch.setattr(filter_file, "WORTH", 1)
    for products, filed in [(None, False), (10, True)]:
        if products:
            monkeypatch.setattr(filter_file, "PRODUCTS", products)
        with lean("direct") as model:
            assert (model._engine._file is not None) == filed


def in_files(path: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as they lie in a file, one behind the other, behind a few other bytes."""
    path.write_bytes(b"1234" + b"".join(array.tobytes() for array in parameters.values()))
    file, at, found = KeptFile(path), 4, dict[str, Any]()
    for name, array in parameters.items():
        found[name] = FileArray.plain(file, at, array.shape, array.dtype)
        at += array.nbytes
    return found


def test_where_they_lie_already(small: None, tmp_path: Path) -> None:
    """Those of a caller's file are not written to another; some may be set beside them, in memory."""
    x = np.random.default_rng(0).standard_normal((1, 1, *SHAPE), np.float32)
    other, path = initial_parameters(NETWORK, 1), tmp_path / "weights"
    with lean("direct") as model:
        before = model.forward(x)
        model.set_parameters(other)
        expected = model.forward(x)
    with lean("direct") as model:
        model.take_parameters(in_files(path, initial_parameters(NETWORK, 0)))
        assert (model.forward(x) == before).all()
        path.rename(tmp_path / "elsewhere")
        name = "down2.conv2"
        model.set_parameters({name: other[name]})
        assert (model.parameters[name] == other[name]).all()
        model.set_parameters({it: values for it, values in other.items() if it != name})
        assert (model.forward(x) == expected).all()
        model.take_parameters(in_files(path, initial_parameters(NETWORK, 0)))
        assert (model.forward(x) == before).all()


def test_no_file_is_made_for_what_lies_in_one(
    small: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = in_files(tmp_path / "weights", initial_parameters(NETWORK, 0))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    lean_model = Model(NETWORK, SHAPE, training=False, threads=1, execution=Execution(lean=True))
    with lean_model as model:
        model.set_parameters(given)
        assert np.isfinite(model.forward(np.zeros((1, 1, *SHAPE), np.float32))).all()


def test_what_has_changed_is_told(small: None, tmp_path: Path) -> None:
    path, x = tmp_path / "weights", np.zeros((1, 1, *SHAPE), np.float32)
    with lean("direct") as model:
        model.set_parameters(in_files(path, initial_parameters(NETWORK, 0)))
        os.truncate(path, 5000)
        with pytest.raises(RunError, match="weights has changed while it was in use"):
            model.forward(x)


def test_processes_of_a_fork_write_files_of_their_own() -> None:
    """As memory would be: one may predict with other filters than the other."""
    file = filter_file.FilterFile(np.zeros(filter_file.words_of(2), np.int64), [(5,), (5,)])
    first, second, more = (np.arange(low, low + 5, dtype=np.float32) for low in (0, 5, 10))

    def told() -> bytes:
        return file.read(0).tobytes() + file.read(1).tobytes()

    def both(into: int) -> None:
        file.set(0, more)
        os.write(into, told())

    file.set(0, first)
    file.set(1, second)
    assert forked(both) == (0, more.tobytes() + second.tobytes())
    assert told() == first.tobytes() + second.tobytes()
    there, forking = os.pipe()
    go, written = os.pipe()

    def waiting(into: int) -> None:
        os.write(forking, b" ")
        os.read(go, 1)
        os.write(into, told())

    def write() -> None:
        os.read(there, 1)
        file.set(1, more)
        os.write(written, b" ")

    writer = threading.Thread(target=write)
    writer.start()
    assert forked(waiting) == (0, first.tobytes() + second.tobytes())
    writer.join()
    assert told() == first.tobytes() + more.tobytes()
    for number in (there, forking, go, written):
        os.close(number)
    file.close()
