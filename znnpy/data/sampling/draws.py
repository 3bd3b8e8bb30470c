"""Random numbers of a sample: drawn many at once, as one by one they would take as long as what they decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
MANY = 64


class Key(ISeedSequence):
    """The key of generators: `Philox(key=...)` makes a seed that it does not use, which takes as long as ten others."""

    def __init__(self, seed: int) -> None:
        self._words = np.array([seed, 0], np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[np.uint64]:
        """Return the key's two words, which are all that Philox asks for."""
        return self._words

    def generator(self, part: int, index: int) -> np.random.Generator:
        """Return the generator of one of the parts of sample `index`: those of other numbers share no draw with it."""
        # Draws count up the low words.
        philox = np.random.Philox(self, counter=[0, 0, part, index])  # type: ignore[arg-type]
        return np.random.Generator(philox)


class Draws:
    """Numbers drawn by a generator one after the other, which is the caller's no longer."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._next: Iterator[float] = iter(())

    def share(self) -> float:
        """Return a number from 0 to before 1."""
        for found in self._next:
            return found
        self._next = iter(self._random.random(MANY).tolist())
        return next(self._next)

    def between(self, numbers: Sequence[float]) -> float:
        """Return a number between two."""
        low, high = numbers
        return low + (high - low) * self.share()

    def whole(self, low: int, high: int) -> int:
        """Return one of the whole numbers from `low` to before `high`, which are few beside 2^53."""
        return low + int((high - low) * self.share())

    def each(self, numbers: Sequence[float], count: int) -> Doubles:
        """Return so many numbers between two."""
        low, high = numbers
        return low + (high - low) * self._random.random(count)

    def normal(self, shape: tuple[int, ...]) -> Doubles:
        """Return numbers of a normal distribution."""
        return self._random.standard_normal(shape)

    def seeds(self, count: int) -> NDArray[np.int64]:
        """Return so many 64 bits."""
        return self._random.bit_generator.random_raw(count).view(np.int64)
