"""How much an oracle has compared, and which engines its next case is held on.

The reference answers a case once; native, on every usable instruction set, is held to every answer.
A call of Numba's or torch's costs as much as ten of native's: they meet one case in five.
"""

from __future__ import annotations

from support import HELD, Engine

NATIVE = [engine for engine in HELD if engine.is_native]
SHARE_OF_OTHERS = 5


class Tally:
    """Cases and logits that were compared so far: a row counts its V once, however many engines."""

    def __init__(self) -> None:
        self.asked = self.cases = self.logits = 0

    def engines(self) -> list[Engine]:
        """Engines that the next row or job is held on; all of them where native is not there."""
        self.asked += 1
        return HELD if self.asked % SHARE_OF_OTHERS == 1 or not NATIVE else NATIVE

    def add(self, cases: int, logits: int) -> None:
        """Count what was equal."""
        self.cases += cases
        self.logits += logits

    def report(self, cases: int = 0, logits: int = 0) -> None:
        """Say what was compared, and fail where it is less than asked for."""
        names = ", ".join(engine.isa or engine.name for engine in HELD)
        print(f"{self.cases} cases, {self.logits:.2e} logits equal on {names}")
        assert self.cases >= cases
        assert self.logits >= logits
