"""The questions of tests/golden/rule-2-race.json, which `make_golden.py` writes."""

from __future__ import annotations

import math
from typing import Any

from fastsample.engines import reference
from fastsample.engines.reference.engine import filters
from fastsample.engines.reference.logits_processors import adjusted_row
from tests.support.engines import sha256
from tests.support.golden_races import answer_of_clock, answer_of_race
from tests.support.golden_requests import make_golden_request, values_of
from tests.support.golden_rows import words

SCALE_ONE = 1.4426950216293335  # the temperature at which masses are 2^logit
NO_PROCESSORS = dict.fromkeys(("mask", "bias", "prompt", "output"))
LARGE = 2**17  # longer rows come in fewer kinds


def place_of(number: int) -> dict[str, int]:
    """Seed, position and stream of a case: any bits, small ones in every third case."""
    five = words(5, number, 78).tolist()
    if number % 3 == 0:
        return {"seed": number, "position": five[2] % 100, "stream": five[4] % 4}
    seed, position = five[0] | five[1] << 32, five[2] | five[3] << 32
    return {"seed": seed, "position": position, "stream": min(five[4], 2**32 - 8)}


def question(number: int, row: dict[str, Any], settings: dict[str, Any], **more: Any) -> Any:
    """One case; `row` has the recipe and the size."""
    full = {"seed": number, "dtype": "float32", **row}
    return {
        "row": {**full, "sha256": sha256(values_of(full))},
        "vocabulary": full["size"],
        "settings": {"draw": "race", **place_of(number), **settings},
        **NO_PROCESSORS,
        **more,
    }


# ---------------------------------------------------------------- sizes and levels

PREFIXES: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8},
    {"top_p": 0.9},
    {"temperature": 1.5, "top_p": 0.95},
    {"top_k": 1000},
)


def sizes() -> list[int]:
    """V on both sides of each power of two, up to the largest."""
    around = {2**v + d for v in range(1, 23) for d in (-1, 0, 1)}
    return [size for size in sorted(around) if size <= 2**22]


def size_questions() -> list[Any]:
    """At every size H or H + 1 heavy tokens, or one, for every q; and a bell."""
    questions = []
    for n, size in enumerate(sizes()):
        most = math.isqrt(2 ** max(1, (size - 1).bit_length()) >> 5)
        heavy = (1, most + 1, max(1, most))[n % 3]
        row = {"recipe": f"heavy {heavy}", "size": size}
        settings: dict[str, Any] = {} if n % 2 else {"temperature": 1.25}
        questions.append(question(2 * n, row, settings))
        if size <= LARGE:
            row = {"recipe": "bell", "size": size}
            questions.append(question(2 * n + 1, row, PREFIXES[n % len(PREFIXES)]))
    for v in range(1, 23):
        row = {"recipe": "heavy 1", "size": 2 ** (v - 1) + 1}
        questions.append(question(200 + v, row, {}))
    return questions


# ---------------------------------------------------------------- settings

ROWS = ("bell", "nine values", "masked 1 in 10", "constant", "heavy 40", "bell / 16")
ROW_SIZES = (1000, 1025, 4096, 2049)
BEFORE = ("top_k", "top_p", "min_p", "epsilon_cutoff", "temperature")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    {"top_k": 127},
    {"top_k": 128},
    {"top_k": 128, "min_keep": 200},
    {"top_k": 999, "temperature": 0.7},
    {"top_p": 0.5 - 2.0**-25},
    {"top_p": 0.5},
    {"top_p": 0.5 - 2.0**-27},
    {"top_p": 0.97, "temperature": 3.0},
    {"top_p": 0.0, "min_keep": 3},
    {"min_p": 2.0**-60, "temperature": 0.7, "stages": BEFORE},
    {"min_p": 2.0**-59, "temperature": 0.7, "stages": BEFORE},
    {"min_p": 0.05, "temperature": 1.3},
    {"min_p": 0.9, "min_keep": 100},
    {"epsilon_cutoff": 3e-4, "temperature": 1.1},
    {"epsilon_cutoff": 2.0**-60, "temperature": 1.1, "stages": BEFORE},
    {"top_n_sigma": 1.5},
    {"top_n_sigma": 1.5, "temperature": 0.6},
    {"typical_p": 0.8},
    {"top_p": 0.8, "temperature": 1.7, "stages": BEFORE},
    {"temperature": 0.0},
    {"temperature": 0.05},
)


def settings_questions() -> list[Any]:
    """Settings on both sides of the borders between listed and not, on every kind of row."""
    return [
        question(300 + n, {"recipe": recipe, "size": ROW_SIZES[n % 4]}, settings)
        for n, (recipe, settings) in enumerate(
            (recipe, settings) for recipe in ROWS for settings in SETTINGS
        )
    ]


