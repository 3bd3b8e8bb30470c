"""The `network` section: a ZNN file, a chain of layers, or a graph of nodes and edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    model_serializer,
    model_validator,
)

from znnpy.config.fields import (
    Bool,
    FilePath,
    Float,
    Images,
    NonNegative,
    NonZero,
    Offset3,
    Probability,
    Size3,
    Strict,
    shorthand,
    wrong,
)
from znnpy.config.problems import Key, Place

FunctionName = Literal[
    "linear", "relu", "leaky_relu", "elu", "tanh", "logistic", "softmax", "forward_logistic"
]


_INIT_KEYS = {"uniform": ("low", "high"), "normal": ("mean", "std"), "constant": ("value",)}


class InitSection(Strict):
    """How a filter bank or bias starts; in short a kind (`he`) or a number (a constant)."""

    kind: Literal["he", "msra", "xavier", "uniform", "normal", "constant"] = Field(
        description="Distribution: he (= msra), xavier, uniform, normal or constant."
    )
    low: Float = Field(default=-0.1, description="Lower end of `uniform`.")
    high: Float = Field(default=0.1, description="Upper end of `uniform`.")
    mean: Float = Field(default=0.0, description="Mean of `normal`.")
    std: NonNegative = Field(default=0.01, description="Standard deviation of `normal`.")
    value: Float = Field(default=0.0, description="Value of `constant`.")

    @model_validator(mode="after")
    def _fits(self) -> InitSection:
        for kind, keys in _INIT_KEYS.items():
            for key in keys:
                default = type(self).model_fields[key].default
                if kind != self.kind and getattr(self, key) != default:
                    raise wrong(f"only {kind} has this; this is {self.kind}", key)
        if self.low > self.high:
            raise wrong(f"must not exceed high = {self.high}; found {self.low}", "low")
        return self

    @model_serializer
    def _used(self) -> dict[str, str | float]:
        keys = _INIT_KEYS.get(self.kind, ())
        return {"kind": self.kind, **{key: getattr(self, key) for key in keys}}


def _init(value: Any) -> Any:
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"kind": "constant", "value": value}
    return value


def _of_biases(init: InitSection) -> InitSection:
    if init.kind not in _INIT_KEYS:
        raise wrong(f"biases have no fan-in; {init.kind} is for filters", "kind")
    return init


InitField = Annotated[InitSection, BeforeValidator(_init)]
BiasInitField = Annotated[InitSection, BeforeValidator(_init), AfterValidator(_of_biases)]
Slope = Annotated[
    NonNegative | None,
    Field(description="Negative slope of leaky_relu (default 0.01) or alpha of elu (default 1)."),
]
Amplitude = Annotated[
    NonZero, Field(description="Largest value of tanh: amplitude * tanh(gain * x).")
]
Gain = Annotated[
    NonZero,
    Field(description="Steepness of tanh at 0, by its amplitude: amplitude * tanh(gain * x)."),
]
Repeat = Annotated[
    Size3,
    Field(description="Blocks of filter taps that share one number, z y x; they divide the size."),
]
HE = InitSection(kind="he")
ZERO = InitSection(kind="constant")


def _refuse_shape_of_tanh(section: ConvLayer | NodeSection) -> None:
    for key in ("amplitude", "gain"):
        if getattr(section, key) != 1 and section.function != "tanh":
            raise wrong(f"only tanh has this; the function is {section.function}", key)


class ConvLayer(Strict):
    """A convolution, then bias and transfer function."""

    images: Images = Field(description="Number of output images.")
    size: Size3 = Field(description="Filter size in voxels, z y x; one number is a cube.")
    stride: Size3 = Field(default=(1, 1, 1), description="True stride in voxels, z y x.")
    sparsity: Size3 = Field(
        default=(1, 1, 1),
        description="Dilation of the filter in voxels, z y x, on top of what is inherited.",
    )
    sparsens: Size3 = Field(
        default=(1, 1, 1),
        description="Factor by which what follows becomes sparser, z y x (stride in ZNN's files).",
    )
    repeat: Repeat = (1, 1, 1)
    function: FunctionName = Field(default="linear", description="Transfer function.")
    slope: Slope = None
    amplitude: Amplitude = 1.0
    gain: Gain = 1.0
    bias: Bool = Field(default=True, description="Add one learned bias per image.")
    init: InitField = Field(default=HE, description="How the filters start.")
    bias_init: BiasInitField = Field(default=ZERO, description="How the biases start.")

    @model_validator(mode="after")
    def _fits(self) -> ConvLayer:
        _refuse_shape_of_tanh(self)
        return self


class MaxFilterLayer(Strict):
    """A sliding maximum at every voxel; what follows becomes sparse by `stride`."""

    size: Size3 = Field(description="Window in voxels, z y x; one number is a cube.")
    stride: Size3 | None = Field(
        default=None,
        description="Factor by which what follows becomes sparser, z y x (default: size).",
    )


class MaxPoolLayer(Strict):
    """Max-pooling: the output is smaller by `stride`."""

    size: Size3 = Field(description="Window in voxels, z y x; one number is a cube.")
    stride: Size3 | None = Field(
        default=None, description="Stride in voxels, z y x (default: size)."
    )


class DropoutLayer(Strict):
    """Sets voxels to zero at random while training."""

    keep: Probability = Field(description="Probability with which a voxel is kept, in (0, 1].")


class CropLayer(Strict):
    """Removes a margin on both sides."""

    offset: Offset3 = Field(description="Voxels removed on both sides, z y x.")


WINDOW = shorthand("size", int, list, tuple)


class LayerSection(Strict):
    """One item of `layers`: exactly one operation."""

    conv: ConvLayer | None = Field(
        default=None, description="Convolution, bias and transfer function."
    )
    max_filter: Annotated[MaxFilterLayer | None, WINDOW] = Field(
        default=None,
        description="Sliding maximum; what follows becomes sparse. In short: its size.",
    )
    max_pool: Annotated[MaxPoolLayer | None, WINDOW] = Field(
        default=None, description="Max-pooling with a true stride. In short: its size."
    )
    dropout: Annotated[DropoutLayer | None, shorthand("keep", int, float)] = Field(
        default=None, description="Dropout. In short: the probability to keep."
    )
    crop: Annotated[CropLayer | None, shorthand("offset", int, list, tuple)] = Field(
        default=None, description="Crop. In short: the offset."
    )

    @model_validator(mode="after")
    def _one(self) -> LayerSection:
        found = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(found) != 1:
            names = ", ".join(type(self).model_fields)
            raise wrong(f"must hold exactly one of {names}; found {', '.join(found) or 'none'}")
        return self

    @property
    def kind(self) -> str:
        """Name of the operation."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)


