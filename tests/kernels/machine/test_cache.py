"""The kernel cache: private, made anew when damaged, shared by processes that start at once."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from znnpy_kernels.compile import compile_all
from znnpy_kernels.layers import reduction
from znnpy_kernels.machine import cache, private_files
from znnpy_kernels.machine.abi import Kernel, kernel, words
from znnpy_kernels.machine.memory import floats

OTHER_USER = 65534
SUM = """
import numpy as np
from znnpy_kernels.layers.reduction import sum_vectors

source, target = np.arange(4, dtype=np.float32), np.zeros(1, np.float32)
sum_vectors.run(source=source, target=target, count=4, length=1)
print(target[0])
"""


AT = words("target")


@kernel(AT)
def store(args, worker):  # type: ignore[no-untyped-def]
    floats(args[AT.target])[0] = 3.0


@kernel(AT)
def wrong(args, worker):  # type: ignore[no-untyped-def]
    floats(args[AT.target])[0] = "text"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of this test's own."""
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path / "cache"))
    yield from _fresh(tmp_path / "cache")


def _fresh(path: Path) -> Iterator[Path]:
    _forget()
    yield path
    _forget()


def _forget() -> None:
    """As another process that has looked at nothing yet."""
    for known in (cache.root, cache.directory):
        known.cache_clear()


def anew(made: Kernel) -> Kernel:
    """The same kernel as another process sees it: not loaded yet."""
    return Kernel(made.function, made.words)


def from_disk(made: Kernel) -> bool:
    """Whether the kernel came from disk; it must work in any case."""
    import numpy as np

    target = np.zeros(1, np.float32)
    made.run(target=target)
    assert target[0] == 3.0
    return bool(made.compile().cache_hits)


def test_the_second_process_compiles_nothing(folder: Path) -> None:
    assert not from_disk(anew(store))
    assert from_disk(anew(store))


def test_folders_are_private(folder: Path) -> None:
    anew(store).compile()
    kept = cache.directory(store.function)
    assert kept.parent == folder
    assert {path.stat().st_mode & 0o777 for path in (folder, kept)} == {0o700}


