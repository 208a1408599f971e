"""The questions of tests/golden/rule-2-distinct.json, which `make_golden.py` writes."""

from __future__ import annotations

from typing import Any

from tests.support.golden_distinct import answer_of_distinct
from tools.golden_races import (
    processed_questions,
    question,
    settings_questions,
    size_questions,
    tie_questions,
)

LONGEST = 2**17 + 1
COUNTS = (2, 5, 10, 300)


def with_counts(questions: list[Any]) -> list[Any]:
    """Each question with a number of tokens, the more the rarer; now and then all of the row."""
    return [
        {**one, "n": min(one["vocabulary"], COUNTS[n % 4] if n % 7 else 1000)}
        for n, one in enumerate(questions)
    ]


FAR: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("heavy 5", 1024, {}),
    ("heavy 5", 1025, {"top_p": 0.999999}),
    ("heavy 1", 4097, {"temperature": 1.5}),
    ("heavy 5", 65_537, {"top_k": 4000}),
    ("heavy 40", 2048, {"min_p": 1e-12, "min_keep": 300}),
    ("peak", 1000, {}),
    ("heavy 6", 131_073, {}),
)
"""Rows whose arrivals end before the light tokens come: the inverse method draws these."""


def far_questions() -> list[Any]:
    return [
        {**question(700 + n, {"recipe": recipe, "size": size}, settings), "n": 40}
        for n, (recipe, size, settings) in enumerate(FAR)
    ]


def distinct_cases() -> list[dict[str, Any]]:
    short = [one for one in size_questions() if one["row"]["size"] <= LONGEST]
    questions = [
        *with_counts(short[::2]),
        *with_counts(settings_questions()[::2]),
        *with_counts(processed_questions()),
        *with_counts(tie_questions()),
        *far_questions(),
    ]
    return [{**one, **answer_of_distinct(one)} for one in questions]
