"""Agreement of two segmentations: adapted Rand error, variation of information, objects found by their IoU.

Voxels that the truth leaves unlabelled (0) do not count. Voxels that the segmentation leaves
unassigned (0) count as objects of one voxel each for measures of pairs and of information, as in the
SNEMI3D challenge; where objects are counted they are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from znnpy.errors import ShapeError

Array = NDArray[Any]
IOUS = tuple(0.5 + 0.05 * step for step in range(10))
"""Thresholds of the intersection over union, as for COCO."""
PART = 0.05  # of an object's voxels: what is smaller is no split and no merge, but a border that lies elsewhere


@dataclass(frozen=True)
class Contingency:
    """How many voxels each object of the truth has in each of the segmentation.

    `voxels`: sparse float64 (objects of the truth, `objects` of the segmentation and behind them, one each, the
    labelled voxels that it leaves unassigned).
    """

    voxels: Any
    objects: int


@dataclass(frozen=True)
class AdaptedRand:
    """`error` = 1 - F score of `precision` and `recall` over pairs of voxels.

    `precision`: fraction of the pairs joined by the segmentation that belong together in truth (low
    when objects are merged). `recall`: fraction of the pairs of the truth that were joined (low when
    split).
    """

    error: float
    precision: float
    recall: float


@dataclass(frozen=True)
class Variation:
    """Variation of information in bits: `split` = H(segmentation | truth), `merge` the reverse."""

    split: float
    merge: float

    @property
    def total(self) -> float:
        """The sum of both, a distance between segmentations."""
        return self.split + self.merge


def adapted_rand(truth: Array, segmentation: Array) -> AdaptedRand:
    """Return the adapted Rand error (Arganda-Carreras et al. 2015) of integer arrays of one shape.

    scikit-image's `adapted_rand_error` returns precision and recall exchanged (issue 6485). Precision
    or recall without any pair to judge is 1.
    """
    return adapted_rand_of(contingency(truth, segmentation))


def adapted_rand_of(shared: Contingency) -> AdaptedRand:
    """Return the adapted Rand error of two segmentations by their `contingency`."""
    table = shared.voxels
    both = _pairs(table.data)
    in_truth, in_segmentation = _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    precision = both / in_segmentation if in_segmentation else 1.0
    recall = both / in_truth if in_truth else 1.0
    pairs = in_truth + in_segmentation
    return AdaptedRand(1.0 - 2.0 * both / pairs if pairs else 0.0, precision, recall)


def variation(truth: Array, segmentation: Array) -> Variation:
    """Return the variation of information (Meila 2007) of integer arrays of one shape, in bits."""
    return variation_of(contingency(truth, segmentation))


def variation_of(shared: Contingency) -> Variation:
    """Return the variation of information of two segmentations by their `contingency`."""
    table = shared.voxels.tocoo()
    in_truth, in_segmentation = table.sum(axis=1), table.sum(axis=0)
    split = _entropy(table.data, in_truth[table.row])
    return Variation(split, _entropy(table.data, in_segmentation[table.col]))


def object_precision(shared: Contingency, thresholds: Sequence[float] = IOUS) -> float:
    """Return the mean over thresholds of TP / (TP + FP + FN), by the `contingency` of two segmentations.

    An object is found (TP) where one of the segmentation has an intersection over union above the threshold, of which
    there is at most one above 0.5. As in the Data Science Bowl 2018, for Cellpose and StarDist.
    """
    pairs = shared.voxels.tocoo()
    in_truth, in_segmentation = shared.voxels.sum(axis=1), shared.voxels.sum(axis=0)
    union = in_truth[pairs.row] + in_segmentation[pairs.col] - pairs.data
    columns = shared.objects
    overlap = (pairs.data / union)[pairs.col < columns]
    found = [int(np.count_nonzero(overlap > it)) for it in thresholds]
    objects = len(in_truth) + columns
    return float(np.mean([n / (objects - n) for n in found]))


def splits_and_merges(shared: Contingency) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each object of the truth its splits and merges, int64 (objects,), by the `contingency`.

    Splits: the parts that have at least `PART` of its voxels, less one. Merges: the other objects of the truth that are
    in one of the segmentation with it, each with at least `PART` of the voxels of that one.
    """
    from scipy import sparse

    table, pairs = shared.voxels, shared.voxels.tocoo()
    in_truth, in_segmentation = table.sum(axis=1), table.sum(axis=0)
    assigned = pairs.col < shared.objects
    parts = pairs.row[assigned & (pairs.data >= PART * in_truth[pairs.row])]
    splits = np.maximum(np.bincount(parts, minlength=len(in_truth)) - 1, 0)
    large = pairs.data >= PART * in_segmentation[pairs.col]
    ones = np.ones(np.count_nonzero(large), np.int64)
    parts_of = sparse.csr_array((ones, (pairs.row[large], pairs.col[large])), shape=table.shape)
    together = (parts_of @ parts_of.T).tocoo()
    others = together.row[together.row != together.col]
    return splits, np.bincount(others, minlength=len(in_truth))


def contingency(truth: Array, segmentation: Array) -> Contingency:
    """Return how many voxels objects of the truth and of the segmentation, integer arrays of one shape, share."""
    from scipy import sparse

    rows, columns, objects = _prepared(truth, segmentation)
    return Contingency(sparse.csr_array((np.ones(rows.size), (rows, columns))), objects)


def _entropy(parts: Array, wholes: Array) -> float:
    """Return the mean bits that tell in which part of a whole a voxel lies; `parts`, `wholes`: voxel counts, (N,)."""
    return max(0.0, -float((parts * np.log2(parts / wholes)).sum()) / float(parts.sum()))


def _prepared(truth: Array, segmentation: Array) -> tuple[Array, Array, int]:
    """Return labelled voxels, 1-D, renumbered, as the table is as large as the largest number, and how many objects
    the segmentation has there."""
    if truth.shape != segmentation.shape:
        raise ShapeError(
            f"truth {truth.shape} and segmentation {segmentation.shape} differ in shape"
        )
    labelled = truth != 0
    if not labelled.any():
        raise ShapeError("the truth holds no labelled voxel to compare with")
    rows = np.unique(truth[labelled], return_inverse=True)[1]
    assigned = segmentation[labelled]
    numbers, columns = np.unique(assigned, return_inverse=True)
    alone, objects = assigned == 0, int(np.count_nonzero(numbers))
    if objects < len(numbers):
        # No column is left for 0 itself, which is no object.
        columns -= columns > columns[alone][0]
        columns[alone] = objects + np.arange(np.count_nonzero(alone))
    return rows, columns, objects


def _pairs(sizes: Array) -> float:
    """Return the number of ordered pairs of different voxels within groups of these sizes."""
    exact = np.asarray(sizes, np.float64).reshape(-1)
    return float((exact * (exact - 1)).sum())
