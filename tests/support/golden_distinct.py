"""The golden file of draws without replacement, and the check that an engine gives its answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample.engines import reference
from fastsample.engines.contract import SampleRequest
from fastsample.engines.reference.distinct import arrived
from fastsample.engines.reference.engine import filters
from fastsample.engines.reference.logits_processors import adjusted_row
from tests.support.engines import Engine, make_output, sha256
from tests.support.golden_checks import golden_file
from tests.support.golden_races import RACES
from tests.support.golden_requests import make_golden_request

DISTINCT = RACES.with_name("rule-2-distinct.json")
SHOWN = 12
"""So many tokens are in the file; all are hashed."""


def distinct_cases() -> list[dict[str, Any]]:
    """Cases of one row each."""
    return golden_file(DISTINCT)["distinct"]


def make_distinct_request(case: dict[str, Any]) -> SampleRequest:
    return make_golden_request(case)._replace(replacement=False)


def answer_of_distinct(case: dict[str, Any]) -> dict[str, Any]:
    """What the reference says: the tokens, and how many of them arrived."""
    request = make_distinct_request(case)
    answer = answer_of(Engine("reference"), request, case["n"])
    if answer["status"] or answer["first"][1:2] == [-1]:
        return {**answer, "arrived": None}
    row, settings = adjusted_row(request, 0), filters(request.plan[0])
    listed = reference.is_listed(len(row), **settings)
    race = reference.prepare(row, reference.trace(row, **settings), listed)
    place = reference.Place(*(int(request.plan[0][name]) for name in reference.Place._fields))
    return {**answer, "arrived": len(arrived(race, place, case["n"]))}


def answer_of(engine: Engine, request: SampleRequest, n: int) -> dict[str, Any]:
    """Status, the first tokens, a hash of all, and how many there are."""
    out = engine.run(request, make_output(1, draws=n))
    return {
        "status": int(out.status[0]),
        "first": out.tokens[0, :SHOWN].tolist(),
        "drawn": int(np.count_nonzero(out.tokens[0] >= 0)),
        "sha256": sha256(out.tokens[0]),
    }


def check_distinct(engine: Engine, most: int = 2**22) -> None:
    """Compare an engine with the file, in rows of at most so many tokens."""
    for case in distinct_cases():
        if case["row"]["size"] <= most:
            found = answer_of(engine, make_distinct_request(case), case["n"])
            assert found == {name: case[name] for name in found}, case
