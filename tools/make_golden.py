"""Write the golden files of the rule, from the reference alone.

    python tools/make_golden.py            write tests/golden/rule-*.json
    python tools/make_golden.py --check    fail when one of them would change

A case that changes is a change of the rule: it comes with a new rule version, and the old files
stay. New cases may be added to the end of a list: "cases" have rows, filters and a draw, "jobs" all
else that a request can have. rule-1-fixed.json has requests in the reduction "fixed",
rule-1-filters.json those with filters that came after the first four. All of these draw by the
inverse method, which rule 2 left as it was; rule-2-race.json has races, and clocks,
rule-2-distinct.json draws without replacement.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
sys.path.insert(0, str(ROOT))
INVERSE = 1  # the version of the rule whose files draw by the inverse method

from fastsample.engines import reference  # noqa: E402
from fastsample.engines.reference import softmax as reference_softmax  # noqa: E402
from tests.support import reference_rows  # noqa: E402
from tests.support.engines import Engine, make_output, sha256  # noqa: E402
from tests.support.golden_requests import (  # noqa: E402
    MODES,
    make_golden_request,
    sha256_of_logprobs,
    top_count_of,
    values_of,
)
from tests.support.golden_rows import HARD_RECIPES, RECIPES, make_row, words  # noqa: E402
from tools.golden_distinct import distinct_cases  # noqa: E402
from tools.golden_races import clock_cases, race_cases  # noqa: E402

SIZES = (1, 2, 3, 7, 15, 16, 17, 33, 64, 127, 129, 257, 1000, 1025, 2500, 4095, 4096, 4097, 5000)
WIDE = (("bell", 49_152), ("nine values", 49_152), ("bell", 151_936), ("masked 1 in 2", 151_936))
BAD = ("empty", "one nan", "one inf")

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""What the cases of the frozen files have where they set nothing: it must not change."""

FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 0.0},
    {"temperature": 1e-38, "top_p": 0.5},
    {"temperature": 0.05},
    {"temperature": 2.5, "min_p": 0.02},
    {"temperature": 1e6, "top_p": 0.37},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 129, "temperature": 1.5},
    {"top_k": 2048},
    {"top_p": 0.0},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 0.999999},
    {"top_p": 1 - 2**-24},
    {"min_p": 1e-30},
    {"min_p": 1e-9},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    {"temperature": 1.3, "top_p": 0.97, "min_p": 0.01},
)


def draw_settings(number: int) -> dict[str, int]:
    """Seed, position and stream of a case: any bits, small ones in every third case."""
    five = words(5, number, 77).tolist()
    if number % 3 == 0:
        return {"seed": number, "position": five[2] % 100, "stream": five[4] % 4}
    return {
        "seed": five[0] | five[1] << 32,
        "position": five[2] | five[3] << 32,
        "stream": five[4],
    }


def plain_cases() -> list[tuple[str, int, dict[str, Any]]]:
    """Every recipe under every set of filters, sizes in turn; bad rows under one."""
    cases = []
    for r, recipe in enumerate(RECIPES):
        for f, filters in enumerate(FILTERS[:2] if recipe in BAD else FILTERS):
            cases.append((recipe, SIZES[(5 * r + 3 * f) % len(SIZES)], filters))
    return cases


def wide_cases() -> list[tuple[str, int, dict[str, Any]]]:
    return [(recipe, size, FILTERS[f]) for recipe, size in WIDE for f in (0, 1, 10, 13, 18)]


def solve(number: int, recipe: str, size: int, filters: dict[str, Any]) -> dict[str, Any]:
    """One case with its answer."""
    row = make_row(recipe, size, number)
    settings = {**OFF, **filters, **draw_settings(number)}
    token, status = reference_rows.sample_row(row, **settings)
    case = {
        "row": {"recipe": recipe, "size": size, "seed": number, "sha256": sha256(row)},
        "settings": settings,
        "status": status,
        "token": token,
    }
    if status == reference.OK:
        tokens, masses = reference_rows.kept_set(row, **{**OFF, **filters})
        case["kept"] = len(tokens)
        case["total"] = int(masses.sum())
        case["kept_sha256"] = sha256(tokens, masses)
    return case


# ---------------------------------------------------------------- requests

REQUEST_ROWS = (
    "bell",
    "nine values",
    "bell x 16",
    "masked 1 in 2",
    "long tail",
    "denormal",
    "any bits",
)
REQUEST_SIZES = (40, 129, 300, 1000, 2049)
DTYPES = ("float32", "float16", "bfloat16")
LAST = ("top_k", "top_p", "min_p", "temperature")

