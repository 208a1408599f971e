"""Rows and settings for tests of the race, and the reference's answer to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastsample.engines import reference
from fastsample.params.ops import DrawMethod
from tests.support.engines import Engine, differing, make_output, make_plan, make_request
from tests.support.race_by_hand import OFF, ORDER, Found
from tests.support.random_rows import Rng, pick

SIZES = (
    *(1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129),
    *(200, 255, 256, 257, 500, 1000, 1023, 1024, 1025, 2000),
)
KINDS = ("normal", "flat", "tied", "peaked", "40 heavy")


def make_race_row(rng: Rng, kind: str, size: int) -> np.ndarray:
    """A row of a kind, three in ten of them with 7 in 10 tokens banned."""
    row = rng.standard_normal(size) * pick(rng, (0.3, 1, 3))
    if kind == "flat":
        row[:] = 0
    elif kind == "tied":
        row = rng.integers(0, 4, size)
    elif kind == "peaked":
        row = rng.standard_normal(size) * 0.5 - 8
        row[rng.integers(size)] = 0
    elif kind == "40 heavy":
        row[:] = -20
        heavy = rng.permutation(size)[:40]
        row[heavy] = pick(rng, (0, 0.5, 3)) * rng.random(len(heavy))
    found = row.astype(np.float32)
    if rng.random() < 0.3:
        found[rng.random(size) < 0.7] = -np.inf
        found[rng.integers(size)] = 0.25
    return found


def random_race_settings(rng: Rng, size: int) -> dict[str, Any]:
    """Temperature and filters on both sides of the borders between listed and not."""
    choices: dict[str, tuple[float, Any]] = {
        "top_p": (0.4, (0.3, 0.4999, 0.5, 0.9, rng.uniform(0.5, 1))),
        "top_k": (0.3, (1, 5, 127, 128, 200, size, max(1, size - 1))),
        "min_p": (0.3, (2.0**-60, 1e-9, 0.05, 0.5, 1.0)),
        "epsilon_cutoff": (0.2, (2.0**-60, 1e-3, 0.02)),
        "top_a": (0.2, (2.0**-60, 1e-3, 0.2)),
        "min_keep": (0.2, (2, 5, 50)),
    }
    settings = {name: pick(rng, pool) for name, (p, pool) in choices.items() if rng.random() < p}
    temperature = pick(rng, (1.0, rng.uniform(0.2, 5)))
    stages = ORDER if rng.random() < 0.6 else tuple(rng.permutation(ORDER).tolist())
    return {"temperature": temperature, **settings, "stages": stages}


def random_race_batch(rng: Rng, n_rows: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Rows of one size and one chain, each with values of its own, some of them off."""
    size = pick(rng, SIZES)
    rows = np.stack([make_race_row(rng, pick(rng, KINDS), size) for _ in range(n_rows)])
    each_row = [random_race_settings(rng, size) for _ in range(n_rows)]
    stages = each_row[0].pop("stages")
    off = {**OFF, "min_keep": 1}
    names = {name for settings in each_row for name in settings} - {"stages"}
    settings = {name: [one.get(name, off[name]) for one in each_row] for name in names}
    seed, position = rng.integers(0, 2**64, (2, n_rows), dtype=np.uint64)
    stream = rng.integers(2**32 - 3, size=n_rows)
    return rows, {
        **settings,
        "stages": stages,
        "seed": seed,
        "position": position,
        "stream": stream,
    }


def random_place(rng: Rng) -> reference.Place:
    seed, position = (int(word) for word in rng.integers(0, 2**64, 2, dtype=np.uint64))
    return reference.Place(seed, position, int(rng.integers(2**32)))


def race_of(row: np.ndarray, **filters: Any) -> reference.Race:
    """The reference's race of a row under some filters."""
    seen = reference.trace(row, **filters)
    return reference.prepare(row, seen, reference.is_listed(len(row), **filters))


def reference_race(row: np.ndarray, place: reference.Place, **filters: Any) -> Found:
    """What the reference says of one race."""
    seen = reference.trace(row, **filters)
    if seen.kept == 1:
        return Found(int(seen.tokens[0]))
    race = race_of(row, **filters)
    token, decision = reference.draw_by_race(race, place), reference.explain(race, place)
    if decision.winner is None:
        return Found(token, q=race.q, margin=math.nan)
    assert decision.winner.token == token
    other = decision.runner_up
    return Found(
        token,
        decision.winner.time,
        decision.winner.height,
        None if other is None else other.token,
        None if other is None else other.time,
        decision.margin,
        race.q,
    )


def same_race(one: Found, other: Found) -> bool:
    """Equal in every field; a runner-up that never came has no time of its own."""
    if one.runner_up is None:
        one.end = other.end = None
    return repr(one) == repr(other)


def compare_races(
    engine: Engine,
    values: np.ndarray,
    draws: int = 2,
    modes: tuple[str, ...] = (),
    **settings: Any,
) -> np.ndarray:
    """Compare a batch on an engine with the reference, and return the tokens."""
    plan = make_plan(len(values), **{"draw": int(DrawMethod.RACE), **settings})
    request, count = make_request(values, plan), min(3, values.shape[1]) if modes else 0
    expected, found = (
        one.run(request, make_output(len(values), draws, modes, count))
        for one in (Engine("reference"), engine)
    )
    assert differing(expected, found) == [], settings
    return expected.tokens
