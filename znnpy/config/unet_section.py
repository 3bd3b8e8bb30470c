"""The `unet` key of a config: a U-Net by levels, widths and blocks; `network/unet/` writes its nodes and edges."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from znnpy.fields import Channels, Int, Size3, Strict, shorthand, shown, wrong
from znnpy.layers.data_movement import DropoutLayer
from znnpy.layers.keys import FunctionKey, Slope, refuse_other_shape
from znnpy.layers.normalization import BiasKey, NormField, biased, norm_of
from znnpy.layers.types import MOST_EDGES, BorderName, Triple

Value = TypeVar("Value")
NAME = re.compile("[a-z][a-z0-9_]*", re.IGNORECASE)


def _each(value: Any) -> Any:
    """Make a list with one value per level; a number, or three plain numbers (z, y, x), stands for all levels."""
    row = isinstance(value, list | tuple) and len(value) == 3 and not any(map(_listed, value))
    return (value,) if row or not _listed(value) else value


def _counts(value: Any) -> Any:
    return value if _listed(value) else (value,)


def _listed(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _short(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values


def _widths(levels: tuple[Any, ...]) -> list[Any]:
    return [_short(level) for level in levels]


def _schema(item: dict[str, Any]) -> WithJsonSchema:
    triple = {"type": "array", "items": item, "minItems": 3, "maxItems": 3}
    several = {"type": "array", "items": {"anyOf": [item, triple]}, "minItems": 1}
    return WithJsonSchema({"anyOf": [item, triple, several]})


_INTEGER = {"type": "integer", "minimum": 1}
_SEVERAL = {"type": "array", "items": _INTEGER, "minItems": 1}
Sizes = Annotated[
    tuple[Size3, ...], BeforeValidator(_each), PlainSerializer(_short), _schema(_INTEGER)
]
"""A size for all levels, or one for each: a list of three plain numbers is one size, z y x."""
Most = Annotated[Int, Field(ge=1, le=64)]
Counts = Annotated[
    tuple[Most, ...],
    BeforeValidator(_counts),
    PlainSerializer(_short),
    WithJsonSchema({"anyOf": [_INTEGER, _SEVERAL]}),
]
"""A number for all levels, or one for each."""
Width = Annotated[tuple[Channels, ...], BeforeValidator(_counts)]
Widths = Annotated[
    tuple[Width, ...],
    PlainSerializer(_widths),
    WithJsonSchema({"type": "array", "items": {"anyOf": [_INTEGER, _SEVERAL]}, "minItems": 1}),
]
"""Numbers of channels by level; a level may name one for each of its convolutions."""


class BlockSection(Strict):
    """The block that a level's convolutions form: plain or residual; its kind alone is the short form."""

    kind: Literal["plain", "residual"] = Field(
        description="plain: one after the other; residual: the block's input is added to its result."
    )
    start: Literal["first", "input"] = Field(
        default="first",
        alias="from",
        description="Start of the residual connection: the output of the block's first convolution (Lee et al. 2017), "
        "or the block's input (He et al. 2016).",
    )
    add: Literal["sum", "norm", "function"] = Field(
        default="sum",
        description="Where the residual is added: to the last sum before norm and activation function, after its "
        "norm, or after its function.",
    )
    shortcut: Literal["conv", "filter", "average"] = Field(
        default="conv",
        description="Shortcut where widths or sizes of input and output differ: a strided 1x1x1 convolution, a "
        "strided one of the block's filter size, or average pooling, then 1x1x1.",
    )

    @model_validator(mode="after")
    def _fits(self) -> BlockSection:
        for key in ("start", "add", "shortcut"):
            changed = getattr(self, key) != type(self).model_fields[key].default
            if self.kind == "plain" and changed:
                raise wrong("only a residual block has this", "from" if key == "start" else key)
        if self.start == "first" and self.shortcut != "conv":
            raise wrong(
                "needs from: input; the first convolution's output fits as it is", "shortcut"
            )
        return self


Block = Annotated[BlockSection, shorthand("kind", str)]
PLAIN = BlockSection(kind="plain")


