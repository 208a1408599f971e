"""Cases: rows with the parameters of each.

The fixed cases are the same in every release of one rule: their results are the fingerprint, in
which those of rule 1 come first. A random case is made from one number, so that it can be
reproduced. Tokens are drawn by the inverse method, unless a case is drawn by race.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastsample.engines import reference
from fastsample.params.table import BY_NAME, STAGE_PARAMETERS

from .rows import KINDS, Array, RandomWords, as_bfloat16, as_float16

# The fingerprint depends on all of these but MORE_FILTERS. Cases with numbers below FIRST_RANDOM
# are frozen: they have no other kinds of rows and no other filters.
FIRST_RANDOM = 1000
FIXED_KINDS = (
    *("bell", "bell x 4", "bell / 16", "bell x 2^120", "two values", "two far values"),
    *("nine values", "masked 1 in 2", "masked 1 in 50", "masked ties", "flat", "peaked"),
    *("long tail", "clustered", "at mass zero", "denormal", "any bits", "ascending", "descending"),
)
TEMPERATURES = (0.0, 0.1, 0.5, 0.7, 0.8, 0.8, 1.0, 1.0, 1.0, 1.0, 1.3, 2.0, 10.0, 1e-5, 1e20)
FILTERS: dict[str, tuple[float, ...]] = {
    "temperature": TEMPERATURES,
    "top_k": (0, 0, 0, 1, 2, 3, 20, 40, 50, 64, 100, 1000),
    "top_p": (1.0, 1.0, 1.0, 0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999999),
    "min_p": (0.0, 0.0, 0.0, 1e-12, 0.001, 0.05, 0.1, 0.5, 1.0),
}
NUMBERS = (1e-9, 0.001, 0.05, 0.3, 0.9, 1, 2, 7, 50)
MORE_FILTERS = {
    one.name: (one.off[0],) * 4 + tuple(one.plain(x) for x in NUMBERS if one.low <= x <= one.high)
    for one in STAGE_PARAMETERS
    if one.name not in FILTERS
}
USUAL = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
HOT = {"temperature": 1.5, "top_p": 0.95}
NO_TOP_K = (OFF, OFF | {"top_p": 0.9}, OFF | {"min_p": 0.05}, OFF | HOT)
MIN_KEEPS = (1, 1, 2, 3, 7, 40)
PENALTIES = {
    "repetition_penalty": (1.0, 1.3, 0.5, 2.0),
    "frequency_penalty": (0.0, 0.5, 0.1, -0.25),
    "presence_penalty": (0.0, 0.7, -0.1, 2.0),
}
SCOPES = ("all", "prompt", "output", 5)
MODERATE = 2.0**100  # Logits below this can be adjusted without becoming infinite.
RNG = ("seed", "position", "stream")
INVERSE, RACE = {"draw": "inverse"}, {"draw": "race"}
LAST_POSITION, LAST_STREAM = 2**64 - 16, 2**32 - 64
# Near multiples of lanes and blocks, where an engine may take another path.
SIZES = (
    *(1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200),
    *(255, 256, 257, 300, 400, 511, 512, 513, 700, 1000, 1023, 1024, 1025, 1500, 2047, 2048),
    *(2049, 3000, 4095, 4096, 4097, 8193),
)
LARGE, LARGEST = 1 << 14, 1 << 18  # Models' vocabularies lie between these.
BATCH_SIZES, STEPS = (8, 8, 8, 9, 11, 13), 8
DRAWS, DRAWS_OF_LARGE = 32, 8
N_SMALL = 10
FIXED_RACES = (1, 5, 6, 7, 10, 12)  # Fixed cases that are drawn by race as well.
MODEL_ROWS = (
    (32_000, "float16", ("bell / 16", "bell / 16", "bell", "bell", "bell")),
    (151_936, "float32", ("bell / 16", "bell", "bell", "bell")),
    (128_256, "bfloat16", ("bell / 16",)),
)
SORTABLE = 2**18  # So many logits of large rows take little time to sort in Python.
MOST_ROWS, FINGERPRINT_ROWS = 64, 2  # Of the user's logits.


@dataclass(frozen=True)
class Case:
    """Rows, and the parameters of each.

    `name` is the expression of this module that makes the case. `rows` are float32, of shape (B,
    V), and a token can be drawn from each. `settings` are arguments of `sample`: arrays have an
    axis of length B, others hold for all rows. `dtype` is the narrowest that holds the rows. A
    sequence is one that a `Sampler` can draw: equal filters and seeds, successive positions.
    """

    name: str
    rows: Array
    kinds: tuple[str, ...]
    settings: dict[str, Any]
    draws: int
    dtype: str = "float32"
    is_sequence: bool = False

    @property
    def vocabulary(self) -> int:
        """The number of logits in a row."""
        return int(self.rows.shape[1])

    @property
    def is_large(self) -> bool:
        """Whether its rows are as long as a model's."""
        return self.vocabulary > LARGE

    @property
    def ops(self) -> set[Any]:
        """What its stages do; an engine may lack some."""
        return {BY_NAME[name].op for name in (*FILTERS, *MORE_FILTERS) if name in self.settings}

    @property
    def is_plain(self) -> bool:
        """Whether it has the filters of FILTERS, in their default order, and nothing else."""
        return self.settings.keys() == {*FILTERS, *RNG, *INVERSE} and not self.is_race

    @property
    def is_race(self) -> bool:
        """Whether tokens are drawn by race; else by the inverse method."""
        return bool(self.settings["draw"] == RACE["draw"])

    def by_race(self) -> Case:
        """Return the case with its tokens drawn by race, which is in the mode exact alone."""
        return replace(self, name=f"{self.name}.by_race()", settings=self.settings | RACE)

    @property
    def logprobs_modes(self) -> tuple[str, ...]:
        """Modes of log-probabilities to compare; of large rows one, as each takes long."""
        return ("processed",) if self.is_large else ("raw", "tempered", "processed")

    def take(self, rows: Any) -> Case:
        """Return some of the rows, which a slice or an index array picks, as a case."""
        of_rows = {name: v[rows] for name, v in self.settings.items() if isinstance(v, np.ndarray)}
        kinds = tuple(np.array(self.kinds)[rows].tolist())
        return replace(self, rows=self.rows[rows], kinds=kinds, settings=self.settings | of_rows)

    def few(self) -> Case:
        """Return the case; of large rows only the first, as many as take little time."""
        return self.take(slice(max(1, SORTABLE // self.vocabulary))) if self.is_large else self

    def row_settings(self, row: int) -> dict[str, Any]:
        """Return the settings of one row."""
        own = {name: v[row] for name, v in self.settings.items() if isinstance(v, np.ndarray)}
        numbers = {name: v.item() for name, v in own.items() if isinstance(v, np.generic)}
        return self.settings | own | numbers

    def filters(self, row: int) -> dict[str, Any]:
        """Return the stage parameters of one row."""
        own = self.row_settings(row)
        return {
            name: own[name] for name in (*reference.STAGES, "min_keep", "stages") if name in own
        }

    def rng(self, row: int) -> dict[str, int]:
        """Return seed, position and stream of one row's first draw."""
        return {name: int(self.settings[name][row]) for name in RNG}


class CaseMaker(RandomWords):
    """Random choices for a case, from the case's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.is_fixed = number < FIRST_RANDOM

    def rows(self, kinds: Sequence[str], size: int) -> Array:
        """Make a row of each kind."""
        return np.stack([KINDS[kind](self, size) for kind in kinds])

    def rows_of_any_kind(self, n_rows: int, size: int) -> dict[str, Any]:
        """Make rows; in each third case as another dtype holds them."""
        pool = FIXED_KINDS if self.is_fixed else tuple(KINDS)
        kinds = tuple(self.pick(pool) for _ in range(n_rows))
        rows, dtype = self.rows(kinds, size), self.pick(("float32", "float16", "bfloat16"))
        if dtype == "float16" and (halves := as_float16(rows)) is not None:
            return {"kinds": kinds, "rows": halves, "dtype": dtype}
        if dtype != "float32":
            rows, dtype = as_bfloat16(rows), "bfloat16"
        return {"kinds": kinds, "rows": rows, "dtype": dtype}

    def rng(self) -> dict[str, int]:
        """Pick small numbers in one half of the cases, else any, leaving streams for more draws."""
        seed, position, stream = (int(word) for word in self.words(3))
        if self.below(2):
            return {"seed": seed % 1000, "position": position % 1000, "stream": stream % 8}
        position, stream = min(position, LAST_POSITION), stream % LAST_STREAM
        return {"seed": seed, "position": position, "stream": stream}

    def record(self) -> dict[str, Any]:
        """Pick filters, seed, position and stream of a row."""
        if self.below(5) == 0:
            return USUAL | self.rng()
        return {name: self.pick(pool) for name, pool in FILTERS.items()} | self.rng()

    def column(self, pool: Sequence[Any], n_rows: int, is_sequence: bool) -> Array:
        """Pick a value for each row, one for all rows of a sequence."""
        picked = [self.pick(pool) for _ in range(n_rows)]
        return np.array(picked[:1] * n_rows if is_sequence else picked)

    def settings(self, rows: Array, is_sequence: bool, first: Sequence[Any] = ()) -> dict[str, Any]:
        """Pick the settings of all rows; the first row's filters from `first`, if there are any."""
        of = len(rows), is_sequence
        records = [self.record() for _ in (rows[:1] if is_sequence else rows)]
        if is_sequence:
            step = records[0] | {"stream": 0}
            records = [step | {"position": step["position"] + n} for n in range(len(rows))]
        if first:
            records[0] |= self.pick(first)
        settings, more = columns(records) | INVERSE, {} if self.is_fixed else MORE_FILTERS
        if self.below(3) == 0:
            settings["min_keep"], stages = self.column(MIN_KEEPS, *of), (*FILTERS, *more)
            settings["stages"] = tuple(stages[at] for at in self.permutation(len(stages)))
        is_moderate = np.all((np.abs(rows) < MODERATE) | reference.is_minus_inf(rows))
        if not is_sequence and self.below(2) == 0 and is_moderate:
            settings |= self.adjustments(rows)
            settings |= {name: self.column(pool, *of) for name, pool in PENALTIES.items()}
            settings |= {f"{name[:-8]}_scope": self.pick(SCOPES) for name in PENALTIES}
        if more and self.below(3) == 0:
            settings |= {name: self.column(pool, *of) for name, pool in more.items()}
        return settings

    def adjustments(self, rows: Array) -> dict[str, Any]:
        """Make a mask, a bias and histories, which leave each row its largest logit."""
        n_rows, size = rows.shape
        mask = ~self.one_in(4, n_rows * size).reshape(rows.shape)
        mask[np.arange(n_rows), rows.argmax(axis=1)] = True
        biased = self.permutation(size)[:5]
        bias = (self.words(len(biased)) % np.uint64(2000)).astype(np.float32) / np.float32(256) - 4
        history = (self.words(n_rows * 16) % np.uint64(size)).astype(np.int64).reshape(n_rows, 16)
        parts = {"prompt": history[:, :7], "output": history[:, 7:]}
        return {"mask": mask, "bias": (biased, bias), **parts}


def columns(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an array for each name, from a record of each row."""
    dtypes = {name: np.uint64 if name in RNG else None for name in records[0]}
    return {name: np.array([one[name] for one in records], dtypes[name]) for name in dtypes}


def small_case(number: int) -> Case:
    """Make a case of several rows of any kinds from a number."""
    make = CaseMaker(number)
    is_sequence = make.below(3) == 0
    n_rows = STEPS if is_sequence else make.pick(BATCH_SIZES)
    of = make.rows_of_any_kind(n_rows, make.pick(SIZES))
    settings = make.settings(of["rows"], is_sequence)
    return Case(
        f"small_case({number})", settings=settings, draws=DRAWS, is_sequence=is_sequence, **of
    )


def large_case(number: int) -> Case:
    """Make a case of three rows of any kinds, as long as a model's, from a number."""
    make = CaseMaker(number)
    of = make.rows_of_any_kind(3, LARGE + 1 + make.below(LARGEST - LARGE))
    settings = make.settings(of["rows"], False, NO_TOP_K)
    return Case(f"large_case({number})", settings=settings, draws=DRAWS_OF_LARGE, **of)


def model_case(number: int) -> Case:
    """Make a fixed case of a model's vocabulary: some rows without top_k, the fifth with USUAL."""
    make, (size, dtype, kinds) = CaseMaker(number), MODEL_ROWS[number - N_SMALL]
    rows = make.rows(kinds, size)
    if dtype != "float32":
        rows = as_bfloat16(rows) if dtype == "bfloat16" else rows.astype(dtype).astype(np.float32)
    records = [filters | make.rng() for filters, _ in zip((*NO_TOP_K, USUAL), kinds, strict=False)]
    settings = columns(records) | INVERSE
    return Case(f"model_case({number})", rows, kinds, settings, DRAWS_OF_LARGE, dtype)


def flat_case(draws: int) -> Case:
    """Make a case of a flat distribution, where a small error of the total moves many draws."""
    kinds, settings = ("bell / 16",), columns([OFF | dict.fromkeys(RNG, 0)]) | INVERSE
    return Case(f"flat_case({draws})", CaseMaker(0).rows(kinds, 151_936), kinds, settings, draws)


def logits_case(values: Array, chosen: Sequence[int], number: int) -> Case:
    """Make a case of some of the user's rows, with parameters from a number."""
    make = CaseMaker(number)
    is_sequence = len(chosen) > 1 and make.below(2) == 0
    rows = np.stack([reference.widen(values[row]) for row in chosen])
    kinds = tuple(f"row {row} of the logits" for row in chosen)
    dtype = {"f": "float32", "e": "float16"}.get(values.dtype.char, "bfloat16")
    name, settings = f"logits_case(logits, {[*chosen]}, {number})", make.settings(rows, is_sequence)
    return Case(name, rows, kinds, settings, DRAWS_OF_LARGE, dtype, is_sequence)


def fixed_cases() -> list[Case]:
    """Make the cases of the fingerprint: the same in every run, on every machine."""
    models = range(N_SMALL, N_SMALL + len(MODEL_ROWS))
    inverse = [*map(small_case, range(N_SMALL)), *map(model_case, models)]
    return [*inverse, *(inverse[at].by_race() for at in FIXED_RACES)]


def fixed_logits_cases(values: Array, valid: Sequence[int]) -> list[Case]:
    """Make the cases of the fingerprint of the user's rows."""
    chosen = spread(valid, FINGERPRINT_ROWS)
    return [logits_case(values, [row], number) for number, row in enumerate(chosen)]


def valid_rows(values: Array) -> list[int]:
    """Return rows from which a token can be drawn, at most MOST_ROWS."""
    rows = spread(range(len(values)), MOST_ROWS)
    return [b for b in rows if reference.status(reference.widen(values[b])) == reference.OK]


def spread(rows: Sequence[int], most: int) -> list[int]:
    """Return rows; of many some, evenly spread."""
    count = min(most, len(rows))
    return [rows[at * len(rows) // count] for at in range(count)]
