"""A trained network as a list of operations that other programs know, with their weights: what writers walk.

Values are (batch, channel, z, y, x), all triples z, y, x. Names are identifiers, and no two are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

Tensor = NDArray[Any]


@dataclass(frozen=True)
class Operation:
    """One operation, which makes the value `output` from the values `inputs`.

    `kind`, and the `attributes` and tensors that belong to it:

    - `pad`: `sides`, pairs before and after; `border`, zeros, replicate or reflect; `fill`, what zeros means.
    - `conv`: `size`, `stride`, `dilation`, `padding` (as many voxels before as after), `groups`, `standardized`;
      weight (out, in / groups, z, y, x) and, where there is one, bias (out,).
    - `conv_transpose`: the same and `output_padding`; weight (in, out / groups, z, y, x).
    - `max_pool`, `avg_pool`: `size`, `stride`, `dilation`, `padding`; averages also `sides` (padding as pairs, in
      place of `padding`) and `count_padding`.
    - `upsample`: `factor`, `mode`, nearest, linear or corners. `crop`: `sides`.
    - `resize`: `ratios`, pairs along z, y, x of the least whole numbers, how many voxels become how many; `more`,
      `mode` as above or nearest_exact; see `layers/resizing.py`.
    - `depth_to_space`: `factor`; channel c of a block's voxel (k, j, i) was channel ((c f + k) f + j) f + i.
    - `dropout`: `keep`.
    - `bias`: bias (channels,). `add`, `multiply`, `maximum`, `concat`: of all inputs. `identity`: nothing.
    - `mean`: of a channel over all voxels, at each of them.
    - `channel_norm`, `length_norm`, `response_norm`: `epsilon`; weight and bias (channels,) as below.
    - `batch_norm`, `instance_norm`, `group_norm`: `epsilon`, `momentum`, `groups`; weight and bias (channels,) if they
      are learned; running_mean, running_var and num_batches_tracked of batches.
    - `function`: `function`, its name in `FUNCTIONS`, `slope`, `amplitude`, `gain`, `tied`; weight (channels,), or
      (1,) if tied, of prelu.

    `channels`: of input and output. `tensors`: their keys in `Computation.tensors`, by what they are.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    output: str
    channels: tuple[int, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Computation:
    """Operations in an order in which each finds its inputs made.

    `inputs`, `outputs`: values with their channels. `nodes`: values that are feature maps of the network; every other
    is read once, by the operation after. `tensors` by `operation.what`: the keys of a state dict; `fixed`: those that
    do not learn.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    operations: tuple[Operation, ...]
    nodes: frozenset[str]
    tensors: Mapping[str, Tensor]
    fixed: tuple[str, ...] = ()
