"""The architecture: which package imports which, public names, and examples that run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from enum import EnumMeta
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fastsample
from fastsample.engines import is_installed
from fastsample.params.table import BY_NAME, DRAW, RNG_POSITION, STAGES
from tests.support.case_loop import CaseLoop

PACKAGE = Path(fastsample.__file__).parent

NUMBERS_OF_THE_RULE = {"engines.reference.mass", "engines.reference.rows"}
"""Where constants, status codes and number formats of the rule stand."""

STEPS_IN_NUMPY = {
    *("engines.reference.filters", "engines.reference.logits_processors"),
    "engines.reference.reductions",
}
"""What the Numba engine has no loops for: bands, deviations, logits processors, targets."""

SETTINGS_OF_RACES = {f"engines.reference.{name}" for name in ("clocks", "draw", "race")}
"""Constants of races, and what the settings of a row alone say: whether it is listed."""

TABLE = {"params.table", "params.ops"}

ARROWS: dict[str, set[str]] = {
    "__main__": {"cli.app"},
    "cli": {"fastsample", "params.table", "verification"},
    "fastsample": {"_version", "api.*", "params.*", "engines.reference", "verification.*"},
    "verification": {"api.*", "inputs.logits", "engines", "engines.reference.*", *TABLE},
    "api": {"_native", "_version", "params.*", "inputs.*", "engines.*"},
    "inputs": {"params.*"},
    "params": set(),
    "engines": {"engines.*", *TABLE},
    "engines.plan": {"params.*"},
    "engines.execution": {"engines", "engines.contract", "params.table"},
    "engines.contract": {"inputs.*", *TABLE},
    "engines.reference": {"engines.contract", *TABLE},
    "engines.native": {"_native", "engines.contract", *TABLE},
    "engines.numba": {
        *("engines.contract", *TABLE, *NUMBERS_OF_THE_RULE),
        *(*STEPS_IN_NUMPY, *SETTINGS_OF_RACES),
    },
    "engines.torch": {"engines.contract", *TABLE, *NUMBERS_OF_THE_RULE, *SETTINGS_OF_RACES},
    "engines.triton": {
        *("engines.contract", *TABLE, *NUMBERS_OF_THE_RULE),
        *(*SETTINGS_OF_RACES, "engines.torch.*"),
    },
}
"""What each package may import of others: a module, or with ".*" all below it as well.

A module belongs to the longest name here that it begins with, and may import its own package. The
registry is the module `engines`; `verification` exports the types of its report.
"""


def module_name(path: Path) -> str:
    """Name of a source file's module within the package; "fastsample" is the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or "fastsample"


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {*SOURCES, "_native"}