class NodeSection(Strict):
    """One group of images."""

    kind: Literal["input", "transfer", "sum", "concat"] = Field(
        description="input: fed by the user; sum: adds its edges; transfer: adds them, a bias and "
        "applies a function; concat: stacks its edges in the order of the file."
    )
    images: Images = Field(description="Number of images.")
    function: FunctionName = Field(
        default="linear", description="Transfer function of a transfer node."
    )
    slope: Slope = None
    amplitude: Amplitude = 1.0
    gain: Gain = 1.0
    bias: Bool = Field(default=True, description="Add one learned bias per image (transfer nodes).")
    init: BiasInitField = Field(default=ZERO, description="How the biases start (transfer nodes).")

    @model_validator(mode="after")
    def _fits(self) -> NodeSection:
        if self.kind != "transfer":
            for key in ("function", "slope", "amplitude", "gain", "bias", "init"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise wrong(f"only a transfer node has this; this is {self.kind}", key)
        _refuse_shape_of_tanh(self)
        return self


class EdgeEnds(Strict):
    """What every edge has."""

    source: str = Field(alias="from", description="Node that the edge leaves.")
    target: str = Field(alias="to", description="Node that the edge enters.")


class ConvEdge(EdgeEnds):
    """A bank of filters between all images of two nodes."""

    kind: Literal["conv"] = Field(description="Operation.")
    size: Size3 = Field(description="Filter size in voxels, z y x; one number is a cube.")
    stride: Size3 = Field(default=(1, 1, 1), description="True stride in voxels, z y x.")
    sparsity: Size3 = Field(
        default=(1, 1, 1),
        description="Dilation of the filter in voxels, z y x, on top of what is inherited.",
    )
    sparsens: Size3 = Field(
        default=(1, 1, 1),
        description="Factor by which what follows becomes sparser, z y x (stride in ZNN's files).",
    )
    repeat: Repeat = (1, 1, 1)
    init: InitField = Field(default=HE, description="How the filters start.")


class MaxFilterEdge(EdgeEnds, MaxFilterLayer):
    """A sliding maximum at every voxel; what follows becomes sparse by `stride`."""

    kind: Literal["max_filter"] = Field(description="Operation.")


class MaxPoolEdge(EdgeEnds, MaxPoolLayer):
    """Max-pooling: the output is smaller by `stride`."""

    kind: Literal["max_pool"] = Field(description="Operation.")


class DropoutEdge(EdgeEnds, DropoutLayer):
    """Sets voxels to zero at random while training."""

    kind: Literal["dropout"] = Field(description="Operation.")


class CropEdge(EdgeEnds, CropLayer):
    """Removes a margin on both sides; an offset of 0 passes the images on."""

    kind: Literal["crop"] = Field(description="Operation.")


EdgeSection = Annotated[
    ConvEdge | MaxFilterEdge | MaxPoolEdge | DropoutEdge | CropEdge, Field(discriminator="kind")
]


@dataclass(frozen=True, eq=False)
class Origin:
    """Where a section was written. Equal to any other: it is no part of what the section says."""

    place: Callable[[Key], Place] = lambda key: Place()
    key: Key = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin)

    def __hash__(self) -> int:
        return 0


