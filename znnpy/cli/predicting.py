"""`znnpy predict`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from znnpy.cli.options import MaxMemory, Overrides, RunPath, Threads, block_sizes, overrides

if TYPE_CHECKING:
    from znnpy.config.models import VolumeSection
    from znnpy.network.types import Network, Node
    from znnpy.train.start import SavedRun

DATASET = "prediction"


def predict(
    run: RunPath,
    input_: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="[NODE=]FILE[:DATASET]",
            help="Image to predict on; once for each input of the network.",
        ),
    ],
    output: Annotated[str, typer.Option(metavar="FILE[:DATASET]", help="HDF5 file to write.")],
    node: Annotated[
        str | None, typer.Option(help="Output node to write, when there are several.")
    ] = None,
    block: Annotated[
        str | None, typer.Option(metavar="Z,Y,X", help="Output block (default: by memory).")
    ] = None,
    border: Annotated[
        str | None, typer.Option(help="valid or mirror (default: as trained).")
    ] = None,
    logits: Annotated[
        bool, typer.Option("--logits", help="Write the output node's values, not probabilities.")
    ] = False,
    uint8: Annotated[
        bool, typer.Option("--uint8", help="Write 0..255 instead of float32 0..1.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an output file that is there.")
    ] = False,
    set_: Overrides = None,
    threads: Threads = None,
    max_memory: MaxMemory = None,
) -> None:
    """Predict a whole volume, block by block, with real neighbours around each block.

    Writes float32 probabilities (image, z, y, x). Stopped, the same command goes on.
    """
    from znnpy.data.source import split_source
    from znnpy.train.progress import Plain
    from znnpy.train.signals import StopSignals
    from znnpy.train.start import read_run

    if logits and uint8:
        raise typer.BadParameter("--logits cannot be written as --uint8")
    changed = overrides(set_, threads, max_memory)
    saved = read_run(run, Plain(), changed + ([f"data.border={border}"] if border else []))
    path, dataset = split_source(output)
    chosen = _output(saved.network, node)
    job = _Job(saved, _section(saved.network, input_), chosen, block_sizes(block), overwrite)
    with StopSignals():
        job.run(path, dataset or DATASET, _finish(saved, logits, uint8), uint8)


class _Job:
    """One prediction to one file."""

    def __init__(
        self,
        saved: SavedRun,
        section: VolumeSection,
        node: Node,
        block: tuple[int, int, int] | None,
        overwrite: bool,
    ) -> None:
        self._saved, self._section, self._node = saved, section, node
        self._block, self._overwrite = block, overwrite

    def run(self, path: Path, dataset: str, finish: Callable[[Any], Any], uint8: bool) -> None:
        """Predict and write."""
        from znnpy.cli.blocks_bar import BlocksBar
        from znnpy.data.block_writer import refuse_output
        from znnpy.infer.build import prediction_of
        from znnpy.infer.material import open_scene
        from znnpy.infer.predict import predict_to_file

        refuse_output(path)
        saved, config = self._saved, self._saved.config
        scene = open_scene(self._section, config.data, saved.network)
        weights = saved.checkpoint.parameters
        try:
            with (
                prediction_of(
                    config, saved.network, saved.plan, weights, scene, self._block
                ) as prediction,
                BlocksBar("predicting") as bar,
            ):
                predict_to_file(
                    prediction,
                    self._node.name,
                    self._node.images,
                    path,
                    dataset,
                    finish,
                    "uint8" if uint8 else "float32",
                    {**prediction.place(), **self._attributes()},
                    self._key(uint8, prediction.block),
                    self._overwrite,
                    bar.show,
                )
        finally:
            scene.close()
        typer.echo(f"{path}:{dataset}  {(self._node.images, *prediction.field.shape)} (c, z, y, x)")

    def _attributes(self) -> dict[str, Any]:
        from znnpy.config.models import AffinityTarget

        target = self._saved.config.data.target
        made: dict[str, Any] = {"run": str(self._saved.path.resolve())}
        made["iteration"] = self._saved.checkpoint.iteration
        if isinstance(target, AffinityTarget):
            made["offsets"] = [list(offset) for offset in target.offsets]
        return made

    def _key(self, uint8: bool, block: tuple[int, int, int]) -> str:
        """Names the job, so that a stopped one goes on only with the same weights and input."""
        digest = hashlib.sha256()
        for name, array in sorted(self._saved.checkpoint.parameters.items()):
            digest.update(name.encode() + array.tobytes())
        config = self._saved.config
        for part in (self._section, self._node.name, uint8, block, config.data.border):
            digest.update(repr(part).encode())
        digest.update(config.data.normalize.encode())
        return digest.hexdigest()


def _finish(saved: SavedRun, logits: bool, uint8: bool) -> Callable[[Any], Any]:
    import numpy as np

    from znnpy.infer.losses import probabilities

    loss = saved.config.training.loss

    def finish(values: Any) -> Any:
        found = values if logits else probabilities(loss, values)
        if uint8:
            return np.clip(np.rint(found * 255), 0, 255).astype(np.uint8)
        return found.astype(np.float32)

    return finish


def _output(network: Network, name: str | None) -> Node:
    names = [node.name for node in network.outputs]
    if name is None and len(names) == 1:
        return network.outputs[0]
    if name not in names:
        raise typer.BadParameter(f"--node must be one of {', '.join(names)}")
    return network.node(name)


def _section(network: Network, given: list[str]) -> VolumeSection:
    from znnpy.config.models import VolumeSection

    names = [node.name for node in network.inputs]
    images = {}
    for text in given:
        node, equals, source = text.partition("=")
        named = bool(equals) and node in names
        images[node if named else ""] = source if named else text
    if len(images) < len(given):
        raise typer.BadParameter(f"--input must name different inputs: {', '.join(names)}")
    bare = images[""] if set(images) == {""} else images
    return VolumeSection.model_validate({"image": bare})
