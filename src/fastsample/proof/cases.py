"""Cases: rows with the parameters of each, and where they came from.

The fixed cases are the same everywhere and in every run; what they give is the fingerprint. A
random case is made from one number, which the report tells, so that anyone can make it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample import reference

from .rows import KINDS, Dice, as_bfloat16, as_float16

# Beside, at and past the numbers of lanes and tokens at which an engine may take another path.
SIZES = (
    *(1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200),
    *(255, 256, 257, 300, 400, 511, 512, 513, 700, 1000, 1023, 1024, 1025, 1500, 2047, 2048),
    *(2049, 3000, 4095, 4096, 4097, 8193),
)
ROWS = (8, 8, 8, 9, 11, 13)
DRAWS = 64
FEW_DRAWS = 8
STEPS = 8
TEMPERATURES = (0.0, 0.1, 0.5, 0.7, 0.8, 0.8, 1.0, 1.0, 1.0, 1.0, 1.3, 2.0, 10.0, 1e-5, 1e20)
TOP_KS = (0, 0, 0, 1, 2, 3, 20, 40, 50, 64, 100, 1000)
TOP_PS = (1.0, 1.0, 1.0, 0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999999)
MIN_PS = (0.0, 0.0, 0.0, 1e-12, 0.001, 0.05, 0.1, 0.5, 1.0)
USUAL = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
FILTERS = ("temperature", "top_k", "top_p", "min_p")

N_FIXED = 10
LARGE = ((32_000, ("bell", "bell / 16")), (151_936, ("bell",)))
ROWS_OF_FILE = 2
MOST_ROWS = 64


@dataclass(frozen=True)
class Case:
    """Rows, and the parameters of each.

    Attributes
    ----------
    name : str
        The expression of this room that makes the case again.
    rows : float32 array of shape (B, V)
        None of them is bad.
    kinds : tuple of str
        What each row is like.
    settings : dict of arrays of shape (B,)
        The filters, and the seed, position and stream of the first draw.
    draws : int
        How many tokens are drawn of each row, on the streams from the first on.
    dtype : str
        The narrowest dtype that holds the rows: "float32", "float16" or "bfloat16".
    is_sequence : bool
        Whether the rows are steps of one sequence: equal filters, one seed, stream 0, positions
        that go up by one. Only then a `Sampler` can draw the same.
    """

    name: str
    rows: NDArray[np.float32]
    kinds: tuple[str, ...]
    settings: dict[str, NDArray[Any]]
    draws: int
    dtype: str
    is_sequence: bool

    @property
    def vocabulary(self) -> int:
        """How many logits a row has."""
        return int(self.rows.shape[1])

    def filters_of(self, row: int) -> dict[str, Any]:
        """The filters of one row, as keywords."""
        return {name: self.settings[name][row].item() for name in FILTERS}

    def place_of(self, row: int) -> dict[str, int]:
        """Seed, position and stream of one row's first draw."""
        return {name: int(self.settings[name][row]) for name in ("seed", "position", "stream")}


def _filters(dice: Dice) -> dict[str, Any]:
    if dice.below(5) == 0:
        return USUAL
    pools = (TEMPERATURES, TOP_KS, TOP_PS, MIN_PS)
    return {name: dice.pick(pool) for name, pool in zip(FILTERS, pools, strict=True)}


def _place(dice: Dice) -> dict[str, int]:
    """Small numbers in one half of the rows, any in the other; there is room for more draws."""
    seed, position, stream = (int(word) for word in dice.words(3))
    if dice.below(2):
        return {"seed": seed % 1000, "position": position % 1000, "stream": stream % 8}
    return {"seed": seed, "position": position >> 1, "stream": stream & 0x7FFFFFFF}


def _settings(dice: Dice, n_rows: int, is_sequence: bool) -> dict[str, NDArray[Any]]:
    if is_sequence:
        chosen, place = _filters(dice), {**_place(dice), "stream": 0}
        first = place["position"]
        records = [{**chosen, **place, "position": first + step} for step in range(n_rows)]
    else:
        records = [{**_filters(dice), **_place(dice)} for _ in range(n_rows)]
    settings = {name: np.array([record[name] for record in records]) for name in FILTERS}
    for name in ("seed", "position", "stream"):
        settings[name] = np.array([record[name] for record in records], dtype=np.uint64)
    return settings


