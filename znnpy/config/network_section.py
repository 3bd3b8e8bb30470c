"""The `network` section of a config: a chain of layers, a U-Net, a graph of nodes and edges, or a ZNN file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import (
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
    model_validator,
)

from znnpy.config.problems import Key, Place, dotted
from znnpy.config.unet_section import UnetSection
from znnpy.fields import Channels, FilePath, Strict, shorthand, wrong
from znnpy.layers.activation_functions import FUNCTIONS
from znnpy.layers.edge_kind import EdgeKind, NodeKind
from znnpy.layers.edges import EDGE_KINDS
from znnpy.layers.keys import (
    ZERO,
    Amplitude,
    BiasInitField,
    FunctionKey,
    Gain,
    Learn,
    Slope,
    Tied,
    refuse_other_shape,
)
from znnpy.layers.normalization import BiasKey, NormField
from znnpy.layers.types import EdgeKindName
from znnpy.registered_types import registered


class LayerSection(Strict):
    """One item of `layers`: exactly one operation."""

    @model_validator(mode="after")
    def _one(self) -> LayerSection:
        found = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(found) != 1:
            names = ", ".join(type(self).model_fields)
            raise wrong(f"must hold exactly one of {names}; found {', '.join(found) or 'none'}")
        return self

    @property
    def kind(self) -> EdgeKindName:
        """The name of the operation."""
        fields = cast("dict[EdgeKindName, Any]", type(self).model_fields)
        return next(name for name in fields if getattr(self, name) is not None)

    @property
    def operation(self) -> Strict:
        """The keys of the operation, validated."""
        keys: Strict = getattr(self, self.kind)
        return keys


def _layer_key(kind: EdgeKind) -> tuple[Any, Any]:
    """Return type and field of the key by which a layer names an edge kind."""
    keys: Any = (kind.layer or kind.keys) | None
    if kind.short is not None:
        keys = Annotated[keys, shorthand(kind.short[0], *kind.short[1])]
    return keys, Field(default=None, description=kind.summary)


def _layer_section() -> Any:
    keys: dict[str, Any] = {kind.name: _layer_key(kind) for kind in EDGE_KINDS.values()}
    return create_model("LayerSection", __base__=LayerSection, __doc__=LayerSection.__doc__, **keys)


if TYPE_CHECKING:
    Layers = tuple[LayerSection, ...]
else:  # with a key for each kind
    Layers = registered(EDGE_KINDS, lambda: tuple[_layer_section(), ...])


class NodeSection(Strict):
    """One feature map: all channels of a node."""

    kind: NodeKind = Field(
        description="input: given by the user; sum: adds the results of its edges; transfer: adds them and a bias, "
        "then applies an activation function; max: takes their maximum; product: multiplies them; concat: "
        "stacks their channels, in the order of the file."
    )
    channels: Channels = Field(description="Number of channels.")
    function: FunctionKey = Field(
        default="linear", description="Activation function of a transfer node."
    )
    slope: Slope = None
    amplitude: Amplitude = 1.0
    gain: Gain = 1.0
    tied: Tied = False
    norm: NormField = None
    bias: BiasKey = None
    init: BiasInitField = Field(
        default=ZERO, description="Initial values of the biases (transfer nodes)."
    )
    learn: Learn = True

    @model_validator(mode="after")
    def _fits(self) -> NodeSection:
        if self.kind != "transfer":
            for key in ("function", "slope", "amplitude", "gain", "tied", "norm", "init", "learn"):
                if getattr(self, key) != type(self).model_fields[key].default:
                    raise wrong(f"only a transfer node has this; this is {self.kind}", key)
            if self.bias is False:
                raise wrong(f"only a transfer node has this; this is {self.kind}", "bias")
        refuse_other_shape(self)
        return self

    @model_serializer(mode="wrap")
    def _own(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what other kinds of node, and other functions, have."""
        found: dict[str, Any] = written(self)
        if self.kind != "transfer":
            return {key: found[key] for key in ("kind", "channels") if key in found}
        shaped = FUNCTIONS[self.function].shaped
        others = {"slope", "amplitude", "gain", "tied"} - set(shaped)
        return {key: value for key, value in found.items() if key not in others}


class EdgeSection(Strict):
    """The keys that every edge has, beside those of its kind."""

    kind: EdgeKindName = Field(description="Operation.")
    source: str = Field(alias="from", description="Node whose feature map the operation reads.")
    target: str = Field(alias="to", description="Node that the operation contributes to.")


def _edge_section(kind: EdgeKind) -> type[Strict]:
    fields: dict[str, Any] = {"kind": (Literal[kind.name], Field(description="Operation."))}
    return create_model(
        kind.name.title().replace("_", "") + "Edge",
        __base__=(kind.keys, EdgeSection),
        __doc__=kind.keys.__doc__,
        **fields,
    )


def _any_edge() -> Any:
    sections = [_edge_section(kind) for kind in EDGE_KINDS.values()]
    return Annotated[reduce(or_, sections), Field(discriminator="kind")]


if TYPE_CHECKING:
    AnyEdge = EdgeSection
else:  # one of the sections of all kinds
    AnyEdge = registered(EDGE_KINDS, _any_edge)


@dataclass(frozen=True, eq=False)
class Origin:
    """The place where a section was written, for errors. All origins are equal: sections compare by content alone."""

    place: Callable[[Key], Place] = lambda key: Place()
    key: Key = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin)

    def __hash__(self) -> int:
        return 0


class NetworkSection(Strict):
    """One of `layers` (a chain), `unet`, `nodes` with `edges` (any graph), or `znn` (a ZNN file)."""

    name: str | None = Field(default=None, description="A name for reports.")
    znn: FilePath | None = Field(default=None, description="Path of a ZNN network file (.znn).")
    input: Channels | None = Field(
        default=None,
        description="Number of input channels of a chain (default 1); only with `layers`.",
    )
    layers: Layers | None = Field(default=None, description="A chain of operations, in order.")
    unet: UnetSection | None = Field(
        default=None, description="A U-Net by its levels, widths and blocks."
    )
    nodes: dict[str, NodeSection] | None = Field(default=None, description="Feature maps, by name.")
    edges: dict[str, AnyEdge] | None = Field(default=None, description="Operations, by name.")
    _origin: Origin = PrivateAttr(default_factory=Origin)

    def came_from(self, origin: Origin) -> None:
        """Remember where the section was written, for later errors."""
        self._origin = origin

    @property
    def origin(self) -> Origin:
        """The place where the section was written."""
        return self._origin

    def place(self, *key: str | int) -> str:
        """Return file and line of a key below this section; empty when it was not read from a file."""
        return str(self._origin.place((*self._origin.key, *key)))

    def named_place(self, key: Key) -> str:
        """Return file, line and name of a key of the whole config that this section belongs to."""
        where = str(self._origin.place(key))
        return f"{where}: {dotted(key)}" if where else dotted(key)

    @model_validator(mode="after")
    def _one_form(self) -> NetworkSection:
        forms = [
            key for key in ("layers", "unet", "nodes", "znn") if getattr(self, key) is not None
        ]
        if self.edges is not None and "nodes" not in forms:
            raise wrong("edges need nodes as well", "edges")
        if len(forms) != 1:
            found = " and ".join(forms) or "none"
            raise wrong(
                f"must hold exactly one of layers, unet, nodes with edges, znn; found {found}"
            )
        if self.input is not None and forms != ["layers"]:
            raise wrong("only a chain (layers) has this; nodes say their own channels", "input")
        if self.layers == ():
            raise wrong("must hold at least one layer", "layers")
        return self
