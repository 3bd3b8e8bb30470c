"""What ranks compute."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from peers.cases import RECIPES, Case, image_case, network_case


def case_of(name: str, samples: int | None) -> Case:
    """A recipe of images, or a net such as 3x64; so many samples a rank (default: the recipe's, or 1)."""
    if name in RECIPES:
        return image_case(name, samples)
    return replace(network_case(name), batch=samples or 1)


def compared(blocks: list[tuple[float, float]]) -> dict[str, float]:
    """Medians over blocks of (seconds of an update with messages, without), and of what messages add."""
    together, alone = zip(*blocks, strict=True)
    more = [with_messages - without for with_messages, without in blocks]
    return {"seconds": median(together), "alone": median(alone), "exposed": median(more)}
