"""What the tests share: plans, requests, engines with one interface, hashes of rows, and latencies.

`PLAN_LAYOUT` is written out on purpose: it is the layout that the kernels read, and a test holds
the package's own copy to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fastsample import Latency, engines
from fastsample.engines import ENGINES, is_installed, resolve
from fastsample.engines.contract import LogprobResult, SampleOutput, SampleRequest
from fastsample.engines.plan import write_stages
from fastsample.inputs.logits_processors import LogitsProcessors, TokenLists
from fastsample.params.ops import DrawMethod
from fastsample.params.table import BY_NAME, STAGE_PARAMETERS, STAGES
from fastsample.params.validation import DRAW_METHODS, SCOPE_CODES

try:
    from fastsample import _native as native
except ImportError:  # the reference can be tested before the extension is built
    native = None

PLAN_LAYOUT = np.dtype(
    [
        ("temperature", "<f8"),
        ("repetition_penalty", "<f8"),
        ("frequency_penalty", "<f8"),
        ("presence_penalty", "<f8"),
        ("min_keep", "<i8"),
        ("repetition_scope", "<i8"),
        ("frequency_scope", "<i8"),
        ("presence_scope", "<i8"),
        ("seed", "<u8"),
        ("position", "<u8"),
        ("stream", "<u4"),
        ("draw", "<u4"),
        ("ops", "S16"),
        ("stages", "S16"),
        ("values", "<f8", (16,)),
    ]
)
BAD_PARAM = 3

FILTERS_OFF: dict[str, Any] = {one.name: one.default for one in STAGE_PARAMETERS}
DEFAULTS: dict[str, Any] = {
    **FILTERS_OFF,
    "min_keep": 1,
    "stages": STAGES,
    "repetition_penalty": 1.0,
    "repetition_scope": "all",
    "frequency_scope": "output",
    "presence_scope": "output",
}


def make_plan(n_rows: int, **settings: Any) -> np.ndarray:
    """One record for each row; each setting one for all rows or, numbers, one per row.

    Without `draw`, by the inverse method.
    """
    plan = np.zeros(n_rows, dtype=PLAN_LAYOUT)
    choices = {**DEFAULTS, **settings}
    stages = choices.pop("stages")
    lists = {name: np.array(value) for name, value in choices.items() if isinstance(value, list)}
    write_stages(plan, stages, choices | lists)
    for name, value in choices.items():
        if name not in FILTERS_OFF:
            codes = DRAW_METHODS if name == "draw" else SCOPE_CODES
            plan[name] = codes[value] if isinstance(value, str) else value
    return plan


def column_of(plan: np.ndarray, name: str) -> np.ndarray:
    """A parameter's values in a plan whose rows have the same stages."""
    if name in plan.dtype.names:
        return plan[name]
    place = bytes(plan["stages"][0]).find(1 + STAGES.index(name))
    return np.full(len(plan), FILTERS_OFF[name]) if place < 0 else plan["values"][:, place]


