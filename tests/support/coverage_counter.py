"""Count what an oracle test has compared, and choose the engines of its next case.

The reference answers a case once. Native, on every usable instruction set, is compared on every
case. A call of the Numba engine costs as much as ten of native's: it gets one case in five. A call
of torch costs a hundred: it gets one in a hundred, and test_torch_engine.py has more.
"""

from __future__ import annotations

from collections import Counter

from tests.support.engines import TESTED_ENGINES, Engine

SHARES = (
    {"numba": 5, "torch": 100}
    if any(engine.is_native for engine in TESTED_ENGINES)
    else {"torch": 100}
)


class CoverageCounter:
    """Cases and logits that were compared so far: a row counts its V once, however many engines."""

    def __init__(self) -> None:
        self.started = self.cases = self.logits = 0
        self.held: Counter[Engine] = Counter()

    def engines(self) -> list[Engine]:
        """Engines to compare on the next row or request."""
        self.started += 1
        return [one for one in TESTED_ENGINES if (self.started - 1) % SHARES.get(one.name, 1) == 0]

    def add(self, engines: list[Engine], cases: int, logits: int) -> None:
        """Count what was equal on these engines."""
        self.cases += cases
        self.logits += logits
        self.held.update(dict.fromkeys(engines, cases))

    def report(self, cases: int = 0, logits: int = 0) -> None:
        """Print what was compared on each engine; fail where it is less than required."""
        held = ", ".join(f"{self.held[one]} on {one}" for one in TESTED_ENGINES)
        print(f"{self.cases} cases, {self.logits:.2e} logits; equal: {held}")
        assert self.cases >= cases
        assert self.logits >= logits
        assert all(self.held[one] for one in TESTED_ENGINES)
