"""What a command line of `znnpy predict` asks for: images, output, region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from znnpy.cli.options import volume_section

if TYPE_CHECKING:
    from znnpy.cli.predict_sets import Case
    from znnpy.config.models import VolumeSection
    from znnpy.infer.blocks import Region
    from znnpy.infer.request import Request
    from znnpy.network.types import Network, Node
    from znnpy.train.start import SavedRun


def section_of(network: Network, case: Case) -> VolumeSection:
    """Return the images and mask of a case as a section of a config has them."""
    images = case.images
    bare = images[""] if set(images) == {""} else images
    return volume_section({"image": "--input", "mask": "--mask"}, image=bare, mask=case.mask)


def request_for(
    saved: SavedRun, section: VolumeSection, node: str | None, dtype: str, labels: bool
) -> Request:
    """Return the request for the output that --node names, of values of a dtype or of labels."""
    import numpy as np

    from znnpy.infer.request import request_of

    names = [given.name for given in saved.network.inputs]
    sources = {(name or names[0]): source.path for name, source in section.image.items()}
    for source in (section.mask or {}).values():
        sources["mask"] = source.path
    output = output_node(saved.weights.network, node)
    return request_of(saved.config, output, labels=labels, dtype=np.dtype(dtype), sources=sources)


def attributes_of(saved: SavedRun, output: str) -> dict[str, Any]:
    """Return what a file of predictions says of the run that made them."""
    from znnpy.config.models import AffinityTarget, LabelsTarget

    target = saved.config.target(output)
    made: dict[str, Any] = {"run": str(saved.path.resolve())}
    made["iteration"] = saved.checkpoint.iteration
    if isinstance(target, AffinityTarget):
        made["offsets"] = [list(offset) for offset in target.offsets]
    if isinstance(target, LabelsTarget):
        made["first_class"] = target.first
    return made


def region_of(text: str | None) -> Region | None:
    """Return the region that --roi names."""
    from znnpy.infer.blocks import Region

    if text is None:
        return None
    ranges = [part.split(":") for part in text.split(",")]
    if len(ranges) != 3 or not all(_is_range(ends) for ends in ranges):
        raise typer.BadParameter(
            "--roi must be three ranges z0:z1,y0:y1,x0:x1, each of some voxels"
        )
    (z, to_z), (y, to_y), (x, to_x) = ([int(end) for end in ends] for ends in ranges)
    return Region((z, y, x), (to_z, to_y, to_x))


def output_node(network: Network, name: str | None) -> Node:
    """Return the output of a name, the only one without a name; BadParameter where there is none."""
    names = [node.name for node in network.outputs]
    if name is None and len(names) == 1:
        return network.outputs[0]
    if name not in names:
        raise typer.BadParameter(f"--node must be one of {', '.join(names)}")
    return network.node(name)


def _is_range(ends: list[str]) -> bool:
    good = len(ends) == 2 and all(end.strip().isdecimal() and len(end) < 19 for end in ends)
    return good and int(ends[0]) < int(ends[1])