def sha256(*arrays: np.ndarray) -> str:
    """Hash of the little-endian bytes of the arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


# ---------------------------------------------------------------- requests

KIND_OF = {"f": "float32", "e": "float16", "H": "bfloat16"}


def make_request(
    values: np.ndarray,
    plan: np.ndarray,
    vocabulary: int | None = None,
    reduction: str = "exact",
    logprob_tokens: np.ndarray | None = None,
    **lists: Any,
) -> SampleRequest:
    """A request; `lists` are the fields of its processors."""
    fields = {"mask": None, "bias": None, "prompt": None, "output": None, **lists}
    processors = LogitsProcessors(**fields) if lists else None
    columns = values.shape[1] if vocabulary is None else vocabulary
    return SampleRequest(values, columns, plan, processors, reduction, logprob_tokens)


def csr(lists: list[Any], values: list[Any] | None = None) -> TokenLists:
    """A list of tokens for each row, and a value for each token where they are given."""
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    flat = None if values is None else np.concatenate([np.float32([]), *values]).astype(np.float32)
    return TokenLists(offsets, np.concatenate([np.int64([]), *lists]).astype(np.int64), flat)


def row_of_csr(lists: TokenLists | None, b: int) -> TokenLists | None:
    if lists is None:
        return None
    part = slice(lists.offsets[b], lists.offsets[b + 1])
    values = None if lists.values is None else lists.values[part].copy()
    tokens = lists.tokens[part].copy()
    return TokenLists(np.array([0, len(tokens)], dtype=np.int64), tokens, values)


def row_of_request(request: SampleRequest, b: int) -> SampleRequest:
    """The request of one of its rows alone."""
    values, vocabulary, plan, processors, reduction, given, replacement = request
    if processors is not None:
        mask, *lists = processors
        if mask is not None and len(mask) > 1:
            mask = mask[b : b + 1].copy()
        processors = LogitsProcessors(mask, *(row_of_csr(one, b) for one in lists))
    row = slice(b, b + 1)
    given = None if given is None else given[row].copy()
    of_row = values[row], vocabulary, plan[row].copy(), processors
    return SampleRequest(*of_row, reduction, given, replacement)


def make_output(
    n_rows: int,
    draws: int = 1,
    modes: tuple[str, ...] = (),
    top_count: int = 0,
    token_count: int = 0,
    has_draws: bool = True,
    has_count: bool = True,
) -> SampleOutput:
    """Buffers for an engine's output, filled with values that no engine writes.

    Without `has_draws`, none for the log-probabilities of the draws. Without `has_count`, none for
    kept counts: an engine then need not find the kept set.
    """
    logprob_draws = draws if has_draws else 0
    result = LogprobResult.empty(modes, n_rows, logprob_draws, top_count, token_count)
    for array in result[1:]:
        array[:] = 7 if array.dtype == np.float64 else -7
    return SampleOutput(
        tokens=np.full((n_rows, draws), -7, dtype=np.int64),
        status=np.zeros(n_rows, dtype=np.uint8),
        kept_count=np.full(n_rows, -7, dtype=np.int64) if has_count else None,
        logprobs=result if modes else None,
    )


@dataclass(frozen=True)
class KeptSets:
    """Kept sets of a request in the rule's order, end to end, and the rows' statuses."""

    tokens: np.ndarray
    masses: np.ndarray
    logits: np.ndarray
    offsets: np.ndarray
    status: np.ndarray


# ---------------------------------------------------------------- engines

NATIVE = "fastsample._native"
"""The module that the native engine requires."""


@contextmanager
def without_modules(*absent: str) -> Iterator[None]:
    """Let the registry of engines find all installed modules but some."""
    found = engines.has_module
    with mock.patch.object(engines, "has_module", lambda name: name not in absent and found(name)):
        engines._resolve.cache_clear()
        yield
    engines._resolve.cache_clear()


@dataclass(frozen=True)
class Engine:
    """One engine on one instruction set, with the calls that tests make."""

    name: str
    isa: str | None = None

    def __str__(self) -> str:
        return f"{self.name}-{self.isa}" if self.isa else self.name

    @property
    def is_native(self) -> bool:
        return self.name == "native"

    def threads(self, *counts: int) -> tuple[int, ...]:
        """Numbers of threads to test with: all engines but native ignore it."""
        return counts if self.is_native else counts[:1]

    @property
    def reductions(self) -> tuple[str, ...]:
        return ENGINES[self.name].reductions

    def has_stages(self, stages: Iterable[str]) -> bool:
        """Whether the engine has the ops of some stages; it refuses others."""
        return all(BY_NAME[stage].op in ENGINES[self.name].ops for stage in stages)

    @property
    def has_race(self) -> bool:
        """Whether the engine draws by race; it refuses to where it does not."""
        return DrawMethod.RACE in ENGINES[self.name].draws

    @property
    def has_distinct(self) -> bool:
        """Whether the engine draws without replacement; it refuses to where it does not."""
        return ENGINES[self.name].has_distinct

    def run(self, request: SampleRequest, out: SampleOutput, n_threads: int = 1) -> SampleOutput:
        """Run the engine on a request, and return `out`."""
        resolve(self.name, self.isa).run(request, out, isa=self.isa, n_threads=n_threads)
        return out

    def sample(
        self, rows: np.ndarray, plan: np.ndarray, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and statuses of a batch, one draw a row."""
        out = self.run(make_request(rows, plan), make_output(len(rows)), n_threads)
        return out.tokens[:, 0], out.status

    def token(self, row: np.ndarray, **settings: Any) -> int:
        """Token drawn from one row."""
        tokens, _ = self.sample(row[np.newaxis], make_plan(1, **settings))
        return int(tokens[0])

    def kept_sets(
        self, request: SampleRequest, status: np.ndarray | None = None, n_threads: int = 1
    ) -> KeptSets:
        """Kept sets of a request; `status` as an engine gets it."""
        found = np.zeros(len(request.values), dtype=np.uint8) if status is None else status.copy()
        kept_sets = resolve(self.name, self.isa).kept_sets
        return KeptSets(*kept_sets(request, found, isa=self.isa, n_threads=n_threads), found)

    def softmax(self, name: str, request: SampleRequest) -> tuple[np.ndarray, np.ndarray]:
        """softmax, log_softmax or logsumexp of shape (B, V) or (B, 1), and the statuses."""
        out: np.ndarray
        if name == "logsumexp":
            out = np.zeros(len(request.values))
        else:
            out = np.zeros((len(request.values), request.vocabulary), dtype=np.float32)
        status = self.write_softmax(name, request, out)
        return out.reshape(len(out), -1), status

    def write_softmax(
        self, name: str, request: SampleRequest, out: np.ndarray, n_threads: int = 1
    ) -> np.ndarray:
        """Write softmax, log_softmax or logsumexp of rows; return the statuses."""
        status = np.zeros(len(request.values), dtype=np.uint8)
        write = resolve(self.name, self.isa).write_softmax
        write(name, request, out, status, isa=self.isa, n_threads=n_threads)
        return status

    def kept_set(self, row: np.ndarray, **filters: Any) -> tuple[np.ndarray, np.ndarray]:
        """Kept tokens of one row, ascending, and their masses."""
        sets = self.kept_sets(make_request(row[np.newaxis], make_plan(1, **filters)))
        ascending = np.argsort(sets.tokens)
        return sets.tokens[ascending], sets.masses[ascending]

    def shares(self, row: np.ndarray, **filters: Any) -> np.ndarray:
        """Share of each token in the kept set's total mass: float64, 0 where not kept."""
        tokens, masses = self.kept_set(row, **filters)
        shares = np.zeros(len(row))
        shares[tokens] = masses / masses.sum(dtype=np.uint64)
        return shares


