"""Folders of chunks in a store: the same files as here, resumed, there for readers once all are, refusals in one line.

The store is fsspec's own in memory, under the addresses of s3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
from called import status_of
from chunk_blocks import files, spec_of, values, write_blocks
from exported_runs import run_of

from znnpy.data import remote_chunks
from znnpy.data.opening import open_volume
from znnpy.data.writing import folder_files, pyramid
from znnpy.data.writing.block_output import Finished, open_output
from znnpy.data.writing.destination import Destination, journal_of, partial_of
from znnpy.data.writing.preflight import refuse_loss
from znnpy.errors import VolumeError

BLOCK = (4, 8, 8)
ARRAY = values((2, 5, 12, 9), "u2")
suffixes = pytest.mark.parametrize("suffix", [".zarr", ".n5", ".precomputed"])


class Store(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
    """A store of s3 in memory, which may refuse."""

    protocol = "s3"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    cachable = False
    refused = ""
    error: Exception = PermissionError("Access Denied")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + str(path).removeprefix("s3:").strip("/")

    def pipe_file(self, path: str, value: bytes, **more: Any) -> None:
        if self.refused and self.refused in path:
            raise self.error
        super().pipe_file(path, value, **more)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pyramid, "ENOUGH", 6)  # levels of small images
    monkeypatch.setattr(Store, "store", {})
    system = Store()
    for module in (remote_chunks, folder_files):
        monkeypatch.setattr(module, "system_of", lambda url: system)
    return system


def fill(destination: Destination, count: int | None = None, array: Any = ARRAY) -> None:
    """Blocks that are not written yet, or `count` of them; finished with the last one."""
    spec = spec_of(array, BLOCK)
    with open_output(destination, spec) as out:
        left = [region for region in reversed(spec.blocks()) if region not in out.done]
        for lower, upper in left[:count]:
            at = tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))
            out.write(lower, array[(slice(None), *at)])
        if count is None:
            out.finish()


def named(suffix: str, overwrite: bool = False) -> Destination:
    return Destination.named(f"s3://bucket/a/out{suffix}", "p", overwrite)


def there(system: Store, suffix: str) -> dict[str, bytes]:
    folder = f"/bucket/a/out{suffix}/"
    return {name.removeprefix(folder): system.cat_file(name) for name in system.find(folder)}


@pytest.mark.quick(4)
@suffixes
@pytest.mark.parametrize("done", [None, 0, 3, 7])
def test_the_same_files_as_here(suffix: str, done: int | None, store: Store) -> None:
    wanted = files(write_blocks(Path(f"out{suffix}"), ARRAY, BLOCK))
    destination = named(suffix)
    if done is not None:
        fill(destination, done)
        assert not destination.stands()
        assert journal_of(destination.path).exists()
        with open_output(destination, spec_of(ARRAY, BLOCK)) as out:
            assert len(out.done) == done
    fill(destination)
    assert there(store, suffix) == wanted
    assert destination.stands()
    assert not partial_of(destination.path).exists()
    assert not journal_of(destination.path).exists()
    with open_volume(destination.place) as volume:
        assert np.array_equal(volume.read_all(), ARRAY)


@pytest.mark.quick(1)
@suffixes
def test_blocks_that_have_changed_are_written_again(suffix: str, store: Store) -> None:
    destination = named(suffix)
    fill(destination, 3)
    changed, *_ = there(store, suffix)
    store.pipe_file(f"/bucket/a/out{suffix}/{changed}", b"other")
    with open_output(destination, spec_of(ARRAY, BLOCK)) as out:
        assert len(out.done) == 2
    fill(destination)
    assert there(store, suffix) == files(write_blocks(Path(f"out{suffix}"), ARRAY, BLOCK))


@pytest.mark.quick(2)
@suffixes
def test_what_stands_there_is_refused_or_replaced(suffix: str, store: Store) -> None:
    fill(named(suffix))
    with pytest.raises(
        VolumeError, match=rf"^s3://bucket/a/out{suffix} exists already; name another"
    ):
        fill(named(suffix))
    store.pipe_file(f"/bucket/a/out{suffix}/old/0", b"old")
    array = ARRAY[:, :, :7]
    fill(named(suffix, overwrite=True), array=array)
    with open_volume(f"s3://bucket/a/out{suffix}") as volume:
        assert np.array_equal(volume.read_all(), array)
    assert "old/0" not in there(store, suffix)


@pytest.mark.parametrize(("suffix", "mark"), [(".zarr", "zarr.json"), (".n5", "attributes.json")])
def test_stopped_before_its_last_file_it_is_not_there(
    suffix: str, mark: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination, last = named(suffix), f"out{suffix}/{mark}"
    monkeypatch.setattr(Store, "refused", last)
    with pytest.raises(VolumeError, match=rf"^s3://.*{last} cannot be written: Access Denied"):
        fill(destination)
    assert not destination.stands()
    assert (
        len(there(store, suffix))
        == len(files(write_blocks(Path(f"out{suffix}"), ARRAY, BLOCK))) - 1
    )
    monkeypatch.setattr(Store, "refused", "")
    with pytest.raises(Finished):
        fill(destination)
    with open_volume(destination.place) as volume:
        assert np.array_equal(volume.read_all(), ARRAY)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError("Access Denied"), "Access Denied"),
        # As some libraries say it, with the address alone.
        (FileNotFoundError("s3://bucket/a/out.zarr"), "there is no bucket 'bucket'$"),
    ],
)
def test_a_store_that_refuses(error: Exception, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "refused", "c/0/0")
    monkeypatch.setattr(Store, "error", error)
    with pytest.raises(
        VolumeError, match=rf"^s3://bucket/a/out.zarr/0/c/0/\S+ cannot be written: {told}"
    ):
        fill(named(".zarr"))


def test_after_a_store_that_refuses_all_the_same_command_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though what was begun cannot be removed there: that was no reason to leave its journal alone in the way."""

    def refusing(*_: Any, **__: Any) -> None:
        raise Store.error

    destination = named(".zarr")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "refused", "c/0")
        patch.setattr(Store, "rm", refusing)
        with pytest.raises(VolumeError, match="cannot be written: Access Denied"):
            fill(destination)
    assert not journal_of(destination.path).exists()
    fill(destination)
    with open_volume(destination.place) as volume:
        assert np.array_equal(volume.read_all(), ARRAY)


