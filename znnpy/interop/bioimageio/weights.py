"""The net of a package: its state dict if the class is known, else its ONNX file. No code of a package is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from znnpy.errors import ModelFileError
from znnpy.interop.bioimageio.package import Package
from znnpy.interop.bioimageio.tensors import OLD, version_of
from znnpy.interop.classes.origin import network_of
from znnpy.interop.classes.registry import CLASSES, NetClass, class_of
from znnpy.interop.described import Described
from znnpy.interop.operators.described import Described as Net
from znnpy.interop.state_files import read_contents, state_of

STATE, ONNX = "pytorch_state_dict", "onnx"


def net_of(package: Package) -> tuple[Net, str, str]:
    """Return the net, what it was read from, and the name of its class if the package says that name alone.

    ModelFileError says why each kind of weights was not taken.
    """
    weights = package.said.inside("weights")
    wrong: list[str] = []
    for kind, read in ((STATE, _from_state), (ONNX, _from_onnx)):
        if kind not in weights:
            continue
        try:
            return read(package, weights.inside(kind))
        except ModelFileError as error:
            wrong.append(str(error))
    if not wrong:
        found = ", ".join(str(kind)[:30] for kind in weights.values) or "none"
        raise ModelFileError(f"{weights.where}: has {found}: {STATE} or {ONNX} is needed")
    raise ModelFileError("; ".join(wrong))


def _from_onnx(package: Package, said: Described) -> tuple[Net, str, str]:
    from znnpy.interop.onnx.file import read_graph
    from znnpy.interop.onnx.graph import network_of as net_of_graph

    path = package.file(said.values.get("source"), said.values.get("sha256"), said.where)
    if "external_data" in said:
        package.file(said.values["external_data"], None, f"{said.where}: external_data")
    graph = read_graph(path)
    return net_of_graph(graph, str(path)), f"ONNX, opset {graph.opset}", ""


def _from_state(package: Package, said: Described) -> tuple[Net, str, str]:
    name, arguments = _architecture(package, said)
    candidates = list(_classes(name, said.where))
    path = package.file(said.values.get("source"), said.values.get("sha256"), said.where)
    wrong: list[str] = []
    for entry in candidates:
        try:
            return _built(entry, arguments, path), entry.title, "" if "." in name else name
        except ModelFileError as error:
            wrong.append(str(error))
    raise ModelFileError("; ".join(wrong))


def _built(entry: NetClass, arguments: dict[str, Any], path: Path) -> Net:
    return network_of(entry, arguments, state_of(read_contents(path), path), str(path))


def _architecture(package: Package, said: Described) -> tuple[str, dict[str, Any]]:
    """Return the dotted name of the class, or its name alone if the package has its code; and its arguments."""
    if version_of(package.said) == OLD:
        given = said.text("architecture")
        kwargs = said.inside("kwargs").values if "kwargs" in said else {}
        name = given.rpartition(":")[2] if ":" in given else given
        return name, dict(kwargs)
    inner = said.inside("architecture")
    kwargs = inner.inside("kwargs").values if "kwargs" in inner else {}
    name = inner.text("callable")
    return (f"{inner.text('import_from')}.{name}" if "import_from" in inner else name), dict(kwargs)


def _classes(name: str, where: str) -> Iterator[NetClass]:
    """Yield the class of a dotted name, or all of a name whose code lies in the package; the test tensors decide."""
    if "." in name:
        yield class_of(name, where)
        return
    found = [entry for entry in CLASSES.values() if entry.name.rpartition(".")[2] == name]
    if not found:
        raise ModelFileError(
            f"{where}: no code of a package is run, and the class {name[:60]} is not known: {', '.join(CLASSES)} are"
        )
    yield from found
