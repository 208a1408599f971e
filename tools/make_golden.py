"""Write the golden file of the current rule version, from the reference alone.

    python tools/make_golden.py            write tests/golden/rule-1.json
    python tools/make_golden.py --check    fail when the file would change

A change of this file is a change of the rule: it comes with a new rule version, and the old file
stays.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from golden_rows import RECIPES, make_row, words  # noqa: E402
from support import FILTERS_OFF, sha256  # noqa: E402

from fastsample import reference  # noqa: E402

SIZES = (1, 2, 3, 7, 15, 16, 17, 33, 64, 127, 129, 257, 1000, 1025, 2500, 4095, 4096, 4097, 5000)
WIDE = (("bell", 49_152), ("nine values", 49_152), ("bell", 151_936), ("masked 1 in 2", 151_936))
BAD = ("empty", "one nan", "one inf")

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
    settings = {**FILTERS_OFF, **filters, **draw_settings(number)}
    token, status = reference.sample_row(row, **settings)
    case = {
        "row": {"recipe": recipe, "size": size, "seed": number, "sha256": sha256(row)},
        "settings": settings,
        "status": status,
        "token": token,
    }
    if status == reference.OK:
        tokens, masses = reference.kept_set(row, **{**FILTERS_OFF, **filters})
        case["kept"] = len(tokens)
        case["total"] = int(masses.sum())
        case["kept_sha256"] = sha256(tokens, masses)
    return case


def golden_text() -> str:
    """The whole file: one case a line, so that a diff names the cases that moved."""
    cases = [solve(n, *case) for n, case in enumerate([*plain_cases(), *wide_cases()])]
    lines = ",\n".join(json.dumps(case) for case in cases)
    return f'{{"rule_version": {reference.RULE_VERSION}, "cases": [\n{lines}\n]}}\n'


def main(arguments: list[str]) -> int:
    path = TESTS / "golden" / f"rule-{reference.RULE_VERSION}.json"
    text = golden_text()
    if arguments == ["--check"]:
        same = path.read_text() == text
        print(f"{path.name}: {'unchanged' if same else 'CHANGED'}")
        return 0 if same else 1
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    print(f"{path.name}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
