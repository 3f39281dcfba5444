"""Finds the source files that a module is made of: its own and those that it imports."""

import ast
from pathlib import Path


def closure(module: str, root: Path) -> list[Path]:
    """Return the files below `root` that importing `module` can execute, sorted.

    Imports inside functions count, too. A name that has no file below `root` (the standard
    library, an installed package) is left out.

    Raises:
        ModuleNotFoundError: `module` itself has no file below `root`.

    """
    if _file_of(module, root) is None:
        raise ModuleNotFoundError(f"no module {module!r} in {root}", name=module)
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = _file_of(name, root)
        if file is None or file in found:
            continue
        found.add(file)
        waiting += _imported(name, file)
        if parent := name.rpartition(".")[0]:
            waiting.append(parent)  # Python executes a package before its modules.
    return sorted(found)


def _file_of(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


def _imported(module: str, file: Path) -> list[str]:
    """Return the names that a file imports; some may be names inside a module."""
    package = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    names = []
    for node in ast.walk(ast.parse(file.read_bytes(), file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            names += [source, *(f"{source}.{alias.name}" for alias in node.names)]
    return names
