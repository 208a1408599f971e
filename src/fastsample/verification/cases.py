"""Cases: rows with the parameters of each, and where they came from.

The fixed cases are the same everywhere and in every run; what they give is the fingerprint. A
random case is made from one number, which the report tells, so that anyone can make it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines import reference

from .rows import KINDS, Dice, as_bfloat16, as_float16

# Beside, at and past the numbers of lanes and tokens at which an engine may take another path.
SIZES = (
    *(1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200),
    *(255, 256, 257, 300, 400, 511, 512, 513, 700, 1000, 1023, 1024, 1025, 1500, 2047, 2048),
    *(2049, 3000, 4095, 4096, 4097, 8193),
)
LARGE_SIZES = (1 << 14, 1 << 18)
"""Models' vocabularies lie between these; a row above the first is called large."""
ROWS = (8, 8, 8, 9, 11, 13)
DRAWS = 32
FEW_DRAWS = 8
FEW_LOGITS = 2**18
"""So many in large rows take little time to sort in Python, or to draw from by small operations."""
STEPS = 8
LAST_POSITION, LAST_STREAM = 2**64 - 16, 2**32 - 64
TEMPERATURES = (0.0, 0.1, 0.5, 0.7, 0.8, 0.8, 1.0, 1.0, 1.0, 1.0, 1.3, 2.0, 10.0, 1e-5, 1e20)
TOP_KS = (0, 0, 0, 1, 2, 3, 20, 40, 50, 64, 100, 1000)
TOP_PS = (1.0, 1.0, 1.0, 0.0, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999999)
MIN_PS = (0.0, 0.0, 0.0, 1e-12, 0.001, 0.05, 0.1, 0.5, 1.0)
USUAL = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
FILTERS = ("temperature", "top_k", "top_p", "min_p")
FORMS = ("raw", "tempered", "processed")
CHAIN = ("min_keep", "stages")
PLACE = ("seed", "position", "stream")

WHOLE_ROW: tuple[dict[str, float], ...] = (
    {},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"temperature": 1.5, "top_p": 0.95},
)
"""Filters without top_k, so that every logit of a row counts."""
MIN_KEEPS = (1, 1, 2, 3, 7, 40)
SCOPES = ("all", "prompt", "output", 5)
TAME = 2.0**100
"""Logits below this can be adjusted without a row becoming bad."""

N_FIXED = 10
LARGE = (
    (32_000, "float16", ("bell / 16", "bell / 16", "bell", "bell", "bell")),
    (151_936, "float32", ("bell / 16", "bell", "bell", "bell")),
    (128_256, "bfloat16", ("bell / 16",)),
)
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
    settings : dict
        Arguments of `sample`. Arrays have an axis of length B: the filters, and the seed, position
        and stream of the first draw; in some cases `min_keep`, a mask, histories and penalties.
        Anything else, as `stages` and a bias, holds for all rows.
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
    settings: dict[str, Any]
    draws: int
    dtype: str
    is_sequence: bool

    @property
    def vocabulary(self) -> int:
        """How many logits a row has."""
        return int(self.rows.shape[1])

    @property
    def is_large(self) -> bool:
        """Whether its rows are as long as a model's."""
        return self.vocabulary > LARGE_SIZES[0]

    @property
    def forms(self) -> tuple[str, ...]:
        """Of which laws log-probabilities are told; of large rows one, as each takes long."""
        return FORMS[-1:] if self.is_large else FORMS

    @property
    def is_adjusted(self) -> bool:
        """Whether it has a mask, a bias and penalties."""
        return "mask" in self.settings

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the four filters, in their usual order, decides what is kept."""
        return not self.is_adjusted and "stages" not in self.settings

    def few(self) -> Case:
        """The case; of large rows so many of the first ones as take little time, one at least."""
        first = slice(max(1, FEW_LOGITS // self.vocabulary) if self.is_large else None)
        settings = rows_of(self.settings, first)
        return replace(self, rows=self.rows[first], kinds=self.kinds[first], settings=settings)

    def filters_of(self, row: int) -> dict[str, Any]:
        """The filters of one row, as keywords."""
        own = row_of(self.settings, row)
        return {name: own[name] for name in (*FILTERS, *CHAIN) if name in own}

    def place_of(self, row: int) -> dict[str, int]:
        """Seed, position and stream of one row's first draw."""
        return {name: int(self.settings[name][row]) for name in ("seed", "position", "stream")}


def row_of(settings: dict[str, Any], row: int) -> dict[str, Any]:
    """The settings of one row: its scalars, and its rows of whatever has more axes."""
    return {name: _at(value, row) for name, value in settings.items()}


def _at(value: Any, row: int) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return value[row].item() if value.ndim == 1 else value[row]


def rows_of(settings: dict[str, Any], chosen: Any) -> dict[str, Any]:
    """The settings of some of the rows, in that order."""
    return {
        name: value[chosen] if isinstance(value, np.ndarray) else value
        for name, value in settings.items()
    }


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
    return {"seed": seed, "position": min(position, LAST_POSITION), "stream": stream % LAST_STREAM}


def _records(dice: Dice, n_rows: int, is_sequence: bool) -> list[dict[str, Any]]:
    if not is_sequence:
        return [{**_filters(dice), **_place(dice)} for _ in range(n_rows)]
    chosen, place = _filters(dice), {**_place(dice), "stream": 0}
    first = place["position"]
    return [{**chosen, **place, "position": first + step} for step in range(n_rows)]


def _settings(records: list[dict[str, Any]]) -> dict[str, Any]:
    settings = {name: np.array([record[name] for record in records]) for name in FILTERS}
    for name in PLACE:
        settings[name] = np.array([record[name] for record in records], dtype=np.uint64)
    return settings


