"""Write the golden file of the current rule version, from the reference alone.

    python tools/make_golden.py            write tests/golden/rule-1.json
    python tools/make_golden.py --check    fail when the file would change

A case that changes is a change of the rule: it comes with a new rule version, and the old file
stays. New cases may be added to the end of either list: "cases" have rows, filters and a draw,
"jobs" all else that an engine can be asked for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from golden_jobs import FORMS, make_golden_job, values_of  # noqa: E402
from golden_rows import RECIPES, make_row, words  # noqa: E402
from support import FILTERS_OFF, Engine, make_outcome, sha256  # noqa: E402

from fastsample import reference, reference_laws  # noqa: E402

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


# ---------------------------------------------------------------- jobs

JOB_ROWS = (
    "bell",
    "nine values",
    "bell x 16",
    "masked 1 in 2",
    "long tail",
    "denormal",
    "any bits",
)
JOB_SIZES = (40, 129, 300, 1000, 2049)
DTYPES = ("float32", "float16", "bfloat16")
LAST = ("top_k", "top_p", "min_p", "temperature")

JOB_SETTINGS: tuple[dict[str, Any], ...] = (
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


def job_questions() -> list[dict[str, Any]]:
    """Every kind of row under every settings; the rest in turn, at periods that share no factor."""
    questions = []
    for number, (recipe, settings) in enumerate(
        (recipe, settings) for recipe in JOB_ROWS for settings in JOB_SETTINGS
    ):
        size = JOB_SIZES[number % len(JOB_SIZES)]
        row = {"recipe": recipe, "size": size, "seed": number, "dtype": DTYPES[number % 3]}
        prompt, output = HISTORIES[number // 3 % 4]
        mask = {"bans_one_in": 3, "bits": number % 4 == 1, "columns": size - number % 7}
        questions.append(
            {
                "row": {**row, "sha256": sha256(values_of(row))},
                "vocabulary": size if number % 5 else size - 1,
                "settings": {**FILTERS_OFF, **settings, **draw_settings(number)},
                "mask": mask if number % 2 else None,
                "bias": BIASES[number // 2 % 3],
                "prompt": prompt,
                "output": output,
            }
        )
    return questions


def laws_of(row: Any, temperature: float) -> dict[str, str] | None:
    """softmax and its kin of the row as it came; None where they have no answer."""
    if reference.status(row) != reference.OK or temperature == 0:
        return None
    return {
        "softmax_sha256": sha256(reference_laws.softmax(row, temperature)),
        "log_softmax_sha256": sha256(reference_laws.log_softmax(row, temperature)),
        "logsumexp": reference_laws.logsumexp(row, temperature).hex(),
    }


def solve_job(question: dict[str, Any]) -> dict[str, Any]:
    job = make_golden_job(question)
    engine = Engine("reference")
    draws = engine.run(job, make_outcome(1, draws=3))
    told = engine.run(job, make_outcome(1, forms=FORMS, top_count=5))
    kept = engine.kept_sets(job)
    row = reference.widen(job.values[0, : job.vocabulary])
    return {
        **question,
        "status": int(draws.status[0]),
        "tokens": draws.tokens[0].tolist(),
        "kept": len(kept.tokens),
        "kept_sha256": sha256(kept.tokens, kept.masses, kept.logits),
        "logprobs": [value.hex() for value in told.logprobs[:, 0].tolist()],
        "ranks": told.ranks[:, 0].tolist(),
        "top_tokens": told.top_tokens[:, 0].tolist(),
        "top_logprobs": [[x.hex() for x in form] for form in told.top_logprobs[:, 0].tolist()],
        "laws": laws_of(row, job.plan["temperature"][0]),
    }


# ---------------------------------------------------------------- the file


def golden_text() -> str:
    """The whole file: one case a line, so that a diff names the cases that moved."""
    cases = [solve(n, *case) for n, case in enumerate([*plain_cases(), *wide_cases()])]
    jobs = [solve_job(question) for question in job_questions()]
    case_lines, job_lines = (",\n".join(map(json.dumps, part)) for part in (cases, jobs))
    version = reference.RULE_VERSION
    return (
        f'{{"rule_version": {version}, "cases": [\n{case_lines}\n], "jobs": [\n{job_lines}\n]}}\n'
    )


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