REQUEST_SETTINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "stages": LAST},
    {"temperature": 1.4, "top_p": 0.8, "stages": ("top_p", "temperature")},
    {"temperature": 1.4, "min_p": 0.3, "top_k": 9, "stages": ("min_p", "temperature", "top_k")},
    {"top_p": 0.1, "min_keep": 5},
    {"min_p": 0.9, "top_k": 2, "min_keep": 20},
    {"stages": ()},
    {"temperature": 0.0},
    {"repetition_penalty": 1.3, "temperature": 0.9, "top_p": 0.9},
    {"repetition_penalty": 0.5, "repetition_scope": "prompt"},
    {"frequency_penalty": 0.375, "presence_penalty": -0.5, "top_k": 30},
    {
        "frequency_penalty": 1.5,
        "frequency_scope": 4,
        "presence_penalty": 2,
        "presence_scope": "all",
    },
    {"repetition_penalty": 1e30, "frequency_penalty": -3e38, "frequency_scope": "all"},
)
HISTORIES = (
    (None, None),
    ([0, 1, 2, 3, 3], [5, 5, 5, 7, 0]),
    ([], [9, 9, 11, 38]),
    ([4, 4, 4, 38], None),
)
BIASES = (
    [],
    [[0, 2.5], [3, -1.25], [5, "-inf"]],
    [[38, 40.0], [2, 0.0], [1, -3e38], [6, 2.0**-140]],
)


def request_questions() -> list[dict[str, Any]]:
    """Every kind of row under every settings; the rest in turn, at periods that share no factor."""
    questions = []
    for number, (recipe, settings) in enumerate(
        (recipe, settings) for recipe in REQUEST_ROWS for settings in REQUEST_SETTINGS
    ):
        size = REQUEST_SIZES[number % len(REQUEST_SIZES)]
        row = {"recipe": recipe, "size": size, "seed": number, "dtype": DTYPES[number % 3]}
        prompt, output = HISTORIES[number // 3 % 4]
        mask = {"bans_one_in": 3, "bits": number % 4 == 1, "columns": size - number % 7}
        questions.append(
            {
                "row": {**row, "sha256": sha256(values_of(row))},
                "vocabulary": size if number % 5 else size - 1,
                "settings": {**OFF, **settings, **draw_settings(number)},
                "mask": mask if number % 2 else None,
                "bias": BIASES[number // 2 % 3],
                "prompt": prompt,
                "output": output,
            }
        )
    return questions


def softmax_of(row: Any, temperature: float, reduction: str = "exact") -> dict[str, str] | None:
    """softmax, log_softmax and logsumexp of the unmodified row; None where one is undefined."""
    if reference.status(row) != reference.OK or temperature == 0:
        return None
    return {
        "softmax_sha256": sha256(reference_softmax.softmax(row, temperature, reduction)),
        "log_softmax_sha256": sha256(reference_softmax.log_softmax(row, temperature, reduction)),
        "logsumexp": reference_softmax.logsumexp(row, temperature, reduction).hex(),
    }


def solve_request(question: dict[str, Any]) -> dict[str, Any]:
    request = make_golden_request(question)
    engine = Engine("reference")
    draws = engine.run(request, make_output(1, draws=3))
    out = engine.run(request, make_output(1, modes=MODES, top_count=5))
    kept = engine.kept_sets(request)
    row = reference.widen(request.values[0, : request.vocabulary])
    return {
        **question,
        "status": int(draws.status[0]),
        "tokens": draws.tokens[0].tolist(),
        "kept": len(kept.tokens),
        "kept_sha256": sha256(kept.tokens, kept.masses, kept.logits),
        "logprobs": [value.hex() for value in out.logprobs.logprobs[:, 0, 0].tolist()],
        "ranks": out.logprobs.ranks[:, 0, 0].tolist(),
        "top_tokens": out.logprobs.top_tokens[:, 0].tolist(),
        "top_logprobs": [
            [x.hex() for x in form] for form in out.logprobs.top_logprobs[:, 0].tolist()
        ],
        "softmax": softmax_of(row, request.plan["temperature"][0]),
    }


# ---------------------------------------------------------------- fixed

FIXED_SIZES = (1, 15, 16, 17, 127, 129, 4095, 4096, 4097, 8191, 8193, 12_288, 32_000)
SCALE_ONE = 1.4426950216293335  # the temperature at which masses are 2^logit
FIXED_FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    {"temperature": SCALE_ONE, "top_p": 0.9},
    {"temperature": SCALE_ONE, "top_p": 0.999999},
    {"temperature": SCALE_ONE, "top_p": 1 - 2**-24},
    {"temperature": 2.5, "top_p": 0.99, "min_keep": 300},
    {"temperature": 0.0},
)
ON_EDGE: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("rounding", SCALE_ONE, ("0x1.fff484p-1", "0x1.fff86cp-1", "0x1.fffb5ap-1", "0x1.ffff44p-1")),
    ("faint", 1.0, ("0x1.f7a802p-1", "0x1.ffd7a2p-1", "0x1.fff8f2p-1", "0x1.ffffb4p-1")),
)
"""Nuclei whose end turns on how float64 rounds, or on what integers round: top_p of row 500."""


