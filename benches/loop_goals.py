"""The forms of a draw in a loop that have goals, and these goals, in microseconds.

They are for medians on an idle Zen 4: straight after a model's step (benches/loop.py), or after the
caches were swept (benches/cold.py), always beyond another form at the same place in the same run.
"""

from __future__ import annotations

from dataclasses import dataclass

LOOP, COLD = TABLES = ("loop", "cold")
BATCH = 8
HISTORIES = (100, 32_000)
"""Tokens of text that a penalty counts."""

MAXIMUM, ARGMAX, TORCH_ARGMAX = "np.max(row)", "row.argmax()", "torch.argmax(logits[0, -1]).item()"
ARGMAX_OF_BATCH = f"{BATCH} x row.argmax()"
ROW, AT, BATCH_ROWS = "sampler(row)", "sampler(logits, at=-1)", f"sampler({BATCH} rows)"
OWN_CLOCK = "sampler(row), measure=True"
SLICED = ("sampler(logits.numpy()[0, -1])", "sampler(logits[0, -1])", "sampler(logits[:, -1])")
SAMPLE = ("sample(logits, at=-1)", "sample(logits[0, -1])", "sample(logits[:, -1])")
MASK, BIAS = "sampler(row, mask=bits)", "sampler(row, bias={5: 1.0})"
PENALTIES = tuple(f"sampler(row), repetition penalty, {length:,} tokens" for length in HISTORIES)
LOGPROBS = "sampler.sample(row, logprobs=5)"
AT_BATCH = f"{AT}, {BATCH} rows"
BY_TURNS = f"sampler({BATCH} rows), then {BATCH - 1}, by turns"
JOINING = f"sampler({BATCH} rows), one joins before and leaves after"


@dataclass(frozen=True)
class Goal:
    """At most so many microseconds beyond some times the median of another form."""

    us: float
    base: str
    times: float = 1.0

    def __str__(self) -> str:
        """What the microseconds are beyond."""
        return self.base if self.times == 1 else f"{self.times} x ({self.base})"


BEYOND_ARGMAX = {
    ROW: Goal(6, ARGMAX),
    **{name: Goal(25, ARGMAX) for name in (AT, *SLICED)},
    **{name: Goal(50, ARGMAX) for name in SAMPLE},
}
OPTIONS = {
    **{name: Goal(15, ROW) for name in (MASK, BIAS, *PENALTIES)},
    LOGPROBS: Goal(35, ROW),
    BATCH_ROWS: Goal(0, ARGMAX_OF_BATCH, 1.1),
    AT_BATCH: Goal(15, ARGMAX_OF_BATCH, 1.1),
    BY_TURNS: Goal(5, BATCH_ROWS),
    JOINING: Goal(10, BATCH_ROWS),
}
GOALS: dict[str, dict[str, Goal]] = {LOOP: BEYOND_ARGMAX, COLD: OPTIONS}
"""By table. A sequence that joins or leaves may cost 5 us."""


def setting_form(name: str) -> str:
    """Name the quickest form of what a model returned, with a setting of benches/settings.py."""
    return AT if name == "usual chain" else f"{AT}, {name}"