def usable_engines() -> list[Engine]:
    """Reference, Numba and torch where installed, and native on every usable instruction set."""
    isas = native.isa_usable() if native else ()
    others = [Engine(name) for name in ("numba", "torch") if is_installed(name)]
    return [Engine("reference"), *others, *(Engine("native", isa) for isa in isas)]


TESTED_ENGINES = [engine for engine in usable_engines() if engine.name != "reference"]
"""The engines that are compared with the reference."""

REDUCTION_ENGINES = [engine for engine in TESTED_ENGINES if "fixed" in engine.reductions]
"""Those of them that have the reductions "fixed" and "fast"."""

needs_tested_engine = pytest.mark.skipif(
    not TESTED_ENGINES, reason="no engine but the reference is there"
)


SHARED_STAGES = tuple(
    stage for stage in STAGES if all(engine.has_stages((stage,)) for engine in usable_engines())
)
"""The stages that all of these engines have."""


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal in shape, dtype and every bit, so -0 is not 0 and nan is nan."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def differing(expected: Any, found: Any) -> list[str]:
    """Names of the arrays in which two outputs of one kind differ, also in their records."""
    names = getattr(expected, "_fields", None) or list(expected.__dataclass_fields__)
    different = []
    for name in names:
        one, other = getattr(expected, name), getattr(found, name)
        if hasattr(one, "_fields"):
            different += differing(one, other)
        elif isinstance(one, np.ndarray) and not same_bits(one, other):
            different.append(name)
    return different


def latency_of(times: Iterable[int]) -> Latency:
    """A `Latency` that has recorded some times."""
    latency = Latency()
    for time in times:
        latency.record(time)
    return latency