def origin_of(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """Full name of the module that a `from` import of a module names."""
    if not node.level:
        return node.module or ""
    parents = ["fastsample", *(module.split(".") if module != "fastsample" else [])]
    kept = parents[: len(parents) - node.level + is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def imports_in(source: str, module: str, is_package: bool = False) -> set[str]:
    """Modules of the package that a source imports, anywhere in it."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = origin_of(node, module, is_package)
            names += [f"{origin}.{alias.name}" for alias in node.names]
    inside = [name.partition(".")[2] for name in names if name.split(".")[0] == "fastsample"]
    modules = {name if name in MODULES else name.rpartition(".")[0] for name in inside}
    return {name or "fastsample" for name in modules} - {module}


def imported_modules(module: str) -> set[str]:
    """Modules of the package that a module imports."""
    path = SOURCES[module]
    return imports_in(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")


def package_of(module: str) -> str:
    """The package of the table that a module belongs to."""
    parts = module.split(".")
    heads = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next(head for head in heads if head in ARROWS)


def test_import_reader_reads_every_form() -> None:
    source = """
import numpy, fastsample.api.info
from fastsample import sample, _native
from fastsample.params.validation import SEED as seed
from . import something
from .mass import ln
def late():
    from ..reference import mass
    from .. import contract as c
"""
    common = {"_native", "api.info", "fastsample", "params.validation"}
    torch = {"engines.torch", "engines.torch.mass"}
    assert imports_in(source, "engines.torch.x") == common | torch | {
        *("engines.contract", "engines.reference.mass")
    }
    assert imports_in("from .table import x", "params", is_package=True) == {"params.table"}


def is_allowed(module: str, imported: str) -> bool:
    """Whether the table has an arrow from a module to another."""
    package = package_of(module)
    if imported in MODULES - {"_native", "_version"} and package_of(imported) == package:
        return True
    parts = imported.split(".")
    trees = {".".join(parts[:n]) + ".*" for n in range(1, len(parts) + 1)}
    return bool(ARROWS[package] & {imported, *trees})


@pytest.mark.smoke
def test_imports_follow_the_arrows() -> None:
    against = {
        (module, imported)
        for module in SOURCES
        if module != "_version"
        for imported in imported_modules(module)
        if not is_allowed(module, imported)
    }
    assert sorted(against) == []


@pytest.mark.smoke
def test_imports_have_no_cycle() -> None:
    order = TopologicalSorter({module: imported_modules(module) for module in SOURCES})
    assert len(tuple(order.static_order())) == len(MODULES)


# ---------------------------------------------------------------- public names

SHOWN_ELSEWHERE = {
    "Arrival",
    "Candidate",
    "DrawTrace",
    "KeptSet",
    "TopTokens",
}  # by the functions that return them
PUBLIC = [
    "RULE_VERSION",
    "Arrival",
    "Candidate",
    "DrawTrace",
    "KeptSet",
    "Latency",
    "SampleResult",
    "Sampler",
    "SamplingParams",
    "Status",
    "TopTokens",
    "__version__",
    "candidates",
    "filter_logits",
    "info",
    "kept_set",
    "log_softmax",
    "logsumexp",
    "reduce_sum",
    "sample",
    "softmax",
    "top_k",
    "top_p",
    "verify",
]


def test_public_names() -> None:
    assert sorted(fastsample.__all__) == sorted(PUBLIC)
    assert all(hasattr(fastsample, name) for name in PUBLIC)


def test_docstrings_explain_public_names() -> None:
    """An example in each, and every parameter of a function or member of an enumeration."""
    with CaseLoop() as cases:
        for name in PUBLIC:
            thing = getattr(fastsample, name)
            if not callable(thing):
                continue
            text = inspect.getdoc(thing) or ""
            parts = [one.name for one in thing] if isinstance(thing, EnumMeta) else None
            if parts is None:
                parts = list(inspect.signature(thing).parameters)
            with cases.case(name):
                assert ">>> " in text or name in SHOWN_ELSEWHERE
                assert [part for part in parts if part not in text] == []


OF_DRAWS = {parameter.name for parameter in (DRAW, *RNG_POSITION)}
PARAMETERS_OF = {
    "sample": set(BY_NAME),
    "kept_set": set(BY_NAME) - OF_DRAWS,
    "filter_logits": set(BY_NAME) - OF_DRAWS,
    "candidates": set(STAGES) | OF_DRAWS,
    "SamplingParams": set(BY_NAME) - {"position", "stream"},
}
"""The parameters of the table that a public signature must have."""


def test_signatures_have_the_parameters_of_the_table() -> None:
    """Their names, defaults and order; a row of the table that a signature lacks is an error."""
    order = [name for name in inspect.signature(fastsample.sample).parameters if name in BY_NAME]
    with CaseLoop() as cases:
        for function, names in PARAMETERS_OF.items():
            parameters = inspect.signature(getattr(fastsample, function)).parameters
            with cases.case(function):
                assert [one for one in parameters if one in BY_NAME] == [
                    one for one in order if one in names
                ]
                # The flag `draw` of `candidates` asks how a race was drawn.
                for name in names - ({"draw"} if function == "candidates" else set()):
                    assert parameters[name].default == BY_NAME[name].default, name
                if "stages" in parameters:
                    assert parameters["stages"].default == STAGES


@pytest.mark.skipif(not is_installed("native"), reason="fastsample._native is not built")
def test_the_stub_is_the_extension() -> None:
    from fastsample import _native

    stub = ast.parse((PACKAGE / "_native.pyi").read_text(encoding="utf-8")).body
    stated = {
        node.name: [argument.arg for argument in node.args.args]
        for node in stub
        if isinstance(node, ast.FunctionDef)
    }
    classes = {node.name for node in stub if isinstance(node, ast.ClassDef)}
    compiled = {
        name: thing
        for name, thing in vars(_native).items()
        if callable(thing) and not name.startswith("_")
    }
    assert classes == {name for name, thing in compiled.items() if isinstance(thing, type)}
    assert stated == {
        name: list(inspect.signature(thing).parameters)
        for name, thing in compiled.items()
        if name not in classes
    }


# ---------------------------------------------------------------- examples

NEEDS = {"api.threads": "threadpoolctl"}
"""Packages that examples of a module import, where the module itself does not."""
EXTRAS = {"typer", "rich", "torch", "triton", "numba", "matplotlib", "threadpoolctl"}


def missing_extra(module: str) -> bool:
    """Import a module; True where a package of one of the extras is not installed."""
    try:
        importlib.import_module(f"fastsample.{module}" if module != "fastsample" else module)
        importlib.import_module(NEEDS.get(module, "fastsample"))
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        return True
    return False


def test_examples_in_docstrings_run() -> None:
    built = {"engines.native", "api.threads"}
    with CaseLoop() as cases:
        for module in SOURCES:
            if module == "__main__" or (module in built and not is_installed("native")):
                continue
            with cases.case(module):
                if not missing_extra(module):
                    name = f"fastsample.{module}" if module != "fastsample" else module
                    assert doctest.testmod(importlib.import_module(name)).failed == 0
