"""Random small networks, and data for them, that every evaluator of networks can be tried on."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import prod
from typing import get_args

import numpy as np
from drawn_keys import drawn_keys

from znnpy.errors import NetworkError, ShapeError
from znnpy.geometry import fit, refuse_single_values, smallest
from znnpy.geometry.axes import scale
from znnpy.geometry.shape_inference import ONE, Geometry
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edges import EDGE_KINDS
from znnpy.layers.types import BARE, BorderName, Interpolation, Norm, NormKind
from znnpy.network import parameter_shapes
from znnpy.network.check import checked_network
from znnpy.network.types import Edge, Network, Node, Triple

HIDDEN = tuple(name for name, function in FUNCTIONS.items() if function.pointwise)
SMOOTH = tuple(name for name in HIDDEN if not FUNCTIONS[name].passes_on)
OUTPUTS = {  # functions at outputs that go with a loss
    "square": ("linear", "tanh", "logistic", "softmax"),
    "binomial_cross_entropy": ("linear", "logistic", "forward_logistic"),
    "softmax": ("linear", "softmax"),
    "focal": ("logistic",),
    "dice": ("logistic",),
    "ce_dice": ("linear", "softmax"),
    "bce_dice": ("linear", "logistic"),
}
IMAGES = (1, 2, 3, 5, 8, 10, 16, 17, 20)
SIZES = ((3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 3, 3), (2, 3, 4), (5, 1, 2), (3, 4, 5), (1, 1, 5))
WITH_BLOCKS = (
    "conv",
    "max_filter",
    "max_pool",
    "dropout",
    "crop",
    "conv_transpose",
    "avg_pool",
    "upsample",
    "identity",
    "mean",
    "depth_to_space",
    "resize",
)  # others are drawn by their keys
WINDOWS = ((2, 2, 2), (3, 3, 3), (1, 2, 2), (2, 1, 3))
MOST_PRODUCTS = 1e8  # multiplications of one forward pass: well under a second of plain NumPy
MOST_VOXELS = 30_000
WIDEST = 40  # voxels along an axis of an input

OutputShape = Triple | dict[str, Triple]


def loss_of(seed: int) -> str:
    """The loss that the outputs of a seed's network go with."""
    return tuple(OUTPUTS)[seed % len(OUTPUTS)]


def random_network(
    seed: int, functions: tuple[str, ...] = HIDDEN, blocks: int = 6
) -> tuple[Network, OutputShape]:
    """A random directed acyclic network and an output shape that `znnpy.geometry.shape_inference` takes.

    Over 70 seeds: all edge kinds and functions that are listed, 1-2 inputs and outputs, sums and concats
    with crops where branches need them, even, odd and anisotropic filters, strides and sparsities,
    filters that repeat, paddings of all borders on each side, groups, growth, small U-shapes, scaled
    tanh, outputs with the functions that go with `loss_of(seed)`, 2-D nets (every eighth seed), a resize
    before the last layers (every fifth), 1 to 20
    channels, normalised nodes of all kinds, standardised filters. The same seed gives the same network. With two
    outputs of different size the shape is a dict by output node.
    """
    rng = np.random.default_rng(seed)
    while True:
        builder = _Builder(
            rng, functions, OUTPUTS[loss_of(seed)], flat=seed % 8 == 7, resized=seed % 5 == 0
        )
        try:
            network, output_shape = builder.build(blocks)
            geometry = fit(network, output_shape)
        except (NetworkError, ShapeError):  # growth that does not meet a stride, an output too fine
            continue
        if _is_small(network, geometry):
            checked_network(network.nodes, network.edges)
            return _standardized(_normed(network, geometry, seed), seed), output_shape


def random_parameters(network: Network, seed: int) -> dict[str, np.ndarray]:
    """float32 parameters by name; filters scaled so that values neither vanish nor explode."""
    rng, found = np.random.default_rng((seed, 1)), {}
    for name, shape in parameter_shapes(network).items():
        values = rng.standard_normal(shape) / np.sqrt(prod(shape[1:]))
        positive = name.endswith((".scale", ".running_variance"))
        found[name] = (np.abs(values) + 0.5 if positive else values).astype(np.float32)
    return found


