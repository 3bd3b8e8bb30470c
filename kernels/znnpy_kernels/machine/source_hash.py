"""What each compiled function is made of: a hash over the definitions of this package that it reaches.

A module is a set of definitions. A function reaches every definition whose name its source has, and what
those reach; what else stands in modules that are imported on the way (statements, registrations by
decorators unknown here) counts always. Names that merely look the same are reached too, which costs at
most a compilation. Comments, docstrings and annotations of parameters do not count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PACKAGE = "znnpy_kernels"
FOLDER = Path(__file__).parents[1]
DECLARED = frozenset({"kernel", "native", "shared"})
"""Decorators of what is compiled and kept by itself."""
HELPERS = frozenset({"inlined", "part", "njit", "intrinsic", "cache", "dataclass"})
"""Decorators without an effect but on what they decorate."""
COMPILER = (
    ("machine.loading", ""),
    ("machine.linking", ""),
    ("machine.abi", "SIGNATURE"),
    ("machine.shared", "SIGNATURE"),
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
    """Definitions by name, what else is done, imported names by their name here, modules imported."""

    definitions: dict[str, list[Definition]] = field(default_factory=dict)
    effects: list[Definition] = field(default_factory=list)
    imported: dict[str, Place] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)

    @property
    def modules(self) -> set[str]:
        """Those that this one imports."""
        return {module for module, _ in self.imported.values()}


def sources() -> list[Path]:
    """All modules of this package, in a fixed order."""
    return sorted(FOLDER.rglob("*.py"))


def texts() -> dict[str, str]:
    """The source of each module by its name within the package."""
    return {module_name(path): path.read_text() for path in sources()}


def hashes(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of each function that is compiled by itself, `module:name`, in these `texts` (default: the package's)."""
    modules = {name: parsed(text) for name, text in (given or texts()).items()}
    return {
        f"{name}:{declared}": _digest(modules, (name, declared))
        for name, module in modules.items()
        for declared in module.declared
    }


def module_name(path: Path) -> str:
    """Of a file of this package: `room.module`."""
    return ".".join(path.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")


def reached(modules: dict[str, Module], place: Place) -> set[Place]:
    """The definitions that a function is made of."""
    return {(module, name.partition(" ")[0]) for module, name, _ in _reached(modules, place)}


def _digest(modules: dict[str, Module], place: Place) -> str:
    digest = hashlib.sha256()
    for module, name, definition in sorted(_reached(modules, place), key=lambda it: it[:2]):
        digest.update(f"{module}.{name}: ".encode() + definition.digest)
    return digest.hexdigest()[:16]


def _reached(modules: dict[str, Module], place: Place) -> Iterator[tuple[str, str, Definition]]:
    seen: set[Place] = set()
    waiting: list[Place] = [place, *COMPILER]
    waiting += [(module, "*") for module in _imported(modules, [place[0], "machine.loading"])]
    while waiting:
        here = waiting.pop()
        if here in seen or here[0] not in modules:
            continue
        seen.add(here)
        for name, definition in _at(modules[here[0]], here[1]):
            yield here[0], name, definition
            waiting += [_place(modules[here[0]], here[0], used) for used in definition.names]


def _imported(modules: dict[str, Module], names: Iterable[str]) -> set[str]:
    """Modules and all that they import."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name in modules and name not in found:
            found.add(name)
            waiting += modules[name].modules
    return found


def _at(module: Module, name: str) -> Iterator[tuple[str, Definition]]:
    """The definitions of a name; `*`: what counts always; none: all."""
    for known, definitions in module.definitions.items():
        if name in (known, ""):
            yield from ((f"{known} {number}", it) for number, it in enumerate(definitions))
    if name in ("*", ""):
        yield from ((f"* {number}", it) for number, it in enumerate(module.effects))


def _place(module: Module, here: str, name: str) -> Place:
    """Where a name that a module uses is defined; a module that does not exist for others."""
    if name in module.definitions:
        return here, name
    return module.imported.get(name, ("", name))


@cache
def parsed(text: str) -> Module:
    """A module's source, taken apart."""
    made = Module()
    for statement in ast.parse(text).body:
        _enter(made, statement)
    return made


def _enter(made: Module, statement: ast.stmt) -> None:
    for node in ast.walk(statement):
        if isinstance(node, ast.ImportFrom | ast.Import):
            made.imported |= _imports(node)
    decorators = getattr(statement, "decorator_list", [])
    known = {_called(decorator) for decorator in decorators}
    definition = _definition(statement)
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        if known & DECLARED:
            made.declared.append(statement.name)
        if known <= DECLARED | HELPERS:
            made.definitions.setdefault(statement.name, []).append(definition)
        else:
            made.effects.append(definition)
            made.definitions.setdefault(statement.name, []).append(definition)
    elif names := _assigned(statement):
        for name in names:
            made.definitions.setdefault(name, []).append(definition)
    elif not isinstance(statement, ast.ImportFrom | ast.Import) and definition.names:
        made.effects.append(definition)


def _imports(node: ast.ImportFrom | ast.Import) -> dict[str, Place]:
    """Names that come from this package: of a definition, or of a module as a whole."""
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
    """The names that an assignment gives a value; none if it does anything else."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value:
        targets = [statement.target]
    else:
        return []
    parts = [p for t in targets for p in (t.elts if isinstance(t, ast.Tuple) else [t])]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return names if len(names) == len(parts) else []


def _called(decorator: ast.expr) -> str:
    this = decorator.func if isinstance(decorator, ast.Call) else decorator
    return this.id if isinstance(this, ast.Name) else ast.dump(this)


def _definition(statement: ast.stmt) -> Definition:
    for node in ast.walk(statement):
        _strip(node)
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    digest = hashlib.sha256(ast.dump(statement).encode()).digest()
    return Definition(digest, frozenset(names))


def _strip(node: ast.AST) -> None:
    """Take away what the machine code does not come from."""
    if isinstance(node, ast.FunctionDef):
        node.returns = None
        # What makes kernels is counted for all of them, and not what else they can do.
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


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
