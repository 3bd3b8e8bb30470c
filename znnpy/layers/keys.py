"""Config keys that layers, nodes and edges share: initialisation, activation function, groups, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BeforeValidator, Field, model_serializer, model_validator

from znnpy.fields import (
    Bool,
    Channels,
    Float,
    NonNegative,
    NonZero,
    Size3,
    Strict,
    wrong,
)
from znnpy.layers.activation_functions import FUNCTIONS, FunctionName
from znnpy.layers.normalization import BiasKey, NormField
from znnpy.layers.types import Init, Numbers
from znnpy.registered_types import registered

if TYPE_CHECKING:
    FunctionKey = FunctionName
else:  # what is listed, also by others than this package
    FunctionKey = registered(FUNCTIONS, lambda: Literal[tuple(FUNCTIONS)])

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


def init_of(section: InitSection) -> Init:
    """Return the initialisation that a section describes."""
    kind = "he" if section.kind == "msra" else section.kind
    return Init(kind, section.low, section.high, section.mean, section.std, section.value)


def init_data(init: Init) -> dict[str, Any]:
    """Return the keys of a section that describes this initialisation."""
    return {"kind": init.kind} | {key: getattr(init, key) for key in _INIT_KEYS.get(init.kind, ())}


def read_filters(names: Sequence[str], keys: Any) -> dict[str, Any]:
    """Return the numbers of these names and the initialisation, from the keys of a kind that learns filters."""
    return {name: getattr(keys, name) for name in names} | {"init": init_of(keys.init)}


def written_filters(names: Sequence[str], edge: Numbers) -> dict[str, Any]:
    """Return the keys from which `read_filters` makes the same again."""
    return {name: getattr(edge, name) for name in names} | {"init": init_data(edge.init)}


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


def slope_of(function: FunctionName, slope: float | None) -> float:
    """Return the slope as written, else the function's default."""
    return FUNCTIONS[function].slope if slope is None else slope


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
Groups = Annotated[
    Channels,
    Field(description="Groups of channels, each convolved by itself; they divide both counts."),
]
Learn = Annotated[
    Bool,
    Field(description="false: parameters stay as they start or were loaded, without gradients."),
]
Tied = Annotated[Bool, Field(description="prelu has one slope for all channels.")]
HE = InitSection(kind="he")
ZERO = InitSection(kind="constant")


class _Shaped(Protocol):
    function: FunctionName


def refuse_other_shape(section: _Shaped) -> None:
    """Refuse `slope`, `amplitude` or `gain` in a section whose activation function does not read it."""
    slope = FUNCTIONS[section.function].slope
    for key, usual in (
        ("slope", (None, slope)),
        ("amplitude", (1,)),
        ("gain", (1,)),
        ("tied", (False,)),
    ):
        other = getattr(section, key, usual[0]) not in usual
        if other and key not in FUNCTIONS[section.function].shaped:
            names = [name for name, f in FUNCTIONS.items() if key in f.shaped]
            having = f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'}"
            raise wrong(f"only {having} this; the function is {section.function}", key)


class ChannelsKey(Strict):
    """The number of channels that a layer makes."""

    channels: Channels = Field(description="Number of output channels.")


class TransferKeys(ChannelsKey):
    """The keys of a layer that are its node's: channels, bias, normalisation and activation function."""

    function: FunctionKey = Field(default="linear", description="Activation function.")
    slope: Slope = None
    amplitude: Amplitude = 1.0
    gain: Gain = 1.0
    tied: Tied = False
    norm: NormField = None
    bias: BiasKey = None
    bias_init: BiasInitField = Field(default=ZERO, description="How the biases start.")

    @model_validator(mode="after")
    def _fits(self) -> TransferKeys:
        refuse_other_shape(self)
        return self
