"""What the tests share: plans, engines behind one face, and hashes of rows.

`SETTINGS` is written out again on purpose: it is the layout that the kernels read, and a test holds
the package's own copy to it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsample import reference

try:
    from fastsample import _native as native
except ImportError:  # the reference can be tested before the extension is built
    native = None

SETTINGS = np.dtype(
    [
        ("temperature", "<f8"),
        ("top_p", "<f8"),
        ("min_p", "<f8"),
        ("top_k", "<i8"),
        ("seed", "<u8"),
        ("position", "<u8"),
        ("stream", "<u4"),
        ("unused", "<u4"),
    ]
)

FILTERS_OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def make_plan(n_rows: int, **settings: Any) -> np.ndarray:
    """One record of settings per row; each setting a scalar or one value per row."""
    plan = np.zeros(n_rows, dtype=SETTINGS)
    for name, value in {**FILTERS_OFF, **settings}.items():
        plan[name] = value
    return plan


def filters_of(record: Any) -> dict[str, Any]:
    """Filter settings of one plan record, as keywords of the reference."""
    return {
        "temperature": float(record["temperature"]),
        "top_k": int(record["top_k"]),
        "top_p": float(record["top_p"]),
        "min_p": float(record["min_p"]),
    }


def sha256(*arrays: np.ndarray) -> str:
    """Hash of the little-endian bytes of the arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Engine:
    """One engine, on one instruction set, behind the two calls that tests need."""

    name: str
    isa: str | None = None

    @property
    def is_native(self) -> bool:
        return self.name == "native"

    def sample(
        self, rows: np.ndarray, plan: np.ndarray, n_threads: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and statuses of a batch."""
        tokens = np.full(len(rows), -7, dtype=np.int64)
        status = np.full(len(rows), 77, dtype=np.uint8)
        if self.is_native:
            native.sample_rows(rows, plan, tokens, status, self.isa, n_threads)
        else:
            from fastsample.engines.reference import run

            run(rows, plan, tokens, status)
        return tokens, status

    def token(self, row: np.ndarray, **settings: Any) -> int:
        """Token drawn from one row."""
        tokens, _ = self.sample(row[np.newaxis], make_plan(1, **settings))
        return int(tokens[0])

    def kept_set(self, row: np.ndarray, **filters: Any) -> tuple[np.ndarray, np.ndarray]:
        """Kept tokens, ascending, and their masses."""
        if self.is_native:
            return native.kept_set(row, make_plan(1, **filters), self.isa)
        return reference.kept_set(row, **{**FILTERS_OFF, **filters})

    def shares(self, row: np.ndarray, **filters: Any) -> np.ndarray:
        """Share of each token in the kept set's total mass: float64, 0 where not kept."""
        tokens, masses = self.kept_set(row, **filters)
        shares = np.zeros(len(row))
        shares[tokens] = masses / masses.sum(dtype=np.uint64)
        return shares


def usable_engines() -> list[Engine]:
    """Reference, then native on every instruction set that this machine can run."""
    isas = native.isa_usable() if native else ()
    return [Engine("reference"), *(Engine("native", isa) for isa in isas)]