PROCESSED: tuple[dict[str, Any], ...] = (
    {"temperature": 0.9, "repetition_penalty": 1.3},
    {"top_p": 0.9, "frequency_penalty": 0.375, "presence_penalty": -0.5},
    {"top_k": 20, "repetition_penalty": 0.5},
    {"min_p": 0.02},
)


def processed_questions() -> list[Any]:
    """Masks, biases, histories, dtypes and padding."""
    questions = []
    for n in range(24):
        number, size = 500 + n, (40, 129, 300, 1030)[n % 4]
        dtype = ("float32", "float16", "bfloat16")[n % 3]
        more = {
            "vocabulary": size - n % 2 * 7,
            "mask": {"bans_one_in": 3, "bits": n % 4 == 1, "columns": size - 7} if n % 5 else None,
            "bias": [[0, 2.5], [3, -1.25], [5, "-inf"]] if n % 3 else [],
            "prompt": [0, 1, 2, 3, 3],
            "output": [5, 5, 5, 7, 0],
        }
        row = {"recipe": ("bell", "bell / 16")[n % 2], "size": size, "dtype": dtype}
        questions.append(question(number, row, PROCESSED[n % 4], **more))
    for n, recipe in enumerate(("empty", "one nan", "one inf")):
        questions.append(question(540 + n, {"recipe": recipe, "size": 50}, {}))
    return questions


# ---------------------------------------------------------------- rare ends

TIES = (
    (724, "-0x1.c0ddbap-3", "-0x1.a01eaap+0"),
    (798, "-0x1.8de9aap-3", "-0x1.239e92p+0"),
    (1035, "-0x1.203b42p-1", "-0x1.3fb872p-4"),
    (2052, "-0x1.93852cp-1", "-0x1.015a56p-3"),
)
"""Positions of seed 20, and logits with which tokens 1 and 2 arrive first, both at one time."""


def tie_questions() -> list[Any]:
    return [
        question(
            560 + n,
            {"recipe": "given", "size": 4, "logits": ["0x0p+0", one, other, "-inf"]},
            {
                "temperature": SCALE_ONE,
                "top_k": 3,
                "seed": 20,
                "position": position,
                "stream": 0,
            },
        )
        for n, (position, one, other) in enumerate(TIES)
    ]


OPEN: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("constant", 2**22, {"top_k": 128}),
    ("constant", 2**20, {"top_k": 128}),
    ("heavy 65", 2**17, {"top_p": 0.5}),
    ("heavy 91", 2**18, {}),
)
"""Rows whose races the limit of arrivals leaves open now and then."""


def open_questions() -> list[Any]:
    """Each on the first stream where that happens."""
    questions = []
    for n, (recipe, size, settings) in enumerate(OPEN):
        place = {"seed": 30 + n, "position": 7, "stream": 0}
        row = {"recipe": recipe, "size": size}
        found = question(570 + n, row, {**settings, **place})
        request = make_golden_request(found)
        logits = adjusted_row(request, 0)
        seen = reference.trace(logits, **filters(request.plan[0]))
        race = reference.prepare(logits, seen, listed=False)
        stream = next(
            stream
            for stream in range(2000)
            if reference.decide(race, reference.Place(30 + n, 7, stream)) is None
        )
        questions.append(question(570 + n, row, {**settings, **place, "stream": stream}))
    return questions


def later_questions() -> list[Any]:
    """A filter that came after the others."""
    settings = ({"top_a": 0.2}, {"top_a": 1e-4, "temperature": 1.4, "min_keep": 20})
    return [
        question(580 + n, {"recipe": recipe, "size": ROW_SIZES[n % 4]}, one)
        for n, (recipe, one) in enumerate((recipe, one) for recipe in ROWS for one in settings)
    ]


# ---------------------------------------------------------------- the file


def clock_questions() -> list[dict[str, int]]:
    indices = (0, 1, 2, 255, 256, 32_767, 2**16, 2**22 - 1)
    return [
        {**place_of(600 + n), "purpose": 1 + n % 2, "index": indices[n // 2 % 8]} for n in range(64)
    ]


def race_cases() -> list[dict[str, Any]]:
    questions = [
        *size_questions(),
        *settings_questions(),
        *processed_questions(),
        *tie_questions(),
        *open_questions(),
        *later_questions(),
    ]
    return [{**one, **answer_of_race(one)} for one in questions]


def clock_cases() -> list[dict[str, Any]]:
    return [{**one, **answer_of_clock(one)} for one in clock_questions()]
