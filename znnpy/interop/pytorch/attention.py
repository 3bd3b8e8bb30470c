"""Refuses transformers by their first layer of attention, before a module is exported, which may take minutes."""

from __future__ import annotations

from typing import Any

from znnpy.errors import ModelFileError

_TOGETHER = ("qkv", "to_qkv", "in_proj")
_APART = (
    ("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), ("to_q", "to_k", "to_v"), ("q", "k", "v"),
)  # fmt: skip


def refuse_attention(torch: Any, module: Any) -> None:
    """Raise ModelFileError that names the first layer that has queries, keys and values of linear layers."""
    for name, part in module.named_modules():
        if _attends(torch, part):
            where = f"layer {name} ({type(part).__name__})" if name else "it"
            raise ModelFileError(
                f"{type(module).__name__}: {where} is attention, which is not supported; networks of convolutions are"
            )


def _attends(torch: Any, part: Any) -> bool:
    if isinstance(part, torch.nn.MultiheadAttention):
        return True
    linear = {name for name, child in part.named_children() if isinstance(child, torch.nn.Linear)}
    return any(name in linear for name in _TOGETHER) or any(linear.issuperset(it) for it in _APART)