def test_addresses_are_kept_apart() -> None:
    one, other = (Destination.named(f"s3://{name}/p.zarr", "p") for name in ("a", "b"))
    assert one.path != other.path
    assert one.path == Destination.named("s3://a/p.zarr", "p").path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "s3://bucket/p.h5",
            r"over the network folders of chunks are written \(.zarr, .n5, .precomputed\)",
        ),
        ("gs://bucket/p.nii.gz", r"folders of chunks are written"),
        ("s3://bucket/p", r"folders of chunks are written"),
        ("s3://bucket", r"folders of chunks are written"),
        ("s3://bucket.zarr", r"is a whole bucket: name a folder in it, such as s3://bucket.zarr/"),
        ("https://host/p.zarr", r"is read, not written: name a file here"),
        ("s3://bucket/p.zarr:../q", r"is no path inside a file or folder"),
    ],
)
def test_refusals(name: str, words: str) -> None:
    with pytest.raises(VolumeError, match=words):
        Destination.named(name, "p")


def test_another_job_finishes_what_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    destination = named(".zarr")
    monkeypatch.setattr(Store, "refused", "zarr.json")
    with pytest.raises(VolumeError, match="Access Denied"):
        fill(destination)
    monkeypatch.setattr(Store, "refused", "")
    with pytest.raises(VolumeError, match="was begun by another job"):
        fill(destination, array=values((1, 5, 12, 9), "f4"))
    with open_volume(destination.place) as volume:
        assert np.array_equal(volume.read_all(), ARRAY)


@pytest.mark.parametrize("within", ["", "/", "/0"])
def test_what_is_read_is_not_replaced(within: str) -> None:
    fill(named(".zarr"))
    with (
        open_volume(f"s3://bucket/a/out.zarr{within}") as volume,
        pytest.raises(VolumeError, match=r"s3://bucket/a/out.zarr holds s3://.*which is read"),
    ):
        refuse_loss(named(".zarr", overwrite=True), [volume])


def test_predicted_and_segmented_there(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run_of(Path("run"), {"layers": [{"conv": {"channels": 1, "size": 3}}]})
    with h5py.File("image.h5", "w") as file:
        file["raw"] = np.random.default_rng(0).integers(0, 255, (9, 20, 30)).astype("u1")
    line = ("predict", "run", "--input", "image.h5", "--block", "4,8,8", "--output")
    for output in ("here.zarr", "s3://bucket/there.zarr"):
        assert status_of(*line, output) == 0
    assert "next: znnpy segment s3://bucket/there.zarr" in capsys.readouterr().err
    assert status_of(*line, "s3://bucket/there.zarr", "--dry-run") == 0
    assert "s3://bucket/there.zarr exists: would be refused" in capsys.readouterr().out
    assert status_of(*line, "s3://bucket/there.zarr") == 1
    assert "s3://bucket/there.zarr exists already" in capsys.readouterr().err
    for source, output in (
        ("here.zarr", "o.zarr"),
        ("s3://bucket/there.zarr", "s3://bucket/o.zarr"),
    ):
        assert status_of("segment", source, "--output", output, "--threshold", "0.5") == 0
    for name in ("here", "o"):
        other = "there" if name == "here" else "o"
        with open_volume(f"{name}.zarr") as own, open_volume(f"s3://bucket/{other}.zarr") as far:
            assert np.array_equal(own.read_all(), far.read_all())
