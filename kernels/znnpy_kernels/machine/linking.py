"""Compiles helpers only as parts of the kernels that they are linked into, to save compile time.

By itself numba optimises and emits every function that it compiles, and once more all code that is linked into its
callers: half of the compile time of kernels went into helpers that are never called alone.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import AnnotateTypes

KNOWN = ("0.68",)
"""Versions of numba that link and load so; others may keep code and symbols elsewhere."""


def known() -> bool:
    """Return whether the internals of this numba version are known."""
    return numba.__version__.rpartition(".")[0] in KNOWN


class _Tidied(JITCodeLibrary):
    """numba's code library, but functions are only tidied before all linked code is optimised."""

    def _optimize_functions(self, module: Any) -> None:
        # As numba's own method does, but with three passes that make code small instead of all that make it
        # fast.
        module.data_layout = self._codegen._data_layout
        passes, builder = llvm.create_new_function_pass_manager(), self._codegen._pass_builder()
        # SROA brings numba's structures (arrays, tuples) into registers: the linked code is a fraction of it
        # then.
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        for function in module.functions:
            passes.run(function, builder)


class _Part(_Tidied):
    """The code of a helper and of its helpers, not optimised, without machine code."""

    def _optimize_final_module(self) -> None:
        # Nothing: all is optimised once, where it is linked in.
        pass

    def _finalize_final_module(self) -> None:
        # No machine code: a helper's object would never be called.
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        return _NoEngine


class _NoEngine:
    """Stands in where numba registers a function's constant Python objects: helpers of kernels have none."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        pass


class _Made(AnalysisPass):
    """Sets the kind of library that numba's last passes fill."""

    kind: type[JITCodeLibrary]

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = self.kind(state.targetctx.codegen(), state.func_id.func_qualname)
        # The object code is kept as numba keeps it, so that the cache can store it.
        state.library.enable_object_caching()
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _MadePart(_Made):
    _name, kind = "made_part", _Part


@register_pass(mutates_CFG=False, analysis_only=True)
class _MadeWhole(_Made):
    _name, kind = "made_whole", _Tidied


class WholeCompiler(CompilerBase):
    """numba's compiler, for a function that is linked with its parts."""

    made: type[_Made] = _MadeWhole

    def define_pipelines(self) -> list[Any]:
        """Return the usual passes, with the kind of the library set before the last ones."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        # Another version of numba compiles as it does by itself: slower, but right.
        if known():
            passes.add_pass_after(self.made, AnnotateTypes)
        passes.finalize()
        return [passes]


class PartCompiler(WholeCompiler):
    """numba's compiler, for a part of other functions, which cannot be called by itself."""

    made = _MadePart
