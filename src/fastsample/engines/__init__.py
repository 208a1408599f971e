"""The registry of engines: one record for each, what it needs and what it can do."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.params.ops import AUTOMATIC, INVERSE, RACE, DrawMethod, Op
from fastsample.params.table import STAGES

from .contract import Engine

ALL_OPS = frozenset(Op)


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """What an engine needs and what it can do, known before it is loaded."""

    name: str
    module: str  # where its functions are, below this package
    missing: str = ""  # the error where it is not installed
    requires: tuple[str, ...] = ()  # modules that must be installed
    machines: tuple[str, ...] = ()  # processors, by platform.machine(); empty for all
    package: str | None = None  # whose version may change what the engine computes
    ops: frozenset[Op] = ALL_OPS  # what stages may do; a call with another stage is refused
    reductions: tuple[str, ...] = ("exact", "fixed", "fast")
    draws: tuple[DrawMethod, ...] = (DrawMethod.INVERSE,)
    has_distinct: bool = False  # whether it draws without replacement
    has_isas: bool = False  # whether a call may name an instruction set
    has_threads: bool = False  # whether `n_threads` changes how many threads compute
    survives_fork: bool = True  # whether a child of a process that used the engine can use it
    takes_tensors: bool = False  # draws from tensors on their device; too slow to load unasked
    is_automatic: bool = False  # whether a call that names no engine may get it


ENGINES = {
    record.name: record
    for record in (
        EngineRecord(
            name="native",
            module="native",
            missing="engine 'native' and `isa` need the compiled extension, which is not installed "
            "(leave both out, or install fastsample where a C++ compiler is)",
            requires=("fastsample._native",),
            draws=(DrawMethod.INVERSE, DrawMethod.RACE),
            has_distinct=True,
            has_isas=True,
            has_threads=True,
            is_automatic=True,
        ),
        EngineRecord(
            name="numba",
            module="numba.engine",
            missing="engine 'numba' needs numba, which is not installed, on x86-64 or aarch64 (pip "
            "install numba, or leave `engine` out)",
            requires=("numba",),
            machines=("x86_64", "amd64", "aarch64", "arm64"),
            package="numba",
            draws=(DrawMethod.INVERSE, DrawMethod.RACE),
            has_distinct=True,
            is_automatic=True,
        ),
        EngineRecord(
            name="reference",
            module="reference.engine",
            draws=(DrawMethod.INVERSE, DrawMethod.RACE),
            has_distinct=True,
            is_automatic=True,
        ),
        EngineRecord(
            name="torch",
            module="torch.engine",
            missing="engine 'torch' needs torch, which is not installed (pip install torch, or "
            "leave `engine` out)",
            requires=("torch",),
            package="torch",
            draws=(DrawMethod.INVERSE, DrawMethod.RACE),
            reductions=("exact",),
            takes_tensors=True,
        ),
        EngineRecord(
            name="triton",
            module="triton.engine",
            missing="engine 'triton' needs torch and triton, which are not both installed (pip "
            "install torch triton, or leave `engine` out)",
            requires=("torch", "triton"),
            package="triton",
            draws=(DrawMethod.INVERSE, DrawMethod.RACE),
            ops=ALL_OPS - {Op.THRESHOLD_OF_DEVIATION, Op.BAND},
            reductions=("exact",),
            survives_fork=False,
            takes_tensors=True,
        ),
    )
}
"""Every engine; those that a call without a name tries are first, in this order."""

TENSOR_ENGINES = tuple(record.name for record in ENGINES.values() if record.takes_tensors)
"""Engines that draw from tensors on their device."""


_AUTOMATIC = tuple(record.name for record in ENGINES.values() if record.is_automatic)


@cache
def has_module(name: str) -> bool:
    """Return whether a module is installed; it is not imported."""
    return find_spec(name) is not None


def is_installed(name: str) -> bool:
    """Return whether an engine can be loaded; "triton" needs a GPU as well."""
    record = ENGINES[name]
    is_known = not record.machines or platform.machine().lower() in record.machines
    return is_known and all(map(has_module, record.requires))


def installed() -> tuple[str, ...]:
    """Return the names of the engines that are installed, in the order of the table."""
    return tuple(filter(is_installed, ENGINES))


def resolve(name: str | None = None, isa: str | None = None) -> Engine:
    """Load an engine by name; None and "auto" are the first automatic one that is installed.

    Raises
    ------
    TypeError
        A name that is not a str.
    ValueError
        An unknown name, or an `isa` for an engine that has none.
    RuntimeError
        The engine is not installed, or "triton" has nothing to run on.
    """
    require_name("engine", name)
    require_name("isa", isa)
    return _resolve(name, isa)


@cache
def _resolve(name: str | None, isa: str | None) -> Engine:
    if name is None or name == "auto":
        name = next(filter(is_installed, _AUTOMATIC)) if isa is None else "native"
    record = ENGINES.get(name)
    if record is None:
        raise ValueError(
            f"`engine` must be {', '.join(map(repr, ENGINES))}, 'auto' or None, got {name!r} (None "
            "takes the fastest one)"
        )
    if isa is not None and not record.has_isas:
        raise ValueError(
            f"`isa` must be None for engine {name!r}, which has no instruction sets to choose "
            f"from, got {isa!r} (leave one of the two out)"
        )
    if not is_installed(name):
        raise RuntimeError(record.missing)
    return _load(name)


def require_name(argument: str, value: Any) -> None:
    """Check that an argument which names an engine or an instruction set is a str or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(
            f"`{argument}` must be a name or None, got {type(value).__name__} (None "
            "takes the fastest one)"
        )


