"""Packages of bioimage.io, formats 0.4 and 0.5, around weights, an image and what comes of it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

NAMES = {"b": "batch", "c": "channel"}
Said = dict[str, Any]


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def axes_of(letters: str, shape: Sequence[int], fixed: bool) -> list[Said]:
    found: list[Said] = []
    for letter, n in zip(letters, shape, strict=True):
        if letter == "b":
            found.append({"type": "batch"})
        elif letter == "c":
            found.append({"type": "channel", "channel_names": [f"c{i}" for i in range(n)]})
        else:
            size = n if fixed else {"min": n, "step": 4}
            found.append({"type": "space", "id": letter, "size": size})
    return found


def written(
    folder: Path, weights: Mapping[str, Said], image: Any, outputs: Sequence[Any], *, new: bool = True,
    letters: str = "bczyx", fixed: bool = False, before: Sequence[Said] = (), after: Sequence[Said] = (),
    change: Callable[[Said], Any] = lambda said: None,
) -> Path:  # fmt: skip
    """A package's folder; `weights`: entries by kind, whose source lies in the folder already."""
    np.save(folder / "image.npy", image)
    for number, output in enumerate(outputs):
        np.save(folder / f"out{number}.npy", output)
    kinds = {
        kind: {**entry, "sha256": digest(folder / entry["source"])}
        for kind, entry in weights.items()
    }
    said: Said = {"type": "model", "name": "A net", "weights": kinds}
    if new:
        test = {"source": "image.npy", "sha256": digest(folder / "image.npy")}
        said |= {
            "format_version": "0.5.4",
            "inputs": [
                {"id": "raw", "axes": axes_of(letters, image.shape, fixed), "test_tensor": test,
                 "preprocessing": [{"id": s["name"], "kwargs": s.get("kwargs", {})} for s in before]},
            ],
            "outputs": [
                {"id": f"out{n}", "axes": axes_of(letters, array.shape, fixed),
                 "test_tensor": {"source": f"out{n}.npy", "sha256": digest(folder / f"out{n}.npy")},
                 "postprocessing": [{"id": s["name"], "kwargs": s.get("kwargs", {})} for s in after]}
                for n, array in enumerate(outputs)
            ],
        }  # fmt: skip
    else:
        shape = list(image.shape)
        size = shape if fixed else {"min": shape, "step": [0, 0, 4, 4, 4][: len(shape)]}
        said |= {
            "format_version": "0.4.10",
            "inputs": [{"name": "raw", "axes": letters, "shape": size, "preprocessing": list(before)}],
            "outputs": [
                {"name": f"out{n}", "axes": letters, "postprocessing": list(after),
                 "shape": {"reference_tensor": "raw", "scale": [1] * len(shape), "offset": [0] * len(shape)}}
                for n in range(len(outputs))
            ],
            "test_inputs": ["image.npy"],
            "test_outputs": [f"out{n}.npy" for n in range(len(outputs))],
        }  # fmt: skip
    change(said)
    (folder / "rdf.yaml").write_text(json.dumps(said))
    return folder


def zipped(folder: Path) -> Path:
    """The package as one file."""
    path = folder.parent / f"{folder.name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    return path


def state(
    source: str, name: str, arguments: Any, *, new: bool = True, package: str = ""
) -> dict[str, Said]:
    """The entry of a state dict."""
    if new:
        more = {"import_from": package} if package else {"source": "net.py"}
        said: Said = {"architecture": {"callable": name, "kwargs": arguments, **more}}
    else:
        place = f"{package}.{name}" if package else f"net.py:{name}"
        said = {"architecture": place, "kwargs": arguments}
    return {"pytorch_state_dict": {"source": source, **said}}
