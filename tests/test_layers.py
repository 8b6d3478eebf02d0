"""The house: a folder a stage, and no module that imports from a later one."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

import ppl_sgp

PACKAGE = pathlib.Path(ppl_sgp.__file__).parent
DOCUMENT = PACKAGE.parent / "docs" / "architecture.md"
FOLDERS = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__")


def stages() -> list[str]:
    """The stages in the order of the table in docs/architecture.md; what is private stands before all."""
    rows = re.findall(r"^\| `(\w+)/` \|", DOCUMENT.read_text(), re.MULTILINE)
    return ["_internal", *(row for row in rows if row != "_internal")]


def imported(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Lines of a module, and the folders that they import from, inside functions too."""
    package = path.relative_to(PACKAGE.parent).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = [*base, *(node.module or "").split(".")] if node.module else list(base)
            names = [[*module, alias.name] for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name[1]) for name in names if name[0] == PACKAGE.name and len(name) > 1)


def test_imports_are_found():
    lazily = {stage for _, stage in imported(PACKAGE / "statistics" / "statistics.py")}
    assert {"_internal", "bases", "priors", "statistics"} <= lazily


def test_the_root_holds_the_folders_that_are_documented_and_nothing_else():
    assert sorted(path.name for path in PACKAGE.iterdir() if path.is_file()) == ["__init__.py", "py.typed"]
    assert sorted(stages()) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_module_imports_from_a_later_stage(folder):
    order = stages()
    later = [
        f"{path.relative_to(PACKAGE)}:{line} imports {stage}"
        for path in (PACKAGE / folder).rglob("*.py")
        for line, stage in imported(path)
        if stage not in order or order.index(stage) > order.index(folder)
    ]
    assert not later, later


def test_no_module_is_shadowed_by_what_is_exported():
    """``ppl_sgp.bases.stack`` is a module, ``ppl_sgp.stack`` a function: at the root no folder has another's name."""
    exported = {name: getattr(ppl_sgp, name) for name in ppl_sgp.__all__}
    for folder in FOLDERS:
        thing = exported.get(folder)
        assert thing is None or thing.__name__ == f"{PACKAGE.name}.{folder}"
