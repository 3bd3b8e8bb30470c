"""What a node does with what its edges bring: a closed set, which every room matches in full."""

from __future__ import annotations

from typing import Literal

NodeKind = Literal["input", "transfer", "sum", "max", "concat"]