def random_batch(network: Network, geometry: Geometry, seed: int) -> tuple[int, int]:
    """Samples of an update, and of each of its microbatches: one or several."""
    batch, microbatch = np.random.default_rng((seed, 6)).choice(
        [(2, 2), (2, 1), (3, 1), (4, 2), (6, 2)]
    )
    try:
        refuse_single_values(network, geometry, int(microbatch))
    except ShapeError:
        return 4, 2
    return int(batch), int(microbatch)


def random_inputs(
    network: Network, geometry: Geometry, seed: int, batch: int = 1
) -> dict[str, np.ndarray]:
    """float32 (batch, channel, z, y, x) by input node, standard normal."""
    rng = np.random.default_rng((seed, 20))
    return {
        node.name: rng.standard_normal(
            (batch, node.channels, *geometry.input_shapes[node.name])
        ).astype(np.float32)
        for node in network.inputs
    }


def random_targets(
    network: Network, geometry: Geometry, seed: int, batch: int = 1
) -> dict[str, np.ndarray]:
    """float32 (batch, channel, z, y, x) by output node: positive shares that sum to 1 over channels."""
    rng = np.random.default_rng((seed, 3))
    targets = {}
    for node in network.outputs:
        shape = (batch, node.channels, *geometry.output_shapes[node.name])
        shares = rng.random(shape) + 0.01
        targets[node.name] = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
    return targets


def random_weights(
    network: Network, geometry: Geometry, seed: int, batch: int = 1
) -> dict[str, np.ndarray]:
    """float32 (batch, 1, z, y, x) by output node; about a third of the voxels weigh nothing."""
    rng = np.random.default_rng((seed, 4))
    weights = {}
    for node in network.outputs:
        shape = (batch, 1, *geometry.output_shapes[node.name])
        weights[node.name] = (rng.random(shape) * (rng.random(shape) > 0.3)).astype(np.float32)
        weights[node.name].flat[0] = 1.0
    return weights


def random_masks(
    network: Network, geometry: Geometry, seed: int, batch: int = 1
) -> dict[str, np.ndarray]:
    """float32 0 or 1, (batch, channel, z, y, x) by dropout edge."""
    rng = np.random.default_rng((seed, 5))
    masks = {}
    for edge in network.edges:
        if edge.kind == "dropout":
            channels = network.node(edge.source).channels
            shape = (batch, channels, *geometry.nodes[edge.source].shape)
            masks[edge.name] = (rng.random(shape) < edge.keep).astype(np.float32)
    return masks


def _is_small(network: Network, geometry: Geometry) -> bool:
    products = 0
    for edge in network.edges:
        work = prod(edge.size) * prod(geometry.nodes[edge.target].shape)
        if edge.kind == "conv":
            work *= network.node(edge.source).channels * network.node(edge.target).channels
        products += work
    widest = max(max(shape) for shape in geometry.input_shapes.values())
    voxels = max(prod(node.shape) for node in geometry.nodes.values())
    return products < MOST_PRODUCTS and widest <= WIDEST and voxels <= MOST_VOXELS


def _normed(network: Network, geometry: Geometry, seed: int) -> Network:
    """The network with some transfer nodes normalised, where statistics are of some voxels."""
    rng = np.random.default_rng((seed, 6))
    kinds = get_args(NormKind)
    nodes = []
    for node in network.nodes:
        groups = int(rng.choice([n for n in range(1, node.channels + 1) if node.channels % n == 0]))
        kind = kinds[rng.integers(len(kinds))]
        norm = Norm(
            kind,
            groups if kind == "group" else 1,
            rng.choice([1e-3, 0.1]),
            affine=rng.random() < 0.7 or kind == "response",
        )
        chosen = node.kind == "transfer" and rng.random() < 0.3
        enough = prod(geometry.nodes[node.name].shape) >= 8 and (
            kind != "channel" or node.channels > 2
        )
        nodes.append(replace(node, norm=norm) if chosen and enough else node)
    return Network(tuple(nodes), network.edges)


def _standardized(network: Network, seed: int) -> Network:
    """The network with the filters of some convolutions standardised."""
    rng = np.random.default_rng((seed, 7))
    shapes = parameter_shapes(network)
    edges = [
        replace(edge, weight_standardization=True)
        if edge.kind == "conv"
        and rng.random() < (0.5 if edge.groups > 1 else 0.2)
        and prod(shapes[edge.name][1:]) > 1
        else edge
        for edge in network.edges
    ]
    return Network(network.nodes, tuple(edges))