class NetworkSection(Strict):
    """One of `layers` (a chain), `nodes` with `edges` (any graph), or `znn` (ZNN's file)."""

    name: str | None = Field(default=None, description="A name for reports.")
    znn: FilePath | None = Field(default=None, description="Path of a ZNN network file (.znn).")
    input: Images | None = Field(
        default=None,
        description="Number of input images of a chain (default 1); only with `layers`.",
    )
    layers: tuple[LayerSection, ...] | None = Field(
        default=None, description="A chain of operations, in order."
    )
    nodes: dict[str, NodeSection] | None = Field(
        default=None, description="Groups of images, by name."
    )
    edges: dict[str, EdgeSection] | None = Field(default=None, description="Operations, by name.")
    _origin: Origin = PrivateAttr(default_factory=Origin)

    def came_from(self, origin: Origin) -> None:
        """Remember where the section was written, for later errors."""
        self._origin = origin

    def place(self, *key: str | int) -> str:
        """File and line of a key below this section; empty when it was not read from a file."""
        return str(self._origin.place((*self._origin.key, *key)))

    @model_validator(mode="after")
    def _one_form(self) -> NetworkSection:
        forms = [key for key in ("layers", "nodes", "znn") if getattr(self, key) is not None]
        if self.edges is not None and "nodes" not in forms:
            raise wrong("edges need nodes as well", "edges")
        if len(forms) != 1:
            found = " and ".join(forms) or "none"
            raise wrong(f"must hold exactly one of layers, nodes with edges, znn; found {found}")
        if self.input is not None and forms != ["layers"]:
            raise wrong("only a chain (layers) has this; nodes say their own images", "input")
        if self.layers == ():
            raise wrong("must hold at least one layer", "layers")
        return self
