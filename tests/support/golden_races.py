"""The golden file of rule 2: races, and the checks that an engine gives their answers.

With tokens it has the bits of clocks, masses, times and margins: an engine whose arithmetic is off
in a bit may well draw the same tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastsample.engines import reference
from fastsample.engines.reference import race as reference_race
from fastsample.engines.reference.clocks import clock, in_steps
from fastsample.engines.reference.draw import words
from fastsample.engines.reference.engine import filters
from fastsample.engines.reference.logits_processors import adjusted_row
from tests.support.engines import Engine, make_output, sha256
from tests.support.golden_checks import golden_file
from tests.support.golden_requests import make_golden_request

RACES = Path(__file__).parents[1] / "golden" / "rule-2-race.json"
DRAWS = 3  # from each row, on streams of their own
NO_PLACE = reference.Place(0, 0, 0)
ARRIVALS = 128  # of the tail, whose bits are hashed


def races() -> list[dict[str, Any]]:
    """Cases of one row each."""
    return golden_file(RACES)["races"]


def clocks() -> list[dict[str, Any]]:
    """Cases of one clock each."""
    return golden_file(RACES)["clocks"]


def answer_of_clock(case: dict[str, Any]) -> dict[str, Any]:
    """The words of one index, the clock of the first two, and that in steps of 2^-32."""
    place = (int(case[name]) for name in ("seed", "position", "stream", "purpose"))
    k, point = words(*place, np.array([case["index"]], dtype=np.uint64))
    found = clock(k)
    return {
        "k": int(k[0]),
        "point": int(point[0]),
        "clock": float(found[0]).hex(),
        "steps": int(in_steps(found)[0] * 2.0**32),
    }


def answer_of_race(question: dict[str, Any]) -> dict[str, Any]:
    """What the reference says of a row: tokens of its draws, and the race of the first one."""
    request = make_golden_request(question)
    out = Engine("reference").run(request, make_output(1, draws=DRAWS))
    answer = {
        "status": int(out.status[0]),
        "tokens": out.tokens[0].tolist(),
        "kept": int(out.kept_count[0]),
    }
    if answer["kept"] == 1:
        row, settings = adjusted_row(request, 0), filters(request.plan[0])
        seen = reference.trace(row, **settings)
        found = reference.margin(row, seen, None, NO_PLACE, settings["temperature"])
        return {**answer, "margin": found.hex()}
    return {**answer, **(explained(request) if answer["kept"] else {})}


def explained(request: Any) -> dict[str, Any]:
    """The race of a request's first draw."""
    row, settings = adjusted_row(request, 0), filters(request.plan[0])
    seen = reference.trace(row, **settings)
    race = reference.prepare(row, seen, reference.is_listed(len(row), **settings))
    place = reference.Place(*(int(request.plan[0][name]) for name in reference.Place._fields))
    decision = reference.explain(race, place)
    head = reference_race.head(race, place)
    return {
        "v": race.v,
        "q": race.q,
        "winner": arrival(decision.winner),
        "runner_up": arrival(decision.runner_up),
        "margin": decision.margin.hex(),
        "head": len(head.tokens),
        "head_sha256": sha256(*head),
        "tail_sha256": None if race.q is None else sha256(*tail_of(race, place)),
    }


def tail_of(race: reference.Race, place: reference.Place) -> tuple[np.ndarray, ...]:
    return reference_race.tail(race, place, ARRIVALS)


def arrival(one: reference.Arrival | None) -> list[Any] | None:
    """Token, bits of the time, and height."""
    return None if one is None else [one.token, one.time.hex(), one.height]


# ---------------------------------------------------------------- checks


def check_races(engine: Engine, most: int = 2**22) -> None:
    """Tokens, statuses and sizes of kept sets, in rows of at most so many tokens."""
    for case in races():
        if case["row"]["size"] > most:
            continue
        out = engine.run(make_golden_request(case), make_output(1, draws=DRAWS))
        found = (int(out.status[0]), out.tokens[0].tolist(), int(out.kept_count[0]))
        assert found == (case["status"], case["tokens"], case["kept"]), case
