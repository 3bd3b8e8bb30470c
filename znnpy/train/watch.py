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
from znnpy.train.watched_output import WatchedOutput

Array = NDArray[Any]
Arrays = Array | Mapping[str, Array]
LOOKED = 200  # updates that are watched
PLACED = (
    8  # updates from one look at where labels lie to the next, which takes a tenth of an update
)
DEAD = 0.5  # share of a node's channels above which dead ones are named
PARTS = 4  # patches of which there are such parts
FITS = 0.15  # correlation of labels with the image below which nothing is said of their place
BETTER = 1.5  # times that a shifted place must fit better
ALIKE = 0.2  # mean correlation of all patches, above which they fit at one place


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
        self._heard = self._fed = 0
        self._first: Mapping[str, Array] = {}
        self._single = len(network.outputs) == 1
        self._outputs = {
            node.name: WatchedOutput(config, node.name, alone=self._single)
            for node in network.outputs
        }
        self._last: deque[Mapping[str, Array]] = deque(maxlen=PARTS)
        self._fits: list[Array] = []

    def begin(self, model: Weighted) -> None:
        """Take note of the weights before the first update."""
        if self._note:
            self._first = filters_of(model.parameters, frozen_of(self._config, self._network))

    def fed(self, batch: Fed) -> None:
        """Take note of what the next update is fed."""
        if self._heard >= LOOKED:
            return
        only = self._network.outputs[0].name
        targets = _by_node(batch.target, only)
        weights = {} if batch.weight is None else _by_node(batch.weight, only)
        for name, output in self._outputs.items():
            output.fed(targets[name], weights.get(name))
        if self._note is None or not self._single:
            return
        inputs = _by_node(batch.input, self._network.inputs[0].name)
        self._last.append({name: array[:1] for name, array in inputs.items()})
        self._fed += 1
        if self._fed % PLACED == 0 and isinstance(
            self._config.target(only), BoundaryTarget | AffinityTarget
        ):
            image = next(iter(inputs.values()))[0, 0]
            self._fits.append(fits(image, targets[only][0].mean(axis=0)))

    def heard(self, losses: Mapping[str, float]) -> None:
        """Take note of the losses of the next update, by output, each times its weight."""
        if self._heard < LOOKED:
            self._heard += 1
            for name, output in self._outputs.items():
                output.heard(losses[name])

    def due(self) -> bool:
        """Return whether it is time to look at the weights."""
        return self._heard == LOOKED - 1

    def look(self, model: Weighted) -> None:
        """Say what is wrong, if anything; once. All updates are done, and all ranks call it together."""
        shares = self._world.exchange([it.totals.tolist() for it in self._outputs.values()])
        for output, own in zip(self._outputs.values(), zip(*shares, strict=True), strict=True):
            output.totals = np.sum(own, axis=0)
        if self._note is None:
            return
        remarks = [*self._of_rates(model)]
        still = bool(remarks)  # which says why nothing was learned
        for output in self._outputs.values():
            remarks += [*output.of_targets(), *self._of_places()]
            remarks += [] if still else output.of_losses(self._rate, LOOKED)
        if self._single:
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
