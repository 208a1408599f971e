"""The registry of engines: one record for each, what it needs and what it can do.

An engine is a module with the functions of `contract`: `run`, `write_softmax` and `kept_sets`, and
`make_step` and `make_draw` where it can prepare calls that are repeated. All return the same bits.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastsample.params.ops import Op
from fastsample.params.table import STAGES

from .contract import Draw, FindKeptSets, Run, SampleRequest, Step, WriteSoftmax


class Engine(NamedTuple):
    """An engine that is loaded: its name, its functions, its instruction sets."""

    name: str
    run: Run
    write_softmax: WriteSoftmax
    kept_sets: FindKeptSets
    make_step: Callable[..., Step] | None
    make_draw: Callable[..., Draw] | None
    isas: tuple[str, ...]


ALL_OPS = frozenset(Op)


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """What an engine needs and what it can do, known before it is loaded.

    Attributes
    ----------
    name : str
    module : str
        Where its functions are, below this package.
    missing : str
        The error where it is not installed.
    requires : tuple of str
        Modules that must be installed.
    machines : tuple of str
        The processors that it runs on, by `platform.machine`; empty for all.
    package : str or None
        The package whose version may change what the engine computes.
    ops : frozenset of Op
        What stages may do. A call with another stage is refused.
    reductions : tuple of str
    has_isas : bool
        Whether a call may name an instruction set.
    has_threads : bool
        Whether `n_threads` changes how many threads compute.
    survives_fork : bool
        Whether a child of a process that used the engine can use it.
    takes_tensors : bool
        Whether it draws from tensors on their device, and is too slow to load unasked.
    is_automatic : bool
        Whether a call that names no engine may get it; the first that is installed is taken.
    """

    name: str
    module: str
    missing: str = ""
    requires: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    package: str | None = None
    ops: frozenset[Op] = ALL_OPS
    reductions: tuple[str, ...] = ("exact", "fixed", "fast")
    has_isas: bool = False
    has_threads: bool = False
    survives_fork: bool = True
    takes_tensors: bool = False
    is_automatic: bool = False


ENGINES = {
    record.name: record
    for record in (
        EngineRecord(
            name="native",
            module="native",
            missing="engine 'native' and `isa` need the compiled extension, which is not installed "
            "(leave both out, or install fastsample where a C++ compiler is)",
            requires=("fastsample._native",),
            has_isas=True,
            has_threads=True,
            is_automatic=True,
        ),
        EngineRecord(
            name="numba",
            module="numba.engine",
            missing="engine 'numba' needs numba, which is not installed, on x86-64 or aarch64: pip "
            "install numba (or pip install '.[numba]' in fastsample's source folder)",
            requires=("numba",),
            machines=("x86_64", "amd64", "aarch64", "arm64"),
            package="numba",
            is_automatic=True,
        ),
        EngineRecord(
            name="reference",
            module="reference.engine",
            is_automatic=True,
        ),
        EngineRecord(
            name="torch",
            module="torch.engine",
            missing="engine 'torch' needs torch, which is not installed: pip install torch (or pip "
            "install '.[torch]' in fastsample's source folder)",
            requires=("torch",),
            package="torch",
            reductions=("exact",),
            takes_tensors=True,
        ),
        EngineRecord(
            name="triton",
            module="triton.engine",
            missing="engine 'triton' needs torch and triton, which are not both installed: pip "
            "install torch triton (or leave `engine` out)",
            requires=("torch", "triton"),
            package="triton",
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
    """Load an engine by name.

    Parameters
    ----------
    name : str or None
        A name of `ENGINES`, or None or "auto": the first automatic one that is installed.
    isa : str or None
        The instruction set that a call names; None where it names none.

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
    if name is None or name == "auto":
        name = _automatic() if isa is None else "native"
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
            f"`{argument}` must be a name or None, got {type(value).__name__} {value!r} (None "
            "takes the fastest one)"
        )


def _automatic() -> str:
    names = (record.name for record in ENGINES.values() if record.is_automatic)
    return next(filter(is_installed, names))


@cache
def _load(name: str) -> Engine:
    module = import_module(f".{ENGINES[name].module}", __name__)
    return Engine(
        name,
        _refusing(name, module.run),
        module.write_softmax,
        _refusing(name, module.kept_sets),
        getattr(module, "make_step", None),
        getattr(module, "make_draw", None),
        getattr(module, "ISAS", ()),
    )


# ---------------------------------------------------------------- stages that an engine lacks

_Call = TypeVar("_Call", bound=Callable[..., Any])


def _refusing(name: str, call: _Call) -> _Call:
    """Check the plan of each request where an engine lacks an op."""
    if ENGINES[name].ops == ALL_OPS:
        return call

    @wraps(call)
    def checked(request: SampleRequest, *args: Any, **options: Any) -> Any:
        require_stages(name, request.plan)
        return call(request, *args, **options)

    return checked  # type: ignore[return-value]


def require_stages(name: str, plan: NDArray[np.void]) -> None:
    """Refuse a plan with a stage that an engine lacks.

    Parameters
    ----------
    name : str
        The engine's.
    plan : array of PLAN

    Raises
    ------
    ValueError
        The engine lacks an op of the plan: the message names the stage.
    """
    lacking = ALL_OPS - ENGINES[name].ops
    if not lacking:
        return
    for ops, stages in set(zip(plan["ops"].tolist(), plan["stages"].tolist(), strict=True)):
        for op, code in zip(ops, stages, strict=True):
            if op in lacking:
                raise _lacks_stage(name, STAGES[code - 1], Op(op))


def _lacks_stage(name: str, stage: str, op: Op) -> ValueError:
    # For tensors on their device if the refused engine is.
    takes_tensors = ENGINES[name].takes_tensors
    able = [record for record in ENGINES.values() if op in record.ops]
    able.sort(key=lambda record: record.takes_tensors != takes_tensors)
    instead = f'use engine="{able[0].name}", or ' if able else ""
    return ValueError(f"engine {name!r} has no stage {stage!r} ({instead}leave `{stage}` out)")
