"""Hashes the source of each compiled function: all definitions of this package that it reaches.

A function reaches every definition whose name its source contains, and those that they reach in turn; other
statements of modules imported on the way, such as registrations by unknown decorators, always count. Names that
merely look the same count too, which costs a needless compilation at most. Comments, docstrings and annotations of
parameters do not count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

# Hashed is this package alone: others enter by their versions (`cache`).
PACKAGE = "znnpy_kernels"
FOLDER = Path(__file__).parents[1]
DECLARED = frozenset({"kernel", "native", "shared"})
"""Decorators of what is compiled and kept by itself."""
PARTS = frozenset({"inlined", "part", "njit"})
"""Decorators of what is compiled as part of other functions."""
HELPERS = PARTS | frozenset({"intrinsic", "cache", "dataclass"})
"""Decorators without an effect but on what they decorate."""
COMPILER = (
    ("machine.loading", ""),
    ("machine.linking", ""),
    ("machine.abi", "SIGNATURE"),
    ("machine.shared_functions", "SIGNATURE"),
)
"""What all compiled functions are made by: modules, and one definition."""
Place = tuple[str, str]  # of a definition: module, name; no name: all of the module


@dataclass
class Definition:
    """A hash of a statement's text, and the names in it."""

    digest: bytes
    names: frozenset[str]


@dataclass
class Module:
    """Definitions by name, other statements, imported names by their local name, compiled functions.

    `declared`: functions that are compiled by themselves, and factories of such. `parts`: functions compiled as
    part of others. `named`: names in code that is not compiled; parts with such names may be given to factories.
    """

    definitions: dict[str, list[Definition]] = field(default_factory=dict)
    effects: list[Definition] = field(default_factory=list)
    imported: dict[str, Place] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)

    @property
    def modules(self) -> set[str]:
        """The modules that this one imports."""
        return {module for module, _ in self.imported.values()}


def sources() -> list[Path]:
    """Return all modules of this package, in a fixed order."""
    # Sorted, as `package_hash` goes through them: the order of a file system would be another hash.
    return sorted(FOLDER.rglob("*.py"))


def texts() -> dict[str, str]:
    """Return the source of each module by its name within the package."""
    return {module_name(path): path.read_text() for path in sources()}


def code(text: str | bytes) -> str:
    """Return a hash of all code of a module; comments, docstrings and layout do not count.

    The same in every version of Python, unlike that of `ast.dump`.
    """
    return hashlib.sha256(_said(ast.parse(text)).encode()).hexdigest()[:16]


def _said(node: Any) -> str:
    if isinstance(node, list):
        return f"[{' '.join(_said(part) for part in node if not _is_text(part))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    # What is empty is left out: newer versions have more fields, empty where a text of old has no use of them.
    fields = ((name, it) for name, it in ast.iter_fields(node) if it is not None and it != [])
    return (
        f"{type(node).__name__}({' '.join(f'{name}={_said(it)}' for name, it in sorted(fields))})"
    )