def fixed_questions() -> list[dict[str, Any]]:
    """Jobs as above, and rows around the borders of lanes and blocks."""
    rows: list[tuple[str, int, dict[str, Any], int | None]] = [
        (recipe, size, filters, None)
        for r, recipe in enumerate(("bell", "masked 1 in 10", "constant", *HARD_RECIPES))
        for f, filters in enumerate(FIXED_FILTERS)
        for size in (FIXED_SIZES[(5 * r + 2 * f) % 13], FIXED_SIZES[(5 * r + 2 * f + 6) % 13])
    ]
    rows += [
        (recipe, 151_936, {"temperature": temperature, "top_p": float.fromhex(top_p)}, 500)
        for recipe, temperature, top_ps in ON_EDGE
        for top_p in top_ps
    ]
    return [*request_questions(), *(plain_request(500 + n, *row) for n, row in enumerate(rows))]


def plain_request(
    number: int, recipe: str, size: int, filters: dict[str, Any], seed: int | None
) -> dict[str, Any]:
    """The question of a float32 row that nothing adjusts."""
    seed = number if seed is None else seed
    row = {"recipe": recipe, "size": size, "seed": seed, "dtype": "float32"}
    return {
        "row": {**row, "sha256": sha256(values_of(row))},
        "vocabulary": size,
        "settings": {**OFF, **filters, **draw_settings(number)},
        **dict.fromkeys(("mask", "bias", "prompt", "output")),
    }


def solve_fixed(question: dict[str, Any]) -> dict[str, Any]:
    request = make_golden_request(question, "fixed")
    engine = Engine("reference")
    draws = engine.run(request, make_output(1, draws=3))
    out = engine.run(
        request, make_output(1, modes=MODES, top_count=top_count_of(request.vocabulary))
    )
    row = reference.widen(request.values[0, : request.vocabulary])
    return {
        **question,
        "status": int(draws.status[0]),
        "tokens": draws.tokens[0].tolist(),
        "kept": int(draws.kept_count[0]),
        "logprobs": [value.hex() for value in out.logprobs.logprobs[:, 0, 0].tolist()],
        "logprobs_sha256": sha256_of_logprobs(out),
        "softmax": softmax_of(row, request.plan["temperature"][0], "fixed"),
    }


# ---------------------------------------------------------------- later filters