def _narrowed(dice: Dice, rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], str]:
    """The rows as one of the dtypes holds them: every third case each."""
    dtype = dice.pick(("float32", "float16", "bfloat16"))
    if dtype == "float16":
        halves = [as_float16(row) for row in rows]
        fitting = [half for half in halves if half is not None]
        if len(fitting) == len(rows):
            return np.stack(fitting), dtype
    if dtype == "float32":
        return rows, dtype
    return as_bfloat16(rows), "bfloat16"


def random_case(number: int) -> Case:
    """A case of several rows of any kinds, made from one number.

    Examples
    --------
    >>> random_case(3).rows.tobytes() == random_case(3).rows.tobytes()
    True
    """
    dice = Dice(number)
    is_sequence = dice.below(3) == 0
    n_rows = STEPS if is_sequence else dice.pick(ROWS)
    size = dice.pick(SIZES)
    kinds = tuple(dice.pick(list(KINDS)) for _ in range(n_rows))
    rows, dtype = _narrowed(dice, np.stack([KINDS[kind](dice, size) for kind in kinds]))
    settings = _settings(dice, n_rows, is_sequence)
    return Case(f"random_case({number})", rows, kinds, settings, DRAWS, dtype, is_sequence)


def _large_case(number: int, size: int, kinds: tuple[str, ...]) -> Case:
    """Rows of a vocabulary as models have it, the first by the usual chain."""
    dice = Dice(number)
    rows = np.stack([KINDS[kind](dice, size) for kind in kinds])
    settings = _settings(dice, len(rows), False)
    for name, value in USUAL.items():
        settings[name][0] = value
    name = f"fixed_cases()[{number}]"
    return Case(name, rows, kinds, settings, FEW_DRAWS, "float32", False)


def wide_case(draws: int) -> Case:
    """Draws from a wide law, where a total that is off by little moves many of them."""
    dice = Dice(0)
    row = KINDS["bell / 16"](dice, 151_936)
    settings = {name: np.array([value]) for name, value in OFF.items()}
    settings |= {name: np.zeros(1, np.uint64) for name in ("seed", "position", "stream")}
    name, kinds = f"wide_case({draws})", ("bell / 16",)
    return Case(name, row[None], kinds, settings, draws, "float32", False)


def fixed_cases() -> list[Case]:
    """The cases of the fingerprint: the same in every run, on every machine."""
    small = [random_case(number) for number in range(N_FIXED)]
    return [*small, *(_large_case(N_FIXED + at, *large) for at, large in enumerate(LARGE))]


def good_rows(values: NDArray[Any]) -> list[int]:
    """Numbers of the rows from which a token can be drawn; of many rows, some evenly spread."""
    count = min(MOST_ROWS, len(values))
    looked_at = [at * len(values) // count for at in range(count)]
    return [b for b in looked_at if reference.status(reference.widen(values[b])) == reference.OK]


def given_case(values: NDArray[Any], chosen: Sequence[int], number: int) -> Case:
    """Some of the user's rows, with random parameters; several may be steps of a sequence."""
    dice = Dice(number)
    is_sequence = len(chosen) > 1 and dice.below(2) == 0
    rows = np.stack([reference.widen(values[row]) for row in chosen])
    settings = _settings(dice, len(rows), is_sequence)
    dtype = {"f": "float32", "e": "float16"}.get(values.dtype.char, "bfloat16")
    name, kinds = f"given_case(logits, {list(chosen)}, {number})", ("given",) * len(rows)
    return Case(name, rows, kinds, settings, FEW_DRAWS, dtype, is_sequence)


def cases_of(values: NDArray[Any], good: Sequence[int]) -> list[Case]:
    """The fixed cases of the user's rows: some, evenly spread, for a fingerprint of their own."""
    count = min(ROWS_OF_FILE, len(good))
    chosen = [good[at * len(good) // count] for at in range(count)]
    return [given_case(values, [row], number) for number, row in enumerate(chosen)]
