"""Chooses how network runs cover a volume: patches side by side, or windows where values depend on the patch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from znnpy.config.models import Config, InferenceSection
from znnpy.data.scene import Scene
from znnpy.data.volume import Triple, Volume
from znnpy.errors import ShapeError
from znnpy.geometry.shape_inference import Geometry, fit, refuse_single_values, smallest
from znnpy.infer.blocks import Field, lattice_unit, made, triple, whole_field
from znnpy.infer.grid import Grid
from znnpy.infer.sliding_window import Windows
from znnpy.network.patch_dependence import patch_dependence
from znnpy.network.types import Network

AnyGrid = Grid | Windows
"""Patches side by side, or overlapping windows."""
ONE: Triple = (1, 1, 1)


@dataclass(frozen=True)
class Tiling:
    """The layout of network runs over a volume.

    `why`: what makes values of the network depend on the patch, "" if nothing does. `window`: the output shape
    of all runs if they do, else None; `said`: where the config or the user says so.
    """

    network: Network
    inference: InferenceSection
    window: Triple | None
    why: str
    said: str

    @classmethod
    def of(cls, config: Config, network: Network, window: Triple | None = None) -> Tiling:
        """Return the tiling that a config asks for; a given `window`, or patch, takes precedence.

        Raises ShapeError for an impossible window.
        """
        # What the network was trained on is the natural window: its statistics and borders are
        # those of training.
        usual = config.inference.window or config.training.output_shape
        # Decides between patches, which are exact, and windows, whose values are a stated mean.
        why = patch_dependence(network)
        said = "--patch" if window else _said(config)
        tiling = cls(network, config.inference, (window or usual) if why else None, why, said)
        # A size that users give must be possible, even where it is only a patch.
        if window:
            tiling._fitted(window)
        return tiling

    @cached_property
    def geometry(self) -> Geometry:
        """The shapes of one run: of a window, or of the smallest patch. ShapeError for an impossible window."""
        return self._fitted(self.window or smallest(self.network))

    def _fitted(self, shape: Triple) -> Geometry:
        try:
            found = fit(self.network, shape)
            refuse_single_values(self.network, found, None)
            return found
        except ShapeError as error:
            raise ShapeError(f"{self.said}: {error}") from None

    @cached_property
    def unit(self) -> Triple:
        """The step in output voxels by which runs may be moved: any number for windows."""
        return lattice_unit(self.geometry) if self.window is None else ONE

    def field(
        self, images: Mapping[str, Volume], corners: Mapping[str, Triple], mirror: bool
    ) -> Field:
        """Return what can be predicted of a volume: all voxels with `mirror`, else those that see no border.

        Raises ShapeError when the volume is smaller than what one voxel sees.
        """
        return whole_field(self.network, images, corners, mirror, self.geometry, self.unit)

    def field_of(self, scene: Scene, config: Config) -> Field:
        """Return the `field` of a scene's images, with borders as the config says."""
        corners = {name: scene.corner(volume) for name, volume in scene.images.items()}
        return self.field(scene.images, corners, config.data.border == "mirror")

    def grid(self, whole: Field, run: Geometry, part: Field | None = None) -> AnyGrid:
        """Return where runs of a shape lie in a field, counted from the first voxel of a part of it."""
        if self.window is None:
            return Grid.of(run)
        # Windows lie where the whole volume says, even if a part is predicted; hence a negative
        # origin.
        steps = zip(whole.first, (part or whole).first, whole.stride, strict=True)
        origin = triple((a - b) // step for a, b, step in steps)
        said = self.inference
        return Windows(made(run), said.overlap, said.blend, whole.shape, origin, said.spread)

    def record(self) -> dict[str, object] | None:
        """Return how windows overlap and blend, JSON-able; None without windows."""
        if self.window is None:
            return None
        said = self.inference
        spread = {} if said.spread == "steps" else {"spread": said.spread}
        return {"overlap": list(said.overlap), "blend": said.blend, **spread}

    def words(self) -> str:
        """Return a sentence on what a prediction guarantees and why; ShapeError for an impossible window."""
        if self.window is None:
            return "exact and seamless: no value depends on the patch"
        (_, *shares), size = self.inference.overlap, "x".join(map(str, made(self.geometry)))
        same = all(share == self.inference.overlap[0] for share in shares)
        overlap = f"{self.inference.overlap[0]:g}" if same else f"{list(self.inference.overlap)}"
        return (
            f"in windows of {size}, overlap {overlap}, {self.inference.blend}: values depend on the window by "
            f"{self.why}"
        )


def unused_windows(config: Config, network: Network) -> list[str]:
    """Return a note if the config asks for windows, and no prediction of the network uses any."""
    if patch_dependence(network) or config.inference == InferenceSection():
        return []
    return [
        f"{config.place('inference')}: not used: this network's values do not depend on the patch, so it has no windows"
    ]


def _said(config: Config) -> str:
    """Return where a config says how large windows are."""
    if config.inference.window is not None:
        return config.place("inference", "window")
    return f"{config.place('training', 'output_shape')}, for want of inference.window"