FILTER_ROWS = ("bell", "nine values", "bell x 16", "masked 1 in 10", "peak", "any bits", "constant")
LATER_FILTERS: tuple[tuple[dict[str, Any], ...], ...] = (
    (
        {"top_n_sigma": 1.0},
        {"top_n_sigma": 0.3, "temperature": 0.5},
        {"top_n_sigma": 2.0, "temperature": 1.5, "stages": ("temperature", "top_n_sigma")},
        {"top_n_sigma": 1e30},
        {"top_n_sigma": 1.0, "top_k": 30, "stages": ("top_k", "top_n_sigma"), "min_keep": 3},
        {"epsilon_cutoff": 3e-4},
        {"epsilon_cutoff": 0.02, "temperature": 0.7, "top_k": 50},
        {"epsilon_cutoff": 1.0, "min_keep": 4},
        {"epsilon_cutoff": 0.01, "top_p": 0.8, "stages": ("epsilon_cutoff", "top_p")},
        {"typical_p": 0.0},
        {"typical_p": 0.2},
        {"typical_p": 0.9, "temperature": 1.3},
        {"typical_p": 0.5, "min_keep": 20},
        {
            "typical_p": 0.3,
            "temperature": 0.6,
            "top_p": 0.9,
            "min_p": 0.2,
            "stages": ("typical_p", "temperature", "top_p", "min_p"),
        },
        {"typical_p": 0.4, "top_k": 5, "stages": ("typical_p", "top_k")},
        {"typical_p": 0.7, "top_n_sigma": 3.0, "epsilon_cutoff": 1e-3, "temperature": 0.9},
        {"typical_p": 0.6, "presence_penalty": 0.5, "repetition_penalty": 1.2, "top_n_sigma": 1.5},
    ),
    (
        {"top_a": 0.2},
        {"top_a": 0.04, "temperature": 0.7, "top_k": 50},
        {"top_a": 1.0, "min_keep": 4},
        {
            "top_a": 0.5,
            "temperature": 1.5,
            "top_p": 0.8,
            "stages": ("top_a", "temperature", "top_p"),
        },
        {"top_a": 1e-4, "temperature": 0.8, "top_p": 0.95, "min_p": 0.02},
        {"top_a": 0.3, "typical_p": 0.9, "stages": ("typical_p", "top_a")},
        {"top_a": 0.9, "top_n_sigma": 3.0, "epsilon_cutoff": 1e-3, "presence_penalty": 0.5},
    ),
)
"""A group of settings for each time that filters were added: each goes with every kind of row.

Cases are numbered through the groups, so a group that has cases must not change. The size of a new
one has no factor in common with 60, so that each of its settings meets every size and dtype.
"""


def filter_questions() -> list[dict[str, Any]]:
    """Every kind of row under every settings; sizes, dtypes and the rest in turn."""
    questions = []
    for n, (recipe, settings) in enumerate(
        (recipe, settings)
        for group in LATER_FILTERS
        for recipe in FILTER_ROWS
        for settings in group
    ):
        number, size = 900 + n, REQUEST_SIZES[n % len(REQUEST_SIZES)]
        row = {"recipe": recipe, "size": size, "seed": number, "dtype": DTYPES[n % 3]}
        prompt, output = HISTORIES[n // 3 % 4]
        questions.append(
            {
                "row": {**row, "sha256": sha256(values_of(row))},
                "vocabulary": size if n % 4 else size - 1,
                "settings": {**settings, **draw_settings(number)},
                "mask": None,
                "bias": BIASES[n // 2 % 3],
                "prompt": prompt,
                "output": output,
            }
        )
    return questions


# ---------------------------------------------------------------- the files


def lines(cases: list[dict[str, Any]]) -> str:
    """One case a line, so that a diff names the cases that moved."""
    return ",\n".join(map(json.dumps, cases))


def golden_text() -> str:
    cases = [solve(n, *case) for n, case in enumerate([*plain_cases(), *wide_cases()])]
    requests = [solve_request(question) for question in request_questions()]
    return (
        f'{{"rule_version": {INVERSE}, "cases": [\n{lines(cases)}\n], '
        f'"jobs": [\n{lines(requests)}\n]}}\n'
    )


def fixed_text() -> str:
    requests = [solve_fixed(question) for question in fixed_questions()]
    return f'{{"rule_version": {INVERSE}, "jobs": [\n{lines(requests)}\n]}}\n'


def filters_text() -> str:
    requests = [solve_request(question) for question in filter_questions()]
    return f'{{"rule_version": {INVERSE}, "jobs": [\n{lines(requests)}\n]}}\n'


def race_text() -> str:
    return (
        f'{{"rule_version": {reference.RULE_VERSION}, "races": [\n{lines(race_cases())}\n], '
        f'"clocks": [\n{lines(clock_cases())}\n]}}\n'
    )


def distinct_text() -> str:
    return (
        f'{{"rule_version": {reference.RULE_VERSION}, '
        f'"distinct": [\n{lines(distinct_cases())}\n]}}\n'
    )


def main(arguments: list[str]) -> int:
    folder = TESTS / "golden"
    texts = {
        f"rule-{INVERSE}.json": golden_text(),
        f"rule-{INVERSE}-fixed.json": fixed_text(),
        f"rule-{INVERSE}-filters.json": filters_text(),
        f"rule-{reference.RULE_VERSION}-race.json": race_text(),
        f"rule-{reference.RULE_VERSION}-distinct.json": distinct_text(),
    }
    if arguments == ["--check"]:
        changed = [name for name, text in texts.items() if (folder / name).read_text() != text]
        for name in texts:
            print(f"{name}: {'CHANGED' if name in changed else 'unchanged'}")
        return 1 if changed else 0
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
        print(f"{name}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