@cache
def _load(name: str) -> Engine:
    module = import_module(f".{ENGINES[name].module}", __name__)
    return Engine(
        name,
        module.run,
        module.write_softmax,
        module.kept_sets,
        getattr(module, "make_step", None),
        getattr(module, "make_draw", None),
        getattr(module, "ISAS", ()),
    )


def require_stages(name: str, plan: NDArray[np.void]) -> None:
    """Refuse a plan with a stage whose op an engine lacks.

    Raises
    ------
    ValueError
        The message names the stage, and another engine: one that takes tensors if this one does.
    """
    record = ENGINES[name]
    if record.ops == ALL_OPS:
        return
    for ops, stages in set(zip(plan["ops"].tolist(), plan["stages"].tolist(), strict=True)):
        for op, code in zip(ops, stages, strict=True):
            if op in record.ops:
                continue
            stage = STAGES[code - 1]
            able = [one for one in ENGINES.values() if op in one.ops]
            able.sort(key=lambda one: one.takes_tensors != record.takes_tensors)
            raise ValueError(
                f'engine {name!r} has no stage {stage!r} (use engine="{able[0].name}", or leave '
                f"`{stage}` out)"
            )


def settle_draws(
    name: str, plan: NDArray[np.void], reduction: str, replacement: bool = True
) -> None:
    """Settle how each row of a plan is drawn, in place, where the call left it open.

    Raises
    ------
    ValueError
        A race in a reduction that has none, or for an engine that has none; draws without
        replacement where rows are not drawn by race, or for an engine that has none.
    """
    draw, is_exact = plan["draw"], reduction == "exact"
    draw[draw == AUTOMATIC] = RACE if is_exact else INVERSE
    if not (is_exact and RACE in ENGINES[name].draws) and (draw == RACE).any():
        if not is_exact:
            raise ValueError(
                f'`draw` must be "inverse" or None in the reduction {reduction!r}, got "race" (its '
                'sums are for the inverse method; a race needs reduction="exact")'
            )
        able = next(one.name for one in ENGINES.values() if RACE in one.draws)
        raise ValueError(
            f'engine {name!r} has no draw "race" (use engine="{able}", or draw="inverse")'
        )
    if not replacement:
        _require_distinct(ENGINES[name], draw, reduction)


def _require_distinct(record: EngineRecord, draw: NDArray[np.uint32], reduction: str) -> None:
    if reduction != "exact":
        raise ValueError(
            f"`replacement` must be True in the reduction {reduction!r}, got False (it draws by "
            'the inverse method; reduction="exact" draws distinct tokens)'
        )
    if (draw == INVERSE).any():
        raise ValueError(
            '`draw` must be "race" or None with replacement=False, got "inverse" (distinct tokens '
            "are drawn in the order in which a race has them; leave `draw` out)"
        )
    if not record.has_distinct:
        able = next(one.name for one in ENGINES.values() if one.has_distinct)
        raise ValueError(
            f'engine {record.name!r} draws with replacement alone (use engine="{able}", with '
            "`logits.cpu()` for a tensor on another device, or leave `replacement` out)"
        )