def hashes(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the hash of each function that is compiled by itself, by `module:name`; `given`: sources to hash.

    A family is there by its factory, and by each part that the factory may be given.
    """
    modules = {name: parsed(text) for name, text in (given or texts()).items()}
    places = [(name, own) for name, module in modules.items() for own in module.declared]
    # Families are entered by their factory; a part that is given to one is looked up by its own name
    # (`cache._constant`).
    places += sorted({place for name in modules for place in _given(modules, name)} - set(places))
    return {f"{module}:{name}": _digest(modules, (module, name)) for module, name in places}


def _given(modules: dict[str, Module], name: str) -> Iterator[Place]:
    """Yield the parts of compiled functions that a module names in code that is not compiled."""
    for used in modules[name].named:
        module, own = _place(modules[name], name, used)
        if module in modules and own in modules[module].parts:
            yield module, own


def module_name(path: Path) -> str:
    """Return the name `room.module` of a file of this package."""
    return ".".join(path.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")


def reached(modules: dict[str, Module], place: Place) -> set[Place]:
    """Return the definitions that a function is made of."""
    return {(module, name.partition(" ")[0]) for module, name, _ in _reached(modules, place)}


def _digest(modules: dict[str, Module], place: Place) -> str:
    digest = hashlib.sha256()
    # By module and name, not by hash: the order must not depend on what is hashed.
    for module, name, definition in sorted(_reached(modules, place), key=lambda it: it[:2]):
        digest.update(f"{module}.{name}: ".encode() + definition.digest)
    return digest.hexdigest()[:16]


def _reached(modules: dict[str, Module], place: Place) -> Iterator[tuple[str, str, Definition]]:
    seen: set[Place] = set()
    waiting: list[Place] = [place, *COMPILER]
    # Effects count for the modules that the function's own module imports, and for those of the code that
    # compiles.
    waiting += [(module, "*") for module in _imported(modules, [place[0], "machine.loading"])]
    while waiting:
        here = waiting.pop()
        # A module outside this package, or one seen before.
        if here in seen or here[0] not in modules:
            continue
        seen.add(here)
        for name, definition in _at(modules[here[0]], here[1]):
            yield here[0], name, definition
            waiting += [_place(modules[here[0]], here[0], used) for used in definition.names]


def _imported(modules: dict[str, Module], names: Iterable[str]) -> set[str]:
    """Return modules and all that they import, directly or not."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name in modules and name not in found:
            found.add(name)
            waiting += modules[name].modules
    return found


def _at(module: Module, name: str) -> Iterator[tuple[str, Definition]]:
    """Return the definitions of a name; `*`: those that always count; empty: all."""
    for known in (name,) if name else module.definitions:
        # Numbered: a name that is defined twice, under an `if`, counts with both definitions.
        for number, it in enumerate(module.definitions.get(known, ())):
            yield f"{known} {number}", it
    if name in ("*", ""):
        yield from ((f"* {number}", it) for number, it in enumerate(module.effects))


def _place(module: Module, here: str, name: str) -> Place:
    """Return where a name that a module uses is defined; a module that does not exist for foreign names."""
    if name in module.definitions:
        return here, name
    # No module has an empty name, so names of builtins and other packages lead nowhere.
    return module.imported.get(name, ("", name))


@cache
def parsed(text: str) -> Module:
    """Return a module's source as definitions, effects and imports."""
    made = Module()
    for statement in ast.parse(text).body:
        _enter(made, statement)
    return made


def _enter(made: Module, statement: ast.stmt) -> None:
    decorators = getattr(statement, "decorator_list", [])
    known = {_called(decorator) for decorator in decorators}
    # Strips the statement in place, so its decorators are looked at before.
    definition, imports, makes_kernels = _definition(statement)
    factory = isinstance(statement, ast.FunctionDef) and makes_kernels
    for node in imports:
        made.imported |= _imports(node)
    if not known & (DECLARED | HELPERS):
        made.named |= definition.names
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        if known & PARTS:
            made.parts.add(statement.name)
        if known & DECLARED or factory:
            made.declared.append(statement.name)
        if known <= DECLARED | HELPERS:
            made.definitions.setdefault(statement.name, []).append(definition)
        # By an unknown decorator, which may register it somewhere: it counts wherever its module is imported.
        else:
            made.effects.append(definition)
            made.definitions.setdefault(statement.name, []).append(definition)
    elif names := _assigned(statement):
        for name in names:
            made.definitions.setdefault(name, []).append(definition)
    # Docstrings and constants alone have no names, and no effect.
    elif not isinstance(statement, ast.ImportFrom | ast.Import) and definition.names:
        made.effects.append(definition)


def _imports(node: ast.ImportFrom | ast.Import) -> dict[str, Place]:
    """Return names imported from this package: of a definition, or of a module as a whole."""
    found: dict[str, Place] = {}
    for alias in node.names:
        whole = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        if whole.partition(".")[0] == PACKAGE:
            inside = whole.removeprefix(PACKAGE).lstrip(".")
            module, _, name = inside.rpartition(".")
            is_module = FOLDER.joinpath(*inside.split(".")).with_suffix(".py").exists()
            found[alias.asname or alias.name] = (inside, "") if is_module else (module, name)
    return found


def _assigned(statement: ast.stmt) -> list[str]:
    """Return the names that an assignment gives a value; none for any other statement."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value:
        targets = [statement.target]
    else:
        return []
    parts = [p for t in targets for p in (t.elts if isinstance(t, ast.Tuple) else [t])]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    # Attributes and subscripts change something that is defined elsewhere: an effect, not a definition.
    return names if len(names) == len(parts) else []


def _called(decorator: ast.expr) -> str:
    this = decorator.func if isinstance(decorator, ast.Call) else decorator
    # What is not a name is told apart by its whole tree, so it matches no known decorator.
    return this.id if isinstance(this, ast.Name) else ast.dump(this)


def _definition(
    statement: ast.stmt,
) -> tuple[Definition, list[ast.ImportFrom | ast.Import], bool]:
    """Return a statement as a definition, all imports in it, and whether functions in it are compiled by themselves."""
    names, imports, makes_kernels = set[str](), list[ast.ImportFrom | ast.Import](), False
    # Once through the tree, which takes most of the time of hashing: whoever starts from nothing waits for it.
    nodes: list[ast.AST] = [statement]
    for node in nodes:
        if isinstance(node, ast.Name):
            names.add(node.id)
            continue
        # Imports within functions count as well.
        if isinstance(node, ast.ImportFrom | ast.Import):
            imports.append(node)
        elif isinstance(node, ast.FunctionDef) and node is not statement:
            makes_kernels |= any(_called(it) in DECLARED for it in node.decorator_list)
        _strip(node)
        nodes.extend(ast.iter_child_nodes(node))
    # Without line numbers, which `ast.dump` leaves out: moving a function compiles nothing.
    digest = hashlib.sha256(ast.dump(statement).encode()).digest()
    return Definition(digest, frozenset(names)), imports, makes_kernels


def _strip(node: ast.AST) -> None:
    """Remove everything that does not change the machine code."""
    if isinstance(node, ast.FunctionDef):
        node.returns = None
        # The modules that make kernels count for all of them (`COMPILER`); other methods of kernels do not change
        # code.
        node.decorator_list = [_arguments(it) for it in node.decorator_list]
    elif isinstance(node, ast.arg):
        node.annotation = None
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        body = [part for part in node.body if not _is_text(part)]
        node.body = body or [ast.Pass()]


def _arguments(decorator: ast.expr) -> ast.expr:
    if _called(decorator) in DECLARED:
        given = decorator.args if isinstance(decorator, ast.Call) else []
        return ast.Tuple([ast.Constant(_called(decorator)), *given], ast.Load())
    return decorator


def _is_text(statement: ast.AST) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