def _chain(dice: Dice, n_rows: int, is_sequence: bool) -> dict[str, Any]:
    """How many tokens each filter leaves at least, and another order of the stages."""
    least = [dice.pick(MIN_KEEPS) for _ in range(n_rows)]
    stages = tuple(FILTERS[at] for at in dice.permutation(len(FILTERS)))
    return {"min_keep": np.array(least[:1] * n_rows if is_sequence else least), "stages": stages}


def _adjustments(dice: Dice, rows: NDArray[np.float32]) -> dict[str, Any]:
    """A mask, a bias and penalties, which leave each row its largest logit."""
    n_rows, size = rows.shape
    mask = dice.words(n_rows * size).reshape(rows.shape) % np.uint64(4) != 0
    mask[np.arange(n_rows), rows.argmax(axis=1)] = True
    biased = dice.permutation(size)[:5]
    bias = (dice.words(len(biased)) % np.uint64(2000)).astype(np.float32) / np.float32(256) - 4
    histories = (dice.words(n_rows * 16) % np.uint64(size)).astype(np.int64).reshape(n_rows, 16)
    costs = {
        "repetition_penalty": (1.0, 1.3, 0.5, 2.0),
        "frequency_penalty": (0.0, 0.5, 0.1, -0.25),
        "presence_penalty": (0.0, 0.7, -0.1, 2.0),
    }
    return {
        "mask": mask,
        "bias": (biased, bias),
        "prompt": histories[:, :7],
        "output": histories[:, 7:],
        **{name: np.array([dice.pick(pool) for _ in rows]) for name, pool in costs.items()},
        "repetition_scope": dice.pick(SCOPES),
        "frequency_scope": dice.pick(SCOPES),
        "presence_scope": dice.pick(SCOPES),
    }


def _is_tame(rows: NDArray[np.float32]) -> bool:
    return bool(np.all((np.abs(rows) < TAME) | reference.is_minus_inf(rows)))


def _more(dice: Dice, rows: NDArray[np.float32], is_sequence: bool) -> dict[str, Any]:
    """What every third case has besides filters, and where it can every other."""
    settings = _chain(dice, len(rows), is_sequence) if dice.below(3) == 0 else {}
    if not is_sequence and dice.below(2) == 0 and _is_tame(rows):
        settings |= _adjustments(dice, rows)
    return settings


def _halves(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows.astype(np.float16).astype(np.float32)


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
    settings = _settings(_records(dice, n_rows, is_sequence)) | _more(dice, rows, is_sequence)
    return Case(f"random_case({number})", rows, kinds, settings, DRAWS, dtype, is_sequence)


def large_case(number: int) -> Case:
    """A case of a few rows of any kinds, as long as a model's, made from one number.

    Examples
    --------
    >>> large_case(3).vocabulary > 16_384
    True
    """
    dice = Dice(number)
    least, most = LARGE_SIZES
    size = least + 1 + dice.below(most - least)
    kinds = tuple(dice.pick(list(KINDS)) for _ in range(3))
    rows, dtype = _narrowed(dice, np.stack([KINDS[kind](dice, size) for kind in kinds]))
    records = _records(dice, len(rows), False)
    records[0] |= OFF | dice.pick(WHOLE_ROW)
    settings = _settings(records) | _more(dice, rows, False)
    return Case(f"large_case({number})", rows, kinds, settings, FEW_DRAWS, dtype, False)


def _model_case(number: int, size: int, dtype: str, kinds: tuple[str, ...]) -> Case:
    """Rows of a model's vocabulary: whole ones, then one by the usual chain."""
    dice = Dice(number)
    rows = np.stack([KINDS[kind](dice, size) for kind in kinds])
    narrow: dict[str, Any] = {"float16": _halves, "bfloat16": as_bfloat16}
    rows = narrow[dtype](rows) if dtype in narrow else rows
    filters = [*({**OFF, **whole} for whole in WHOLE_ROW), USUAL]
    places = [_place(dice) for _ in kinds]
    records = [{**chosen, **place} for chosen, place in zip(filters, places, strict=False)]
    name, settings = f"fixed_cases()[{number}]", _settings(records)
    return Case(name, rows, kinds, settings, FEW_DRAWS, dtype, False)


def wide_case(draws: int) -> Case:
    """Draws from a wide law, where a total that is off by little moves many of them."""
    dice = Dice(0)
    row = KINDS["bell / 16"](dice, 151_936)
    settings = _settings([{**OFF, **dict.fromkeys(PLACE, 0)}])
    name, kinds = f"wide_case({draws})", ("bell / 16",)
    return Case(name, row[None], kinds, settings, draws, "float32", False)


def fixed_cases() -> list[Case]:
    """The cases of the fingerprint: the same in every run, on every machine."""
    small = [random_case(number) for number in range(N_FIXED)]
    return [*small, *(_model_case(N_FIXED + at, *large) for at, large in enumerate(LARGE))]


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
    settings = _settings(_records(dice, len(rows), is_sequence))
    settings |= _more(dice, rows, is_sequence)
    dtype = {"f": "float32", "e": "float16"}.get(values.dtype.char, "bfloat16")
    name = f"given_case(logits, {list(chosen)}, {number})"
    kinds = tuple(f"given, row {row}" for row in chosen)
    return Case(name, rows, kinds, settings, FEW_DRAWS, dtype, is_sequence)


def cases_of(values: NDArray[Any], good: Sequence[int]) -> list[Case]:
    """The fixed cases of the user's rows: some, evenly spread, for a fingerprint of their own."""
    count = min(ROWS_OF_FILE, len(good))
    chosen = [good[at * len(good) // count] for at in range(count)]
    return [given_case(values, [row], number) for number, row in enumerate(chosen)]
