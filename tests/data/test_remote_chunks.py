"""Volumes over the network: what is read from a server on the loopback is what lies there, and errors are one line."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from chunked_files import write_n5, write_precomputed

from znnpy.data import http_transfer
from znnpy.data.opening import open_volume
from znnpy.data.remote_chunks import FsspecTransfer, RemoteChunks
from znnpy.errors import ChangedError, VolumeError

STACK = np.random.default_rng(0).integers(0, 200, (9, 17, 19)).astype(np.uint16)


class Server(SimpleHTTPRequestHandler):
    """Files of a folder. `ranges`: parts of files, too; `broken`: how many answers fail, are cut or say 403."""

    ranges = True
    broken: list[str] = []  # noqa: RUF012
    seen: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        place = Path(self.translate_path(self.path))
        self.seen.append(self.path)
        trouble = self.broken.pop() if self.broken else ""
        if trouble in ("403", "500", "503"):
            self.send_error(int(trouble))
            return
        if trouble == "elsewhere":
            self.send_response(302)
            self.send_header("Location", f"file://{place}")
            self.end_headers()
            return
        if not place.is_file():
            self.send_error(404)
            return
        data, asked = place.read_bytes(), self.headers.get("Range")
        if asked and self.ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            data = (
                data[-int(last) :] if not first else data[int(first) : int(last or len(data)) + 1]
            )
        self.send_response(206 if asked and self.ranges else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if trouble == "cut" else data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(http_transfer, "PAUSE", 0.001)
    monkeypatch.setattr(Server, "ranges", True)
    monkeypatch.setattr(Server, "broken", [])
    monkeypatch.setattr(Server, "seen", [])
    (tmp_path / "served").mkdir()
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *a: Server(*a, directory=str(tmp_path / "served"))
    ) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _zarr(form: int, **more: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        made = zarr.create_array(
            path, shape=STACK.shape, dtype=STACK.dtype, chunks=(4, 4, 4), zarr_format=form, **more
        )
        made[...] = STACK
        made.attrs["resolution"] = [40, 4, 4]

    return write


WRITTEN: dict[str, Callable[[Path], None]] = {
    "a b.zarr": _zarr(2),
    "b.zarr": _zarr(3),
    "shards.zarr": _zarr(3, shards=(8, 8, 8)),
    "plain": _zarr(3),
    "c.n5": lambda path: write_n5(path, STACK),
    "some/volume": lambda path: write_precomputed(path, STACK),
}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("ranges", [True, False])
def test_every_format(
    tmp_path: Path, url: str, name: str, ranges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "ranges", ranges)
    (tmp_path / "served" / name).parent.mkdir(exist_ok=True)
    WRITTEN[name](tmp_path / "served" / name)
    with open_volume(f"{url}/{name}") as volume:
        assert volume.name.startswith(f"{url}/{name}")
        assert volume.dtype == STACK.dtype
        assert volume.resolution == ((1, 1, 1) if "n5" in name else (40, 4, 4))
        assert np.array_equal(volume.read_all()[0], STACK)
        assert np.array_equal(volume.read((1, 2, 3), (6, 16, 17))[0], STACK[1:6, 2:16, 3:17])
        volume.verify()


def test_arrays_are_named_after_a_colon(tmp_path: Path, url: str) -> None:
    write_n5(tmp_path / "served" / "a.n5" / "volumes" / "raw", STACK)
    write_n5(tmp_path / "served" / "a.n5" / "other", STACK + np.uint16(1))
    write_precomputed(tmp_path / "served" / "v", STACK)
    for source, add in (("a.n5", 0), ("a.n5:other", 1), ("v:4_4_40", 0)):
        with open_volume(f"{url}/{source}") as volume:
            assert np.array_equal(volume.read_all()[0], STACK + add)


@pytest.mark.parametrize("trouble", ["500", "503", "cut"])
def test_what_fails_now_and_then_is_asked_again(tmp_path: Path, url: str, trouble: str) -> None:
    write_n5(tmp_path / "served" / "a.n5", STACK)
    with open_volume(f"{url}/a.n5") as volume:
        Server.broken[:] = [trouble] * 3
        assert np.array_equal(volume.read_all()[0], STACK)
        Server.broken[:] = [trouble] * 4
        with pytest.raises(VolumeError, match=rf"{url}/a.n5/0/0/0 cannot be read"):
            volume.read_all()


def test_what_is_refused(tmp_path: Path, url: str) -> None:
    write_n5(tmp_path / "served" / "a.n5", STACK)
    (tmp_path / "served" / "p.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    for source, words in (
        ("p.h5", "only these are read over the network"),
        ("nothing", "only these are read over the network"),
        ("no.zarr", "is no Zarr folder"),
        ("a.n5:../x", "is no path inside the folder"),
        ("a.n5:x", "has no array x"),
    ):
        with pytest.raises(VolumeError, match=words):
            open_volume(f"{url}/{source}")
    before = len(Server.seen)
    Server.broken[:] = ["403"]
    with pytest.raises(VolumeError, match=r"a\.n5/attributes\.json cannot be read: .*403"):
        open_volume(f"{url}/a.n5")
    assert len(Server.seen) == before + 1
    Server.broken[:] = ["elsewhere"] * 4
    with pytest.raises(VolumeError, match="cannot be read"):
        open_volume(f"{url}/a.n5")


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_transfer, "PAUSE", 0.001)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else can listen there, and this one does not
        port = silent.getsockname()[1]
        with pytest.raises(
            VolumeError, match=rf"http://127.0.0.1:{port}/a.n5/attributes.json cannot be read"
        ):
            open_volume(f"http://127.0.0.1:{port}/a.n5")


def test_sizes_are_bounded(tmp_path: Path, url: str) -> None:
    write_n5(tmp_path / "served" / "a.n5", STACK)
    place = tmp_path / "served" / "a.n5" / "0" / "0" / "0"
    place.write_bytes(bytes(1 << 20))
    with open_volume(f"{url}/a.n5") as volume, pytest.raises(VolumeError, match="holds more than"):
        volume.read_all()
    (tmp_path / "served" / "a.n5" / "attributes.json").write_bytes(b" " * (17 << 20))
    with pytest.raises(VolumeError, match="holds more than 16"):
        open_volume(f"{url}/a.n5")


def test_metadata_that_change_are_seen(tmp_path: Path, url: str) -> None:
    write_n5(tmp_path / "served" / "a.n5", STACK)
    with open_volume(f"{url}/a.n5") as volume:
        volume.verify()
        marks = tmp_path / "served" / "a.n5" / "attributes.json"
        marks.write_text(marks.read_text() + " ")
        with pytest.raises(ChangedError, match=r"a\.n5/attributes\.json has changed"):
            volume.verify()


@pytest.mark.parametrize(("scheme", "package"), [("s3", "s3fs"), ("gs", "gcsfs")])
def test_without_its_package(scheme: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        VolumeError, match=rf'{scheme}:// files need the package {package}.*"znnpy\[{scheme}\]"'
    ):
        open_volume(f"{scheme}://bucket/a.zarr")


def test_file_systems_of_fsspec(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/a/x/0", b"0123456789")
    chunks = RemoteChunks("memory://bucket/a", ("x",), FsspecTransfer(system))
    assert chunks.read("x/0", 10) == b"0123456789"
    assert chunks.read("x/0", 10, 3, 4) == b"3456"
    assert chunks.read("x/0", 10, -4) == b"6789"
    assert chunks.read("x/0", 10, 0, 0) == b""
    assert chunks.read("x/1", 10) is None
    assert chunks.folders("") == ["x"]
    with pytest.raises(VolumeError, match="holds more than 9"):
        chunks.read("x/0", 9)


class WholeFiles:
    """A store that knows no ends of files."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def cat_file(self, url: str, start: int, end: int | None) -> bytes:
        return self.data if start < 0 else self.data[start:end]


def test_a_store_that_sends_all_for_an_end() -> None:
    chunks = RemoteChunks("gs://bucket/a", (), FsspecTransfer(WholeFiles(b"0123456789")))
    assert chunks.read("x", 10, -4) == b"6789"
    assert chunks.read("x", 10, -4, 2) == b"67"
    assert chunks.read("x", 10, -12) == b"0123456789"


def test_many_chunks_are_asked_for_at_once(tmp_path: Path, url: str) -> None:
    small = {"chunk_sizes": [[4, 4, 4]]}
    write_precomputed(tmp_path / "served" / "v", STACK, **small)
    place = tmp_path / "served" / "v" / "4_4_40"
    for z, y, x in np.ndindex(3, 5, 5):
        part = STACK[4 * z : 4 * z + 4, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4]
        ends = (f"{4 * a}-{4 * a + n}" for a, n in zip((x, y, z), part.shape[::-1], strict=True))
        (place / "_".join(ends)).write_bytes(part.tobytes())
    with open_volume(f"{url}/v") as volume:
        assert np.array_equal(volume.read_all()[0], STACK)
        Server.broken[:] = ["403"]
        with pytest.raises(VolumeError, match=r"4_4_40/.* cannot be read: .*403"):
            volume.read_all()