def test_a_folder_that_only_this_user_writes_stays_as_it_is(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    anew(store).compile()
    assert cache.root() == folder
    assert folder.stat().st_mode & 0o777 == 0o755


def test_within_a_shared_folder_there_is_a_private_one(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    assert not from_disk(anew(store))
    assert from_disk(anew(store))
    assert [path.name for path in folder.iterdir()] == [f"znnpy-{os.getuid()}"]
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert cache.root().stat().st_mode & 0o777 == 0o700


def _link(place: Path) -> None:
    (place.parent.parent / "elsewhere").mkdir(mode=0o700)
    place.symlink_to(place.parent.parent / "elsewhere")


def _open(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def _of_another_user(place: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can make folders for another user")
    place.mkdir(mode=0o700)
    os.chown(place, OTHER_USER, OTHER_USER)


@pytest.mark.parametrize("plant", [_link, _open, _of_another_user])
def test_what_others_put_in_its_place_is_refused(
    folder: Path, plant: Callable[[Path], None]
) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    place = folder / f"znnpy-{os.getuid()}"
    plant(place)
    before = place.lstat()
    with pytest.raises(cache.CacheError, match=r"not yours alone: .*ZNNPY_CACHE") as said:
        anew(store).compile()
    assert "\n" not in str(said.value)
    after = place.lstat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert not list(place.iterdir())


@pytest.mark.parametrize("depth", [0, 1])
def test_where_others_can_replace_it_nothing_is_read(folder: Path, depth: int) -> None:
    anew(store).compile()
    (folder, folder.parent)[depth].chmod(0o777)
    _forget()
    with pytest.raises(cache.CacheError, match="others can replace"):
        anew(store).compile()


def test_files_of_others_are_not_read(folder: Path) -> None:
    anew(store).compile()
    (index,) = cache.files(store.function, "nbi")
    if os.geteuid() == 0:
        os.chown(index, OTHER_USER, OTHER_USER)
    else:
        kept = index.rename(folder / "kept")
        index.symlink_to(kept)
    _forget()
    with pytest.raises(cache.CacheError, match=rf"remove {index}"):
        anew(store).compile()


def test_folders_that_others_enter_stay_as_they_are(folder: Path) -> None:
    """numba makes them so where a folder vanishes while it compiles."""
    anew(store).compile()
    kept = cache.directory(store.function)
    kept.chmod(0o755)
    _forget()
    assert from_disk(anew(store))
    assert kept.stat().st_mode & 0o777 == 0o755


def test_files_that_others_could_write_are_not_read(folder: Path) -> None:
    anew(store).compile()
    (index,) = cache.files(store.function, "nbi")
    index.parent.chmod(0o755)
    index.chmod(index.stat().st_mode | 0o002)
    _forget()
    with pytest.raises(cache.CacheError, match=f"not yours alone: remove {index}"):
        anew(store).compile()


def test_a_folder_that_others_could_write_is_not_read(folder: Path) -> None:
    anew(store).compile()
    kept = cache.directory(store.function)
    kept.chmod(0o757)
    _forget()
    with pytest.raises(cache.CacheError, match=f"others can write into {kept}"):
        anew(store).compile()


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _cut_short(data: bytes) -> bytes:
    return data[:3]


def _empty(data: bytes) -> bytes:
    return b""


def _garbage(data: bytes) -> bytes:
    return b"\0\1garbage" * 20


def _one_byte(data: bytes) -> bytes:
    """Change a byte of machine code's file that nobody reads, as it is loaded all the same."""
    place = data.find(b"\x7fELF") + 12
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


@pytest.mark.quick(3)
@pytest.mark.parametrize("ending", ["nbc", "nbi"])
@pytest.mark.parametrize("damage", [_one_byte, _cut, _cut_short, _empty, _garbage])
def test_a_damaged_file_is_made_anew(
    folder: Path, ending: str, damage: Callable[[bytes], bytes]
) -> None:
    anew(store).compile()
    damaged = cache.files(store.function, ending)
    assert damaged
    for path in damaged:
        path.write_bytes(damage(path.read_bytes()))
    assert not from_disk(anew(store))
    assert from_disk(anew(store))


def test_what_cannot_be_compiled_says_so(folder: Path) -> None:
    with pytest.raises(Exception, match=r"(?i)unicode|convert|cast"):
        anew(wrong).compile()
    assert cache.files(wrong.function) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZNNPY_CACHE", str(tmp_path / "file" / "cache"))
    for _ in _fresh(tmp_path):
        with pytest.raises(cache.CacheError, match=r"file/cache cannot be made.*ZNNPY_CACHE"):
            anew(store).compile()


def test_a_folder_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba would go on in the folder of the source, in site-packages for instance."""
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).startswith(str(folder)))
    with pytest.raises(cache.CacheError, match=r"cannot be written to.*ZNNPY_CACHE"):
        anew(store).compile()


def _read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a medium, or in root's folder, that this user can only read; root himself may write anywhere."""
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    for name in ("utime", "mkdir", "open"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, partial(_refused, real))
    _forget()


def _refused(real: Callable[..., Any], path: Any, *how: Any, **more: Any) -> Any:
    flags = how[0] if real.__name__ == "open" else os.O_CREAT
    if flags & (os.O_CREAT | os.O_RDWR | os.O_WRONLY):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
    return real(path, *how, **more)


def test_a_cache_that_can_only_be_read_serves_what_it_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_all([anew(store)], 1)
    _read_only(monkeypatch)
    assert compile_all([made := anew(store)], 1) == 0
    assert from_disk(made)
    assert cache.kept("sources-x.json", lambda: {"a:b": "1"}) == {"a:b": "1"}
    lacking = r"is read-only and has no wrong of this version.*ZNNPY_CACHE"
    with pytest.raises(cache.CacheError, match=lacking):
        anew(wrong).compile()
    with pytest.raises(cache.CacheError, match=lacking):
        compile_all([anew(store), anew(wrong)], 1)
    with pytest.raises(cache.CacheError, match=r"has no \w+ and 1 more of this version"):
        compile_all([anew(reduction.sum_vectors), anew(wrong)], 1)


def test_a_cache_of_root_is_read_where_only_root_writes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    anew(store).compile()
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    monkeypatch.setattr(private_files, "ROOT", owner)
    _read_only(monkeypatch)
    assert cache.root() == folder
    assert from_disk(anew(store))


def test_a_folder_of_somebody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: folder.parent.stat().st_uid + 1)
    monkeypatch.setattr(private_files, "ROOT", folder.parent.stat().st_uid + 2)
    with pytest.raises(cache.CacheError, match="another user"):
        anew(store).compile()


def test_no_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("ZNNPY_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(cache.CacheError, match=r"no home directory.*ZNNPY_CACHE"):
        anew(store).compile()


def test_a_disk_that_fails_is_one_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._save_data", full)
    with pytest.raises(cache.CacheError, match=r"No space left on device.*ZNNPY_CACHE"):
        anew(store).compile()


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(int(os.environ.get("ZNNPY_COLD_STARTS", "1"))))
def test_processes_that_start_cold_at_once(folder: Path, turn: int) -> None:
    """All compile, run, and find the same; nobody says anything else."""
    pipe, count = subprocess.PIPE, 2
    command = [sys.executable, "-c", SUM]
    running = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) for _ in range(count)]
    ends = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * count, ends
    assert ends == [("6.0\n", "")] * count
    assert list(folder.glob("*/*.nbi"))


def test_the_folder_says_what_is_in_it(folder: Path) -> None:
    found = cache.label(reduction.sum_vectors.function)
    assert re.fullmatch(r"layers\.reduction\.sum_vectors-[0-9a-f]{16}", found)
    assert re.fullmatch(r"test_cache\.store-[0-9a-f]{16}", cache.label(store.function))


@pytest.mark.slow
def test_what_a_function_is_made_of_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cache.hashes.__wrapped__()
    (kept,) = folder.glob("sources-*.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(cache.source_hash, "hashes", lambda: pytest.fail("looked again"))
    assert cache.hashes.__wrapped__() == first


@pytest.mark.parametrize("damage", [_cut, _empty, _garbage])
def test_what_was_kept_and_is_damaged_is_made_anew(
    folder: Path, damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cache.source_hash, "hashes", lambda: {"a:b": "1", "c:d": "2"}
    )  # not in seconds
    first = cache.hashes.__wrapped__()
    (kept,) = folder.glob("sources-*.json")
    kept.write_bytes(damage(kept.read_bytes()))
    assert cache.hashes.__wrapped__() == first
    assert set(json.loads(kept.read_bytes())) == set(first)


def test_threads_that_keep_it_at_once_all_find_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that each make a model, with an empty cache."""
    together = threading.Barrier(8)

    def hashes() -> dict[str, str]:
        together.wait()
        return {"a:b": "1"}

    monkeypatch.setattr(cache.source_hash, "hashes", hashes)
    monkeypatch.setattr(cache.json, "dumps", lambda found: '{"a:b": "1"}' + " " * 1_000_000)
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(cache.hashes.__wrapped__) for _ in range(8)]
    assert all(it.result() == found[0].result() for it in found)
