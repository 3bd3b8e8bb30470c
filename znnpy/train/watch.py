"""Watches the first updates of a run for what goes wrong unseen, and says it once; a healthy run hears nothing.

It looks at losses, targets and inputs of all updates up to `LOOKED`, and there at the weights: what is dead is seen by
the float64 definition of the network on small parts of the last patches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from znnpy.config.models import AffinityTarget, BoundaryTarget, Config
from znnpy.distributed.world import World
from znnpy.infer.config_model import frozen_of
from znnpy.network.types import Network
from znnpy.train.frozen import STILL, filters_of, idle_from, movement
from znnpy.train.label_placement import fits
from znnpy.train.living import living_channels, share

Array = NDArray[Any]
Arrays = Array | Mapping[str, Array]
LOOKED = 200  # updates that are watched
RECENT = 50  # of them, over which losses are averaged
PLACED = (
    8  # updates from one look at where labels lie to the next, which takes a tenth of an update
)
TRIVIAL = 0.97  # share of the trivial loss above which nothing was learned
FALLING = 0.98  # share of what it was before, below which a loss still falls
GROWN = 4.0  # times the trivial loss, above which a loss grows
DEAD = 0.5  # share of a node's channels above which dead ones are named
CONSTANT = 1e-3  # of all targets, that differ from the others: fewer are as good as none
PARTS = 4  # patches of which there are such parts
FITS = 0.15  # correlation of labels with the image below which nothing is said of their place
BETTER = 1.5  # times that a shifted place must fit better
ALIKE = 0.2  # mean correlation of all patches, above which they fit at one place
TRIVIAL_LOSSES = ("binomial_cross_entropy", "softmax", "square")


class Weighted(Protocol):
    """A model whose weights can be read, after all updates are done."""

    @property
    def parameters(self) -> dict[str, Array]:
        """Return copies of the parameters by name."""


class Fed(Protocol):
    """What an update was fed: (batch, channel, z, y, x), or such by node name; weight may be None."""

    @property
    def input(self) -> Arrays:
        """Images."""

    @property
    def target(self) -> Arrays:
        """Wanted values."""

    @property
    def weight(self) -> Arrays | None:
        """Weights of voxels."""


class Watch:
    """Watches updates up to the 200th; `note` takes a line for users.

    `begin`, then `fed` and `heard` for each update, and `look` once when `due`. Called from the loop's thread.
    All ranks of `world` have one and look together: rank 0, which has the first sample of each batch, alone says
    something, and hears of the others what they were fed. `note` is None on these.
    """

    def __init__(
        self,
        config: Config,
        network: Network,
        rate: Callable[[int], float],
        note: Callable[[str], None] | None,
        world: World | None = None,
    ) -> None:
        self._world = world or World()
        self._config, self._network, self._rate, self._note = config, network, rate, note
        self._losses: list[float] = []
        self._fed = 0
        self._first: Mapping[str, Array] = {}
        self._single = len(network.outputs) == 1
        self._totals: Array = np.zeros((3, 1))  # of each channel: weight, target and its square
        self._last: deque[Mapping[str, Array]] = deque(maxlen=PARTS)
        self._fits: list[Array] = []

    def begin(self, model: Weighted) -> None:
        """Take note of the weights before the first update."""
        if self._note:
            self._first = filters_of(model.parameters, frozen_of(self._config, self._network))

    def fed(self, batch: Fed) -> None:
        """Take note of what the next update is fed."""
        if len(self._losses) >= LOOKED or not self._single:
            return
        inputs, (target,) = (
            _by_node(batch.input, self._network.inputs[0].name),
            _arrays(batch.target),
        )
        weight = np.ones_like(target) if batch.weight is None else _arrays(batch.weight)[0]
        axes = (0, 2, 3, 4)
        weighted = weight * target
        sums = [np.broadcast_to(weight, target.shape).sum(axes), weighted.sum(axes)]
        self._totals = self._totals + np.array([*sums, (weighted * target).sum(axes)], np.float64)
        if self._note is None:
            return
        self._last.append({name: array[:1] for name, array in inputs.items()})
        self._fed += 1
        if self._fed % PLACED == 0 and isinstance(
            self._config.data.target, BoundaryTarget | AffinityTarget
        ):
            image = next(iter(inputs.values()))[0, 0]
            self._fits.append(fits(image, target[0].mean(axis=0)))

    def heard(self, loss: float) -> None:
        """Take note of the loss of the next update."""
        if len(self._losses) < LOOKED:
            self._losses.append(loss)

    def due(self) -> bool:
        """Return whether it is time to look at the weights."""
        return len(self._losses) == LOOKED - 1

    def look(self, model: Weighted) -> None:
        """Say what is wrong, if anything; once. All updates are done, and all ranks call it together."""
        if self._single:
            self._totals = np.sum(self._world.exchange(self._totals.tolist()), axis=0)
        if self._note is None:
            return
        remarks = [*self._of_rates(model)]
        if self._single:
            still = bool(remarks)  # which says why nothing was learned
            remarks += [*self._of_targets(), *([] if still else self._of_losses())]
            remarks += self._of_channels(model)
        self._first = {}
        for remark in remarks:
            self._note(f"warning: after {LOOKED} updates {remark}")

    def _of_rates(self, model: Weighted) -> Iterator[str]:
        if self._first and (moved := movement(self._first, model.parameters)) < STILL:
            yield (
                f"all filters are where they were, within {moved:.1g} of their norms: the learning rate, "
                f"{self._rate(LOOKED - 1):.3g} by now, is too low; look at training.learning_rate and training.schedule"
            )
        iterations = self._config.training.iterations
        if (idle := idle_from(self._rate, iterations)) is not None:
            yield (
                f"few are left that learn: from update {idle + 1} of {iterations} on the learning rate is next to "
                f"nothing, {self._rate(iterations - 1):.1g}; look at training.schedule"
            )

    def _of_targets(self) -> Iterator[str]:
        weight, target, square = self._totals
        mean = target / np.maximum(weight, 1)
        spread = square / np.maximum(weight, 1) - mean**2
        if (spread < CONSTANT).all():
            what = (
                "no boundary" if isinstance(self._config.data.target, BoundaryTarget) else "nothing"
            )
            found = ", ".join(f"{value:.4g}" for value in mean[:4])
            yield (
                f"nearly all targets were {found}: the labels hold {what} to learn there; look at data.target and the "
                "labels (znnpy view)"
            )
        yield from self._of_places()

    def _of_places(self) -> Iterator[str]:
        if not self._fits:
            return
        here, best = (
            np.median([pick(it) for it in self._fits]) for pick in (lambda it: it[0, 0, 0], np.max)
        )
        if best <= FITS or best <= BETTER * here:
            return
        # Of patches together: each by itself fits somewhere.
        together = np.mean(self._fits, axis=0)
        shift = [int(at) for at in np.unravel_index(int(together.argmax()), together.shape)]
        if together.max() > ALIKE:
            yield (
                f"labels fitted the image better when shifted by about {shift} voxels (z, y, x, in either direction): "
                "look whether they lie where the image does (znnpy view)"
            )
        else:
            yield (
                "labels fitted the image no better where they lie than elsewhere: they may belong to another image, or "
                "lie far from where it does (znnpy view)"
            )

    def _of_losses(self) -> Iterator[str]:
        now, before = (float(np.mean(self._losses[-n * RECENT :][:RECENT])) for n in (1, 2))
        trivial = self._trivial()
        if trivial is None:
            return
        rising = self._rate(LOOKED) > 1.5 * self._rate(LOOKED - 2 * RECENT)
        if now > GROWN * trivial and now > before:
            yield (
                f"the loss is {now:.3g} and grows, where the shares of the classes alone give {trivial:.3g}: gradients "
                "explode; lower training.learning_rate, or set training.clip_norm"
            )
        elif now > TRIVIAL * trivial and now > FALLING * before and not rising:
            yield (
                f"the loss is {now:.3g} and falls no more, where the shares of the classes alone give {trivial:.3g}: "
                "nothing was learned of the image; the learning rate may be too low or too high, or the labels may not "
                "belong to this image"
            )

    def _trivial(self) -> float | None:
        """Return the loss of the best constant, None for losses of which it is not known."""
        loss = self._config.training.loss
        if loss.kind not in TRIVIAL_LOSSES or loss != type(loss)(kind=loss.kind):
            return None
        weight, target, square = self._totals
        share = target / np.maximum(weight, 1e-9)
        if loss.kind == "square":
            return float(np.mean(square / np.maximum(weight, 1e-9) - share**2))
        share = np.clip(share, 1e-9, 1 - 1e-9)
        if loss.kind == "softmax":
            share = target / max(target.sum(), 1e-9)
            return float(-(share * np.log(np.maximum(share, 1e-9))).sum())
        return float(np.mean(-share * np.log(share) - (1 - share) * np.log1p(-share)))

    def _of_channels(self, model: Weighted) -> Iterator[str]:
        """Name nodes most of whose channels are 0 for all voxels."""
        living = living_channels(self._config, self._network, model.parameters, self._last)
        dead = {
            name: int((~alive).sum()) for name, alive in living.items() if (~alive).mean() > DEAD
        }
        if dead:
            worst = max(dead, key=lambda name: dead[name] / len(living[name]))
            yield (
                f"{dead[worst]} of the {len(living[worst])} channels of {worst!r} are dead, 0 for all voxels "
                f"({share(living):.0%} of all channels of relus live): lower training.learning_rate, or take "
                "norm: batch or function: elu"
            )


def _by_node(arrays: Arrays, only: str) -> Mapping[str, Array]:
    return arrays if isinstance(arrays, Mapping) else {only: arrays}


def _arrays(arrays: Arrays) -> list[Array]:
    return list(arrays.values()) if isinstance(arrays, Mapping) else [arrays]
