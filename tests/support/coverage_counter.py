"""How much an oracle has compared, and which engines its next case is held on.

The reference answers a case once; native, on every usable instruction set, is held to every answer.
A call of the Numba engine costs as much as ten of native's: it meets one case in five. One of torch
costs a hundred: it meets one in a hundred, and has an oracle of its own in test_torch_engine.py.
"""

from __future__ import annotations

from collections import Counter

from tests.support.engines import HELD, Engine

SHARES = {"numba": 5, "torch": 100} if any(engine.is_native for engine in HELD) else {"torch": 100}


class Tally:
    """Cases and logits that were compared so far: a row counts its V once, however many engines."""

    def __init__(self) -> None:
        self.asked = self.cases = self.logits = 0
        self.held: Counter[Engine] = Counter()

    def engines(self) -> list[Engine]:
        """Engines that the next row or job is held on."""
        self.asked += 1
        return [one for one in HELD if (self.asked - 1) % SHARES.get(one.name, 1) == 0]

    def add(self, engines: list[Engine], cases: int, logits: int) -> None:
        """Count what was equal on these engines."""
        self.cases += cases
        self.logits += logits
        self.held.update(dict.fromkeys(engines, cases))

    def report(self, cases: int = 0, logits: int = 0) -> None:
        """Say what was compared, on each engine, and fail where it is less than asked for."""
        held = ", ".join(f"{self.held[one]} on {one.isa or one.name}" for one in HELD)
        print(f"{self.cases} cases, {self.logits:.2e} logits; equal: {held}")
        assert self.cases >= cases
        assert self.logits >= logits
        assert all(self.held[one] for one in HELD)
