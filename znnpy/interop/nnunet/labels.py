"""nnU-Net's dataset.json: channels, labels, regions, and the label that does not count."""

from __future__ import annotations

from dataclasses import dataclass

from znnpy.errors import ModelFileError
from znnpy.interop.described import Described


@dataclass(frozen=True)
class Labels:
    """The `heads` of a net are its output channels; `regions`: the label that each paints, None where one wins.

    `ignore`: the label of voxels that do not count in training.
    """

    channels: int
    heads: int
    regions: tuple[int, ...] | None
    ignore: int | None

    @classmethod
    def of(cls, dataset: Described) -> Labels:
        """Return the labels of a dataset; ModelFileError for what nnU-Net would refuse."""
        names = dataset.inside("modality" if "modality" in dataset else "channel_names")
        labels = dataset.inside("labels")
        if labels.values.get("background") != 0:
            raise labels.wrong("background", "must be 0")
        ignore = labels.values.get("ignore")
        if ignore is not None and type(ignore) is not int:
            raise labels.wrong("ignore", "must be a label")
        kinds = {name: _members(labels, name) for name in labels.values if name != "ignore"}
        regions = None
        if any(len(members) > 1 for members in kinds.values()):
            heads = [name for name, members in kinds.items() if set(members) != {0}]
            regions = tuple(dataset.integers("regions_class_order"))
            if len(regions) != len(heads):
                raise dataset.wrong("regions_class_order", f"must name {len(heads)} labels")
            return cls(len(names.values), len(heads), regions, ignore)
        numbers = sorted({members[0] for members in kinds.values()})
        if numbers != [*range(len(numbers))] or len(numbers) < 2:
            raise ModelFileError(
                f"{labels.where} must number the labels 0, 1, 2 ...; found {numbers[:20]}"
            )
        return cls(len(names.values), len(numbers), None, ignore)


def _members(labels: Described, name: str) -> list[int]:
    value = labels.values[name]
    found = value if isinstance(value, list) else [value]
    if not found or not all(type(it) is int and 0 <= it < 1 << 16 for it in found):
        raise labels.wrong(name, "must be a label, or a list of them")
    return found
