"""Names of nodes and edges as identifiers of Python, each another, that no attribute of a torch module has."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

# What a torch.nn.Module has, and what the written file calls by name.
RESERVED = frozenset((
    "T_destination", "add_module", "apply", "bfloat16", "buffers", "call_super_init", "children", "compile",
    "cpu", "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer",
    "get_extra_state", "get_parameter", "get_submodule", "half", "ipu", "load_state_dict", "modules", "mtia",
    "named_buffers", "named_children", "named_modules", "named_parameters", "parameters",
    "register_backward_hook", "register_buffer", "register_forward_hook", "register_forward_pre_hook",
    "register_full_backward_hook", "register_full_backward_pre_hook", "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook", "register_module", "register_parameter",
    "register_state_dict_post_hook", "register_state_dict_pre_hook", "requires_grad_", "set_extra_state",
    "set_submodule", "share_memory", "state_dict", "to", "to_empty", "train", "training", "type", "xpu",
    "zero_grad", "self", "super", "torch", "nn", "functional", "reduce",
))  # fmt: skip
LONGEST = 80  # characters


class Identifiers:
    """Identifiers that were given away, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """Return an identifier as near to a name as may be."""
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:LONGEST].rstrip("_")
        if not plain or plain[0].isdigit():
            plain = f"n{plain}"
        if keyword.iskeyword(plain) or plain in RESERVED:
            plain = f"{plain}_"
        found, number = plain, 2
        while found in self._taken:
            found, number = f"{plain}_{number}", number + 1
        self._taken.add(found)
        return found

    def take_all(self, names: Iterable[str]) -> dict[str, str]:
        """Return identifiers by name."""
        return {name: self.take(name) for name in names}