class UpSection(Strict):
    """Upsampling from a level to the one above it; its kind alone is the short form."""

    kind: Literal["transposed", "linear", "nearest"] = Field(
        description="transposed: a transposed convolution; linear or nearest: interpolation and a convolution. A "
        "1x1x1 convolution stands before the interpolation, where it costs less and gives the same."
    )
    size: Size3 | None = Field(
        default=None,
        description="Filter size of that convolution (default: the factor of the step for transposed, else 1).",
    )
    channels: Literal["level", "same"] = Field(
        default="level",
        description="Channels after upsampling: level (the width of the level above), or same (as many as before; "
        "linear and nearest then have no convolution).",
    )

    @model_validator(mode="after")
    def _fits(self) -> UpSection:
        if self.kind != "transposed" and self.channels == "same" and self.size is not None:
            raise wrong(f"{self.kind} with channels: same has no convolution", "size")
        return self


Up = Annotated[UpSection, shorthand("kind", str)]
TRANSPOSED = UpSection(kind="transposed")


class UnetSection(Strict):
    """A U-Net. Levels count from 0, the one of the input's size; steps lead from one level to the next."""

    input: Channels = Field(default=1, description="Number of input channels.")
    widths: Widths = Field(
        description="Channels of each level, level 0 first; a list in it: of each of the level's convolutions."
    )
    up_widths: Widths | None = Field(
        default=None,
        description="Channels of each level on the way up (default: those of `widths`).",
    )
    down: Sizes = Field(
        default=((2, 2, 2),), description="Factor of each step down, z y x; or a list, one a step."
    )
    size: Sizes = Field(
        default=((3, 3, 3),), description="Filter size, z y x; or a list, one a level."
    )
    up_size: Sizes | None = Field(
        default=None, description="Filter size on the way up (default: `size`)."
    )
    first_size: Sizes | None = Field(
        default=None, description="Filter size of each block's first convolution (default: `size`)."
    )
    stem: Size3 | None = Field(
        default=None,
        description="Filter size of a convolution before level 0 (default: none).",
    )
    convs: Counts = Field(
        default=(2,), description="Convolutions in a block; or a list, one a level."
    )
    up_convs: Counts | None = Field(
        default=None, description="Convolutions in a block on the way up (default: `convs`)."
    )
    blocks: Counts = Field(default=(1,), description="Blocks in a level on the way down.")
    block: Block = Field(
        default=PLAIN, description="Block: plain or residual, in short or in full."
    )
    up_block: Block | None = Field(
        default=None, description="Blocks on the way up (default: `block`)."
    )
    padding: Literal["same", "valid"] = Field(
        default="same",
        description="same: convolutions keep the size; valid: they read true voxels only, and skip connections are "
        "cropped to fit.",
    )
    border: BorderName = Field(
        default="zeros", description="Values that padding adds around feature maps."
    )
    pool: Literal["max", "average", "strided"] = Field(
        default="max",
        description="Downsampling of a step; strided: by the level's first convolution.",
    )
    up: Up = Field(default=TRANSPOSED, description="Upsampling of a step, in short or in full.")
    join: Literal["concat", "sum"] = Field(
        default="concat",
        description="Skip connections: concat stacks their channels before those from below; sum adds the two, with "
        "norm and activation function after the sum (order: post).",
    )
    order: Literal["post", "pre"] = Field(
        default="post",
        description="post: convolution, norm, activation function; pre: norm and function before each convolution of a "
        "block and of the output (He et al. 2016, identity mappings), none after sums.",
    )
    norm: NormField = None
    function: FunctionKey = Field(default="relu", description="Activation function.")
    slope: Slope = None
    bias: BiasKey = None
    dropout: Annotated[DropoutLayer | None, shorthand("keep", int, float)] = Field(
        default=None, description="Dropout after each block. In short: the probability to keep."
    )
    outputs: Channels = Field(default=1, description="Number of output channels.")
    output_size: Size3 = Field(default=(1, 1, 1), description="Filter size of the output layer.")
    output_function: FunctionKey = Field(
        default="linear", description="Activation function of the outputs."
    )
    heads: dict[str, Channels] = Field(
        default={},
        description="More outputs of full size, by name, with their channels, such as {lsds: 10}: what they learn is "
        "in training.outputs.",
    )
    supervise: Annotated[Int, Field(ge=0)] = Field(
        default=0,
        description="Deep supervision: number of coarser levels with an output of their own; output1 is half the size "
        "of output, output2 a quarter ...",
    )

    @property
    def levels(self) -> int:
        """The number of levels."""
        return len(self.widths)

    @property
    def biased(self) -> bool:
        """Whether convolutions other than the outputs learn biases."""
        return biased(self.bias, self.norm)

    @model_validator(mode="after")
    def _fits(self) -> UnetSection:
        if self.levels < 2:
            raise wrong(f"must name at least two levels; found {self.levels}", "widths")
        if self.padding == "valid" and self.border != "zeros":
            raise wrong("needs padding: same; valid convolutions see true voxels only", "border")
        refuse_other_shape(self)
        self._refuse_lengths()
        self._refuse_many()
        self._refuse_widths()
        self._refuse_blocks()
        self._refuse_groups()
        if self.padding == "same":
            self._refuse_steps()
        for name in self.heads:
            if NAME.fullmatch(name) is None or name.startswith(("output", "input", "up", "down")):
                text = "must be a word that begins with no input, output, up or down"
                raise wrong(f"{text}; found {shown(name)}", "heads")
        if self.supervise > self.levels - 2:
            most = f"must be at most {self.levels - 2} with {self.levels} levels"
            raise wrong(f"{most}; found {self.supervise}", "supervise")
        return self

    def _refuse_lengths(self) -> None:
        """Refuse lists with too many or too few entries."""
        lists = {"down": self.levels - 1, "up_widths": self.levels - 1, "up_convs": self.levels - 1}
        lists |= dict.fromkeys(("size", "first_size", "convs", "blocks"), self.levels)
        lists["up_size"] = self.levels - 1
        for key, wanted in lists.items():
            found = getattr(self, key)
            if (
                found is not None
                and len(found) != wanted
                and (len(found) != 1 or key == "up_widths")
            ):
                what = "steps" if key == "down" else "levels"
                text = f"must hold one value for each of the {wanted} {what}"
                hint = "" if key == "up_widths" else _three(found)
                raise wrong(f"{text}{hint}; found {len(found)}", key)

    def _refuse_many(self) -> None:
        """Refuse more convolutions than a network may have edges, before they are written out."""
        down = sum(each(self.blocks, n) * each(self.convs, n) for n in range(self.levels))
        count = down + sum(each(self.up_counts, n) for n in range(self.levels - 1))
        if count > MOST_EDGES:
            raise wrong(
                f"are {count:,} convolutions in all; at most {MOST_EDGES:,} are taken", "convs"
            )

    def _refuse_widths(self) -> None:
        for key in ("widths", "up_widths"):
            for level, widths in enumerate(getattr(self, key) or ()):
                wanted = each(self.convs if key == "widths" else self.up_counts, level)
                if len(widths) not in (1, wanted):
                    found = f"found {len(widths)}"
                    raise wrong(
                        f"must name channels for {wanted} convolutions; {found}", key, level
                    )
        if self.join == "sum" and self.up.channels == "same":
            different = [i for i in range(self.levels - 1) if self.arriving(i) != self.width(i)]
            if different:
                numbers = f"{self.arriving(different[0])} channels to {self.width(different[0])}"
                raise wrong(
                    f"join: sum cannot add {numbers}; level makes them as many", "up", "channels"
                )

    def _refuse_blocks(self) -> None:
        down = [(block, "widths", level) for level, block in enumerate([self.block] * self.levels)]
        up = [(self.up_blocks, "up_widths", level) for level in range(self.levels - 1)]
        for block, key, level in down + up:
            if block.kind == "plain":
                continue
            if self.order == "pre" and block.add != "sum":
                text = f"order: pre has neither norm nor function after a sum; found {block.add}"
                raise wrong(text, "block" if block is self.block else "up_block", "add")
            widths = (getattr(self, key) or self.widths)[level]
            if len(widths) > 1:
                raise wrong(
                    f"a residual block has one width; found {shown(list(widths))}", key, level
                )
            counts = self.convs if key == "widths" else self.up_counts
            if block.start == "first" and each(counts, level) < 2:
                key = "convs" if key == "widths" or self.up_convs is None else "up_convs"
                raise wrong("a residual block from its first convolution needs another", key)
            sizes = self.sizes(level) if key == "widths" else self.up_sizes(level)
            even = [size for size in sizes if any(taps % 2 == 0 for taps in size)]
            if self.padding == "valid" and even:
                text = f"a residual block without padding needs odd filters; found {list(even[0])}"
                raise wrong(text, "size")

    def _refuse_steps(self) -> None:
        """Refuse filters with which a step down or up cannot be a whole factor, however they are padded."""
        up, key = self.up.size, "size" if self.first_size is None else "first_size"
        for level in range(self.levels - 1):
            factor, first = each(self.down, level), self.sizes(level + 1)[0]
            for axis, step, taps in zip("zyx", factor, first, strict=True):
                if self.pool == "strided" and taps // 2 < step - 1:
                    found = f"found {taps} at level {level + 1}"
                    least = f"must be at least {2 * step - 2} along {axis} to see all voxels"
                    raise wrong(f"{least} in steps of {step}; {found}", key)
            for axis, step, taps in zip("zyx", factor, up or factor, strict=True):
                if self.up.kind == "transposed" and step == 1 and taps % 2 == 0:
                    odd = f"must be odd along {axis}, where level {level} does not grow"
                    raise wrong(f"{odd}; found {taps}", "up", "size")

    def _refuse_groups(self) -> None:
        """Refuse norm groups that do not divide a level's channels, once; else each of its nodes would report it."""
        norm = norm_of(self.norm)
        for key in ("widths", "up_widths") if norm else ():
            for level, widths in enumerate(getattr(self, key) or ()):
                for channels in widths:
                    if norm and channels % norm.parts(channels):
                        text = (
                            f"{norm.parts(channels)} groups do not divide the {channels} channels"
                        )
                        raise wrong(f"{text} of level {level} ({key})", "norm", "groups")

    @property
    def up_blocks(self) -> BlockSection:
        """The block of the way up."""
        return self.block if self.up_block is None else self.up_block

    @property
    def up_counts(self) -> tuple[int, ...]:
        """The convolutions of a block on the way up, by level or one number for all."""
        if self.up_convs is not None or len(self.convs) == 1:
            return self.up_convs or self.convs
        return self.convs[:-1]

    def width(self, level: int) -> int:
        """Return the channels that a level passes to the next one (the lowest level: upwards)."""
        return self.widths[level][-1]

    def arriving(self, level: int) -> int:
        """Return the channels that come up to a level, before the upsampling changes their number."""
        below = level + 1
        if below == self.levels - 1 or self.up_widths is None:
            return self.width(below)
        return self.up_widths[below][-1]

    def sizes(self, level: int) -> list[Triple]:
        """Return the filter sizes of a block on the way down."""
        return self._sizes(level, self.size, each(self.convs, level))

    def up_sizes(self, level: int) -> list[Triple]:
        """Return the filter sizes of a block on the way up."""
        return self._sizes(level, self.up_size or self.size, each(self.up_counts, level))

    def _sizes(self, level: int, sizes: tuple[Triple, ...], count: int) -> list[Triple]:
        size = each(sizes, level)
        return [each(self.first_size, level) if self.first_size else size, *[size] * (count - 1)]


def each(values: tuple[Value, ...], level: int) -> Value:
    """Return the value of one level from a list that holds one per level, or one for all."""
    return values[0] if len(values) == 1 else values[level]


def _three(found: Iterable[Any]) -> str:
    triples = [value for value in found if isinstance(value, tuple)]
    return " (a list of three plain numbers is one, z y x)" if triples else ""
