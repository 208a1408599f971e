"""The house keeps its shape: arrows point down, public names are exact, every example runs."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import inspect
from enum import EnumMeta
from pathlib import Path

import pytest

import fastsample
from fastsample.engines import has_native

PACKAGE = Path(fastsample.__file__).parent
FLOORS = (
    ("_version", "checks", "dlpack", "memory", "reference_rows", "turn", "_native", "jit"),
    ("torch_rule", "torch_rule.limbs", "torch_rule.rows"),
    ("latency", "logits", "params", "reference_mass", "jit.keys", "jit.mode", "jit.settings"),
    ("reference_reductions", "torch_rule.mass"),
    ("reference", "reference_sums", "torch_rule.settings"),
    ("reference_laws", "jit.mass", "torch_rule.adjust", "torch_rule.filters"),
    ("torch_rule.head", "torch_rule.whole", "torch_rule.tell"),
    ("torch_rule.batch", "torch_rule.laws", "triton_rule", "triton_rule.launch"),
    ("triton_rule.numbers",),
    ("triton_rule.table",),
    ("triton_rule.tops", "triton_rule.cuts"),
    ("triton_rule.head", "triton_rule.whole"),
    ("adjustments", "jit.draws", "jit.select"),
    ("result", "job", "jit.adjust", "jit.row", "torch_rule.given", "torch_rule.lay"),
    ("torch_rule.doors", "triton_rule.settle"),
    ("triton_rule.batch",),
    ("torch_rule.op",),
    ("adjusted", "jit.fixed", "jit.laws"),
    ("engines.native", "engines.numba", "engines.reference", "engines.torch", "engines.triton"),
    ("engines",),
    ("drawing", "info", "reduce", "sequences", "threads"),
    ("device",),
    ("functions", "kept", "roster", "sample"),
    ("members", "top"),
    ("sampler",),
    ("table",),
    ("proof.child", "proof.flush", "proof.memory", "proof.report", "proof.rows"),
    ("proof.cases",),
    ("proof.answers",),
    ("proof.vocabulary", "proof.ways"),
    ("proof.invariants",),
    ("proof.conditions", "proof.ledger"),
    ("proof.shown",),
    ("proof.run",),
    ("proof",),
    ("verify",),
    ("",),
    ("files", "naive", "plots", "stopwatch"),
    ("demo", "bench", "proof_page"),
    ("cli",),
    ("__main__",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
EXTRAS = {"typer", "rich", "torch", "triton", "numba", "matplotlib", "threadpoolctl"}
SHOWN_ELSEWHERE = {"Candidate", "KeptSet", "TopTokens"}  # by the functions that return them
PUBLIC = [
    "RULE_VERSION",
    "Candidate",
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


def room_of(path: Path) -> str:
    """Name of a module within the package; "" is the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


SOURCES = {room_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def named_room(dotted: str) -> str:
    """The room that a dotted name within the package belongs to."""
    return dotted if dotted in FLOOR_OF else dotted.rpartition(".")[0]


def absolute(node: ast.ImportFrom, room: str, is_package: bool) -> str:
    """Full name of the module that a `from` import names."""
    if not node.level:
        return node.module or ""
    parents = ["fastsample", *room.split(".")] if room else ["fastsample"]
    kept = parents[: len(parents) - node.level + (1 if is_package else 0)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def imported_rooms(room: str) -> set[str]:
    """Rooms that a room imports, anywhere in its source."""
    path = SOURCES[room]
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, room, path.name == "__init__.py")
            names += [f"{module}.{alias.name}" for alias in node.names]
    inside = (name.partition(".")[2] for name in names if name.split(".")[0] == "fastsample")
    return {named_room(name) for name in inside}


@pytest.mark.parametrize("room", SOURCES)
def test_imports_go_down(room: str) -> None:
    upward = [name for name in imported_rooms(room) if FLOOR_OF[name] >= FLOOR_OF[room]]
    assert upward == []


@pytest.mark.parametrize("room", ["bench", "files", "naive", "plots", "stopwatch"])
def test_tools_use_public_names(room: str) -> None:
    """Measuring and drawing need no more than a user has."""
    inner = {name for name in imported_rooms(room) if FLOOR_OF[name] < FLOOR_OF[""]}
    assert inner <= set(PUBLIC)


def test_import_reader_reads_every_form() -> None:
    assert imported_rooms("adjustments") == {"checks", "dlpack", "logits", "memory"}
    inner = {f"engines.{name}" for name in ("native", "numba", "reference", "torch", "triton")}
    assert imported_rooms("engines") == {*inner, "job"}
    assert imported_rooms("engines.native") == {"_native", "adjustments", "job"}
    assert imported_rooms("checks") == set()


def test_public_names() -> None:
    assert sorted(fastsample.__all__) == sorted(PUBLIC)
    assert all(hasattr(fastsample, name) for name in PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_explained(name: str) -> None:
    thing = getattr(fastsample, name)
    if not callable(thing):
        return
    text = inspect.getdoc(thing) or ""
    assert ">>> " in text or name in SHOWN_ELSEWHERE
    if isinstance(thing, EnumMeta):
        assert all(member.name in text for member in thing)
        return
    for parameter in inspect.signature(thing).parameters:
        assert parameter in text, parameter


@pytest.mark.parametrize("room", SOURCES)
def test_numba_is_the_engine_s_own(room: str) -> None:
    """What Numba compiles is asked for by the Numba engine alone, so others do not load it."""
    asked = {name for name in imported_rooms(room) if name.split(".")[0] == "jit"}
    assert not asked or room == "engines.numba" or room.split(".")[0] == "jit"


@pytest.mark.parametrize("room", SOURCES)
def test_torch_is_loaded_by_those_who_draw_with_it(room: str) -> None:
    """The rule in torch is asked for by its engine and the way over a device alone."""
    asked = {name for name in imported_rooms(room) if name.split(".")[0] == "torch_rule"}
    allowed = room in ("engines.torch", "engines.triton", "device") or room.split(".")[0] in (
        "torch_rule",
        "triton_rule",
    )
    assert not asked or allowed


@pytest.mark.parametrize("name", ["sample", "kept_set", "filter_logits"])
def test_signatures_have_the_fields_and_their_defaults(name: str) -> None:
    parameters = inspect.signature(getattr(fastsample, name)).parameters
    left_out = set() if name == "sample" else {"seed"}
    for field in dataclasses.fields(fastsample.SamplingParams):
        if field.name not in left_out:
            assert parameters[field.name].default == field.default, field.name


@pytest.mark.skipif(not has_native(), reason="fastsample._native is not built")
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


@pytest.mark.parametrize("room", SOURCES)
def test_examples_run(room: str) -> None:
    if room == "__main__":
        pytest.skip("it is a command: running it is its test")
    if room in ("engines.native", "threads") and not has_native():
        pytest.skip("fastsample._native is not built")
    try:
        module = importlib.import_module(f"fastsample.{room}".rstrip("."))
        if room == "threads":
            importlib.import_module("threadpoolctl")
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        pytest.skip(f"{error.name} is not installed")
    assert doctest.testmod(module).failed == 0
