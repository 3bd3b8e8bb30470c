"""Tasks of losses of overlap: sums over whole images first, from them the loss and each image's slopes."""

from __future__ import annotations

from znnpy_kernels.layers.overlap import OVERLAPS, SUMS, overlap_total

from znnpy.engine.layers.loss_words import Parts
from znnpy.engine.memory.build import Build
from znnpy.engine.memory.regions import SMALL, Buffer, Name, Use
from znnpy.engine.tasks.identity import Identity, Part, Pass
from znnpy.engine.tasks.step import Step

OVERLAP_PARTIALS = Use("partial overlaps", SMALL)
SLOPES = Use("slopes of overlaps", SMALL)


def emit_overlap(step: Step, build: Build, parts: Parts, group: int) -> None:
    """Sums of each part, one task that adds them up in order, and the gradient; the loss ends `group`."""
    images, name = parts.output.images, parts.node.name
    entries = 2 + SUMS * images
    partials = build.scratch(Name(OVERLAP_PARTIALS, name), 2 * entries * parts.count)
    slopes = build.scratch(Name(SLOPES, name), 2 * images * parts.output.batch)
    entropy = parts.objective.numbers["entropy"]
    sums, gradient = OVERLAPS[parts.objective.kernel]
    for leaf in parts.leaves:
        step.add(
            sums,
            {
                **parts.words(leaf),
                "partial": partials.address + 8 * entries * leaf.number,
                "slopes": 0,
                "entropy": entropy,
            },
            what=Identity(name, Pass.LOSS, Part.LOSS),
            cost=parts.cost,
            reads=[*parts.read(leaf), build.staged.given.region()],
            writes=[partials.region(leaf.number, leaf.number + 1)],
        )
    _emit_total(step, build, parts, partials, slopes, group)
    for leaf in parts.leaves if parts.gradient else ():
        step.add(
            gradient,
            {
                **parts.words(leaf),
                **parts.gradient_words(leaf),
                "slopes": slopes.address + 8 * images * leaf.batch,
                "entropy": entropy,
            },
            what=Identity(name, Pass.LOSS, Part.LOSS),
            cost=parts.cost,
            reads=[*parts.read(leaf), build.staged.given.region(), slopes.region()],
            writes=parts.written(leaf),
        )


def _emit_total(
    step: Step, build: Build, parts: Parts, partials: Buffer, slopes: Buffer, group: int
) -> None:
    name, staged, batch = parts.node.name, build.staged, parts.output.batch
    factor = parts.objective.factor / build.layout.microbatches  # the mean over microbatches
    step.add(
        overlap_total,
        {
            **parts.objective.numbers,
            "overlap": factor * parts.objective.numbers["overlap"],
            "partials": partials.address,
            "count": parts.count // batch,
            "batch": batch,
            "channels": parts.output.images,
            "classes": staged.classes[name],
            "normaliser": staged.normalizers[name],
            "slopes": slopes.address,
            "target": staged.results[name].address,
        },
        what=Identity(name, Pass.LOSS, Part.LOSS_SUM),
        cost=1e-6,
        reads=[partials.region(0, parts.count), staged.given.region()],
        writes=[staged.results[name].region(), slopes.region()],
        group=group,
    )
