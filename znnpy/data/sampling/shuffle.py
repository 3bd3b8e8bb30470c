"""Random access into shuffled epochs: the sample at any place of any epoch, without a list of the order."""

from __future__ import annotations

ROUNDS = (
    6  # of the Feistel network; 4 suffice for a pseudorandom permutation (Luby and Rackoff 1988)
)
_WORD = (1 << 64) - 1  # keeps Python's integers to 64 bits


def shuffled(number: int, size: int, seed: int) -> int:
    """Return which of 0 .. size - 1 sample `number` is: each comes once in every `size` samples.

    A Feistel network over pairs of half words permutes a range of at most 4 * size numbers, keyed by seed and epoch; a
    result beyond `size` is permuted again (cycle walking).
    """
    epoch, place = divmod(number, size)
    key = _mixed(_mixed(seed) + epoch)
    bits = max(1, ((size - 1).bit_length() + 1) // 2)
    low = (1 << bits) - 1
    while True:
        left, right = place >> bits, place & low
        for turn in range(ROUNDS):
            left, right = right, left ^ (_mixed(key + (turn << 32) + right) & low)
        place = left << bits | right
        if place < size:
            return place


def derived(seed: int, *numbers: int) -> int:
    """Return a 64-bit seed for a tuple of numbers."""
    for number in numbers:
        seed = _mixed(_mixed(seed) + number)
    return seed


def _mixed(word: int) -> int:
    """Return a bijective hash of 64 bits (the finaliser of SplitMix64)."""
    word = (word + 0x9E3779B97F4A7C15) & _WORD
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
    return word ^ word >> 31