class _Builder:
    """Grows a network from its input at a tip, block by block."""

    def __init__(
        self,
        rng: np.random.Generator,
        functions: tuple[str, ...],
        outputs: tuple[str, ...],
        flat: bool,
        resized: bool,
    ) -> None:
        self.rng, self.resized = rng, resized
        self.functions, self.outputs = functions, outputs
        self.flat = flat
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.sparsity: dict[str, Triple] = {}
        self.stride: dict[str, tuple[Fraction, ...]] = {}

    def build(self, blocks: int) -> tuple[Network, OutputShape]:
        self.tip = self._input("input")
        steps = [
            self._conv,
            self._conv,
            self._max_filter,
            self._converging,
            self._residual,
            self._concat,
            self._max_filter,
            self._max_pool,
            self._max_pool,
            self._dropout,
            self._crop,
            self._strided,
            self._second_input,
            self._largest,
            self._grouped,
            self._avg_pool,
            self._avg_pool,
            self._grown,
            self._grown,
            self._identity,
            self._u_shape,
            self._mean,
            *(partial(self._of_kind, kind) for kind in EDGE_KINDS if kind not in WITH_BLOCKS),
        ]
        for step in self.rng.permutation(len(steps))[: self._int(1, blocks + 1)]:
            steps[step]()
        if self.resized:
            self._resized()
        self._whole_stride()
        shape = self._triple((4, 4, 4) if self._chance() else self._size(low=1, high=4))
        before_outputs = self.tip
        size, channels = self._filter(), self._channels()
        self.tip = self._output(before_outputs, size, channels)
        shape = smallest(self._network(), shape)
        if self._chance(0.6):
            return self._network(), shape
        return self._second_output(before_outputs, size, shape)

    def _second_output(
        self, before: Node, size: Triple, shape: Triple
    ) -> tuple[Network, OutputShape]:
        """Beside the first output, or from any earlier hidden node, then of a size of its own."""
        if self._chance():
            self._output(before, size, self._channels())
            return self._network(), shape
        nodes = fit(self._network(), shape).nodes
        source = self._pick([n for n in self.nodes[:-1] if n.kind != "input"] or [before])
        first = self.tip.name
        other = self._output(source, ONE, self._channels())
        return self._network(), {first: shape, other.name: nodes[source.name].shape}

    def _network(self) -> Network:
        """Nodes were appended before what follows them, so their order is topological."""
        return Network(tuple(self.nodes), tuple(self.edges))

    # blocks

    def _conv(self) -> None:
        target = self._transfer()
        size, sparsity = self._filter(), self._dilation()
        more = self._padding(size, sparsity, same=True)
        self._edge("conv", self.tip, target, size=size, sparsity=sparsity, **more)
        self.tip = target

    def _strided(self) -> None:
        stride = self._allowed_stride(self.tip)
        target, size = self._transfer(), self._filter()
        self._edge("conv", self.tip, target, size=size, stride=stride, **self._padding(size))
        self.tip = target

    def _grouped(self) -> None:
        """Groups of channels; as many groups as channels half of the time (depthwise)."""
        before = self.tip.channels
        groups = before if self._chance() else self._pick([n for n in (1, 2, 4) if before % n == 0])
        most = max(groups, 32 - 32 % groups)  # 32, unless there are more groups
        target = self._transfer(min(groups * self._pick([1, 1, 2, 3]), most))
        size = self._filter()
        self._edge("conv", self.tip, target, size=size, groups=groups, **self._padding(size))
        self.tip = target

    def _grown(self) -> None:
        """Transposed convolution or upsampling, by what the stride divides by or, seldom, beyond the input."""
        source = self.tip
        if self.sparsity[source.name] != ONE:
            self._conv()
            return
        whole = [
            [n for n in (1, 2, 3) if n == 1 or step % n == 0] for step in self.stride[source.name]
        ]
        free = [1, 2] if self._chance(0.3) else [1]
        factor = self._triple([max(self._pick(some), self._pick(free)) for some in whole])
        self.tip = self._growth(source, factor, exact=False)

    def _resized(self) -> None:
        """Any other size."""
        source = self.tip
        if self.sparsity[source.name] != ONE:
            self._conv()
            return
        factor = self._triple([self._pick([1, 1, 1, 1, 2, 3]) for _ in range(3)])
        divisor = self._triple([self._pick([1, 1, 1, 2, 3]) for _ in range(3)])
        more = self._triple([self._pick([0, 0, 1, 2, -1]) for _ in range(3)], least=0)
        self.tip = self._plain_target(source)
        mode = self._pick(get_args(Interpolation))
        self._edge("resize", source, self.tip, factor=factor, divisor=divisor, more=more, mode=mode)

    def _growth(self, source: Node, factor: Triple, *, exact: bool) -> Node:
        """A node of `factor` times the size; `exact`: whatever that is, else filters may make a little more."""
        each = prod(factor)
        if each <= 12 and self._chance(0.5):
            deep = self._transfer(each * self._pick([1, 3, 5]))
            self._edge("conv", source, deep, size=ONE)
            target = self._node("sum", deep.channels // each)
            self._edge("depth_to_space", deep, target, factor=factor)
            return target
        if self._chance(0.4):
            target = self._plain_target(source)
            mode = self._pick(["nearest", "linear"])
            self._edge("upsample", source, target, factor=factor, mode=mode)
            return target
        groups = self._pick([n for n in (1, 1, 2) if source.channels % n == 0])
        target = self._transfer(groups * self._pick([1, 3, 8]))
        more = {"size": factor, "stride": factor, "groups": groups}
        if not exact:
            size = self._filter()
            cut = [(self._int(0, n), self._int(0, n)) for n in size]
            last = self._triple([self._int(0, n) for n in factor], least=0)
            more |= {"size": size, "padding": self._sides(cut), "output_padding": last}
        self._edge("conv_transpose", source, target, **more)
        return target

    def _identity(self) -> None:
        """One or two convolutions of the same size around which the node itself goes."""
        source, tip = self.tip, self.tip
        for _ in range(self._int(0, 2)):
            hidden = self._transfer()
            self._edge("conv", tip, hidden, size=self._filter(), padding="same")
            tip = hidden
        target = self._plain_target(source)
        self._edge("conv", tip, target, size=self._filter(), padding="same")
        self._edge("identity", source, target)
        self.tip = target

    def _u_shape(self) -> None:
        """Down, a convolution, up again and beside what was before, as large or cropped to fit."""
        source = self.tip
        if self.sparsity[source.name] != ONE:
            self._conv()
            return
        step, size = (
            self._pick([(2, 2, 2), (1, 2, 2), (1, 3, 2)]),
            self._pick([(3, 3, 3), (1, 3, 3)]),
        )
        step, size = self._triple(step), self._triple(size)
        low = self._plain_target(source)
        self._edge(self._pick(["max_pool", "avg_pool"]), source, low, size=step, stride=step)
        padded, hidden = self._chance(), self._transfer()
        self._edge("conv", low, hidden, size=size, padding="same" if padded else BARE)
        high = self._growth(hidden, step, exact=True)
        target = self._node("concat", high.channels + source.channels)
        margin = tuple(s * (n - 1) // 2 for s, n in zip(step, size, strict=True))
        self._edge("identity", high, target)
        self._edge("crop", source, target, offset=(0, 0, 0) if padded else margin)
        self.tip = target

    def _converging(self) -> None:
        """Two convolutions of equal extent from one node; the second may be thin and dilated."""
        target = self._transfer() if self._chance(0.7) else self._node("sum", self._channels())
        size = self._triple(self._pick([(3, 3, 3), (1, 3, 3), (3, 1, 5)]))
        thin = tuple((count + 1) // 2 for count in size)
        wide = tuple(2 if count > 1 else 1 for count in size)
        self._edge("conv", self.tip, target, size=size)
        if self._chance():
            self._edge("conv", self.tip, target, size=thin, sparsity=wide)
        else:
            self._edge("conv", self.tip, target, size=size)
        self.tip = target

    def _residual(self) -> None:
        """Two convolutions around which the node itself skips, cropped to fit."""
        hidden = self._transfer()
        source, size = self.tip, self._triple((3, 3, 3))
        inherited = self.sparsity[source.name]
        self._edge("conv", source, hidden, size=size)
        target = self._node("sum", source.channels)
        self._edge("conv", hidden, target, size=size)
        margin = tuple((n - 1) * step for n, step in zip(size, inherited, strict=True))
        self._edge("crop", source, target, offset=margin)
        self.tip = target

    def _largest(self) -> None:
        """The largest of two or three convolutions of one node, or their product."""
        source, size = self.tip, self._filter()
        target = self._node(self._pick(["max", "product"]), self._channels())
        for _ in range(self._int(2, 4)):
            side = self._transfer(target.channels)
            self._edge("conv", source, side, size=size)
            self._edge("crop", side, target)
        # Nodes stand in the order in which they are made.
        self.nodes.append(self.nodes.pop(self.nodes.index(target)))
        self.tip = target

    def _mean(self) -> None:
        """A node times its means: means alone are constants, of which norms would make rounding errors."""
        source = self.tip
        means, target = self._node("sum", source.channels), self._node("product", source.channels)
        self._edge("mean", source, means)
        self._edge("crop", source, target)
        self._edge("identity", means, target)
        self.tip = target

    def _concat(self) -> None:
        """A convolution beside the cropped source, in either order; their channels are stacked."""
        source, size = self.tip, self._triple(self._pick([(3, 3, 3), (1, 3, 1), (5, 3, 3)]))
        inherited = self.sparsity[source.name]
        side = self._transfer()
        self._edge("conv", source, side, size=size)
        target = self._node("concat", side.channels + source.channels)
        margin = tuple((n - 1) * step // 2 for n, step in zip(size, inherited, strict=True))
        if self._chance():
            self._edge("crop", source, target, offset=margin)
            self._edge("crop", side, target)
        else:
            self._edge("dropout", side, target, keep=0.75)
            self._edge("crop", source, target, offset=margin)
        self.tip = target

    def _max_filter(self) -> None:
        window = self._triple(self._pick(WINDOWS))
        sparsens = window if self._chance(0.7) else ONE
        target = self._plain_target()
        self._edge("max_filter", self.tip, target, size=window, sparsens=sparsens)
        self.tip = target

    def _max_pool(self) -> None:
        stride = self._allowed_stride(self.tip)
        target, size = self._plain_target(), self._triple(self._pick(WINDOWS))
        padding = self._pool_padding(size)
        self._edge("max_pool", self.tip, target, size=size, stride=stride, padding=padding)
        self.tip = target

    def _avg_pool(self) -> None:
        stride = self._allowed_stride(self.tip)
        target, size = self._plain_target(), self._triple(self._pick(WINDOWS))
        more = {"padding": self._pool_padding(size), "count_padding": self._chance()}
        self._edge("avg_pool", self.tip, target, size=size, stride=stride, **more)
        self.tip = target

    def _whole_stride(self) -> None:
        """A pooling where voxels lie closer than those of the input."""
        finer = self._triple([step.denominator for step in self.stride[self.tip.name]])
        if max(finer) > 1:
            target = self._plain_target()
            self._edge(
                self._pick(["max_pool", "avg_pool"]), self.tip, target, size=finer, stride=finer
            )
            self.tip = target

    def _dropout(self) -> None:
        target = self._plain_target()
        keep = float(self._pick([0.5, 0.75, 0.9]))
        self._edge("dropout", self.tip, target, keep=keep)
        self.tip = target

    def _crop(self) -> None:
        target = self._plain_target()
        self._edge("crop", self.tip, target, offset=self._triple(self._size(low=0, high=2)))
        self.tip = target

    def _of_kind(self, name: str) -> None:
        """One edge of a kind that has no block of its own; no true stride where voxels are sparse."""
        kind, source = EDGE_KINDS[name], self.tip
        keys = drawn_keys(kind, self.rng, flat=self.flat)
        numbers = dict(kind.numbers(kind.keys.model_validate(keys)))
        if self.sparsity[source.name] != ONE and numbers.get("stride", ONE) != ONE:
            self._conv()
            return
        target = self._transfer() if kind.learns else self._plain_target()
        self._edge(name, source, target, **numbers)
        self.tip = target

    def _second_input(self) -> None:
        """Another input joins; it brings no sparsity and reaches the tip's stride in one step."""
        source = self.tip
        stride = self.stride[source.name]
        finer = any(step.denominator > 1 for step in stride)
        sparse = self.sparsity[source.name] != ONE
        if sparse or finer or any(n.name == "other" for n in self.nodes):
            self._conv()
            return
        other = self._input("other")
        target = self._transfer()
        self._edge("conv", source, target, size=self._filter())
        self._edge("conv", other, target, size=self._filter(), stride=self._triple(stride))
        self.tip = target

    # pieces

    def _input(self, name: str) -> Node:
        node = Node(name, "input", int(self._pick([1, 1, 2, 3, 17])))
        self.nodes.append(node)
        self.sparsity[name], self.stride[name] = ONE, (Fraction(1),) * 3
        return node

    def _output(self, source: Node, size: Triple, channels: int) -> Node:
        function = self._pick(self.outputs)
        function = "linear" if channels == 1 and function == "softmax" else function
        target = self._node("transfer", channels, function=function)
        self._edge("conv", source, target, size=size)
        return target

    def _transfer(self, channels: int | None = None) -> Node:
        return self._node(
            "transfer",
            channels or self._channels(),
            function=self._pick(self.functions),
            slope=float(self._pick([0.01, 0.3, 1.0])),
            bias=self._chance(0.8),
        )

    def _plain_target(self, source: Node | None = None) -> Node:
        """A target for an edge that keeps the number of channels."""
        channels = (source or self.tip).channels
        return self._node("sum", channels) if self._chance() else self._transfer(channels)

    def _node(self, kind: str, channels: int, **more: object) -> Node:
        shaped = FUNCTIONS[more.get("function", "linear")].shaped
        if "amplitude" in shaped and self._chance():
            more |= {"amplitude": 1.7159, "gain": 0.6666}
        node = Node(f"n{len(self.nodes)}", kind, channels, **more)
        self.nodes.append(node)
        return node

    def _edge(self, kind: str, source: Node, target: Node, **more: object) -> None:
        if kind == "conv" and self._chance(0.2):
            more["repeat"] = tuple(self._pick([1, n]) for n in more["size"])
        edge = Edge(f"e{len(self.edges)}", kind, source.name, target.name, **more)
        self.edges.append(edge)
        self.sparsity[target.name] = scale(self.sparsity[source.name], edge.sparsens)
        sizes = EDGE_KINDS[kind].sizes(edge, ONE)
        steps = [Fraction(along.shrinks, along.grows) for along in sizes]
        before = self.stride[source.name]
        self.stride[target.name] = tuple(a * b for a, b in zip(before, steps, strict=True))

    def _padding(self, size: Triple, sparsity: Triple = ONE, *, same: bool = False) -> dict:
        """Keys of a convolution that sees beyond the channels, half of the time."""
        if self._chance():
            return {}
        border = self._pick(get_args(BorderName))
        if same and self._chance(0.3):
            return {"padding": "same", "border": border}
        reach = [(n - 1) * step for n, step in zip(size, sparsity, strict=True)]
        some = [(self._int(0, n + 1), self._int(0, n + 1)) for n in reach]
        padding = self._sides(some)
        return {"padding": padding} | ({"border": border} if padding != BARE else {})

    def _pool_padding(self, size: Triple) -> tuple[tuple[int, int], ...]:
        some = [(self._int(0, n // 2 + 1), self._int(0, n // 2 + 1)) for n in size]
        return self._sides(some) if self._chance() else BARE

    def _sides(self, some: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple((0, 0) if self.flat and not axis else some[axis] for axis in range(3))

    def _allowed_stride(self, source: Node) -> Triple:
        wanted = self._triple(self._pick([(2, 2, 2), (1, 2, 2), (3, 2, 1)]))
        if self.sparsity[source.name] != ONE:
            return ONE
        return wanted

    def _filter(self) -> Triple:
        return self._triple(self._pick(SIZES))

    def _dilation(self) -> Triple:
        return self._triple(self._pick([ONE, ONE, (2, 2, 2), (1, 2, 3)]))

    def _channels(self) -> int:
        return int(self._pick(IMAGES))

    def _size(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(self._int(low, high + 1) for _ in range(3))

    def _triple(self, values: tuple[int, ...], least: int = 1) -> Triple:
        """z, y, x; a 2-D net has nothing along z."""
        z, y, x = (int(value) for value in values)
        return (min(z, least) if self.flat else z, y, x)

    def _int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def _chance(self, probability: float = 0.5) -> bool:
        return bool(self.rng.random() < probability)

    def _pick(self, choices):
        return choices[int(self.rng.integers(len(choices)))]
