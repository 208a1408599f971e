"""The engines. Each is a module with these doors, and all give the same bits.

    run(job, out, *, isa=None, n_threads=None) -> None
    write_law(name, job, out, status, *, isa=None, n_threads=None) -> None
    kept_sets(job, status, *, isa=None, n_threads=None) -> KeptSets

Two more prepare calls that are made again and again, where an engine has them:

    make_step(...) -> Step, with which a `Sampler` draws
    make_draw(...) -> Draw, with which `sample` does

An engine reads a `Job`, writes where it is told, and raises for nothing that a row holds.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .contract import Job, KeptSets, Outcome


class Run(Protocol):
    """The door to draws."""

    def __call__(
        self, job: Job, out: Outcome, *, isa: str | None = None, n_threads: int | None = None
    ) -> None:
        """Draw for every row of the job."""


class WriteLaw(Protocol):
    """The door to the laws of whole rows."""

    def __call__(
        self,
        name: str,
        job: Job,
        out: NDArray[Any],
        status: NDArray[np.uint8],
        *,
        isa: str | None = None,
        n_threads: int | None = None,
    ) -> None:
        """Write the law of each whole row at its temperature, with no adjustment and no filter.

        Parameters
        ----------
        name : {"softmax", "log_softmax", "logsumexp"}
        job : Job
            Its plan gives the temperatures; above 0 for "logsumexp".
        out : float32 array of shape (B, vocabulary), or float64 of shape (B,) for "logsumexp"
            C-contiguous. Written where a row is good. It may lie exactly where `job.values` does.
        status : uint8 array of shape (B,)
            Comes as 0. Written: 1 for an invalid row, 2 for an empty one.
        """


class FindKeptSets(Protocol):
    """The door to kept sets."""

    def __call__(
        self,
        job: Job,
        status: NDArray[np.uint8],
        *,
        isa: str | None = None,
        n_threads: int | None = None,
    ) -> KeptSets:
        """Find the kept set of each row.

        Parameters
        ----------
        job : Job
        status : uint8 array of shape (B,)
            In and out: a row that comes with a status other than 0 is left alone.
        """


class Step(Protocol):
    """A call of a `Sampler`, prepared for sequences that stay the same from call to call.

    Attributes
    ----------
    ready : bool
        Whether it may draw; False at first.
    """

    ready: bool

    def __call__(
        self, logits: Any, sequences: Any = None, mask: Any = None, bias: Any = None
    ) -> Any:
        """Draw a token for each sequence, append them, and return them in the logits' form.

        None where the general way must be gone, from which it differs in nothing but time; then
        nothing has changed.
        """


class Draw(Protocol):
    """A call of `sample` for one row, prepared for parameters that stay the same."""

    def __call__(
        self, logits: Any, seed: Any, position: Any, stream: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], bool] | None:
        """Draw a token; return it, the kept count and the status, and whether logits are a tensor.

        The first three are arrays without dimensions. None where the general way must be gone.
        """


class Engine(NamedTuple):
    """An engine: its name and its doors."""

    name: str
    run: Run
    write_law: WriteLaw
    kept_sets: FindKeptSets
    make_step: Callable[..., Step] | None
    make_draw: Callable[..., Draw] | None


@cache
def has_native() -> bool:
    """Tell whether the compiled extension is installed."""
    return find_spec("fastsample._native") is not None


@cache
def has_numba() -> bool:
    """Tell whether numba is installed, on a processor whose float mode the engine can set."""
    known = platform.machine().lower() in ("x86_64", "amd64", "aarch64", "arm64")
    return known and find_spec("numba") is not None


@cache
def has_torch() -> bool:
    """Tell whether torch is installed."""
    return find_spec("torch") is not None


@cache
def has_triton() -> bool:
    """Tell whether torch and Triton are installed; not whether there is a GPU to draw with."""
    return has_torch() and find_spec("triton") is not None


def installed() -> tuple[str, ...]:
    """Name the engines that are installed: those that a call without a name tries come first."""
    are_there = {
        "native": has_native(),
        "numba": has_numba(),
        "reference": True,
        "torch": has_torch(),
        "triton": has_triton(),
    }
    return tuple(name for name, is_there in are_there.items() if is_there)


def resolve(name: str | None = None, isa: str | None = None) -> Engine:
    """Find an engine by name.

    Parameters
    ----------
    name : str or None
        "native", "numba", "reference", or None or "auto": the first of them that is installed. Or
        "torch" or "triton".
    isa : str or None
        The instruction set that will be asked for; only the native engine has any.

    Raises
    ------
    ValueError
        An unknown name, or an `isa` for another engine than the native one.
    RuntimeError
        The native engine where the extension is not installed, "numba" where numba is not,
        "torch" where torch is not, or "triton" where Triton is not or has nothing to run on.
    """
    if name is None or name == "auto":
        name = "native" if isa is not None or has_native() else _without_extension()
    if name == "native":
        return _native()
    if name not in _OTHERS:
        raise ValueError(
            "`engine` must be 'native', 'numba', 'torch', 'triton', 'reference', 'auto' or None, "
            f"got {name!r} (None takes the fastest one)"
        )
    if isa is not None:
        raise ValueError(
            f"`isa` must be None for engine {name!r}, which has no instruction sets to choose "
            f"from, got {isa!r} (leave one of the two out)"
        )
    return _OTHERS[name]()


def _without_extension() -> str:
    return "numba" if has_numba() else "reference"


@cache
def _numba() -> Engine:
    if not has_numba():
        raise RuntimeError(
            "engine 'numba' needs numba, which is not installed, on x86-64 or aarch64: pip install "
            "numba (or pip install '.[numba]' in fastsample's source folder)"
        )
    from .numba import engine as numba

    return Engine("numba", numba.run, numba.write_law, numba.kept_sets, None, None)


@cache
def _native() -> Engine:
    if not has_native():
        raise RuntimeError(
            "engine 'native' and `isa` need the compiled extension, which is not installed (leave "
            "both out, or install fastsample where a C++ compiler is)"
        )
    from . import native

    return Engine(
        "native", native.run, native.write_law, native.kept_sets, native.make_step, native.make_draw
    )


@cache
def _torch() -> Engine:
    if not has_torch():
        raise RuntimeError(
            "engine 'torch' needs torch, which is not installed: pip install torch (or pip install "
            "'.[torch]' in fastsample's source folder)"
        )
    from .torch import engine as torch

    return Engine("torch", torch.run, torch.write_law, torch.kept_sets, None, None)


@cache
def _triton() -> Engine:
    if not has_triton():
        raise RuntimeError(
            "engine 'triton' needs torch and triton, which are not both installed: pip install "
            "torch triton (or leave `engine` out)"
        )
    from .triton import engine as triton

    return Engine("triton", triton.run, triton.write_law, triton.kept_sets, None, None)


@cache
def _reference() -> Engine:
    from .reference import engine as reference

    return Engine("reference", reference.run, reference.write_law, reference.kept_sets, None, None)


_OTHERS = {"numba": _numba, "torch": _torch, "triton": _triton, "reference": _reference}
"""Engines without instruction sets to choose from."""

OF_TENSORS = ("torch", "triton")
"""Engines that draw from tensors where they lie, and have exact alone."""
