"""Checks at borders and at edge rows, which tests run on every engine, and on planted faults."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsample.engines import reference
from tests.support import reference_rows
from tests.support.engines import Engine, make_output, make_plan, make_request
from tests.support.random_rows import SCALE_ONE
from tests.support.row_kinds import MAX

F32 = np.float32
SIZES = (1, 5, 16, 37, 131, 300)


def next_after(x: float, towards: float) -> float:
    return float(np.nextafter(F32(x), F32(towards)))


# ---------------------------------------------------------------- draws at exact shares of W

# Philox is a bijection of the counter, so it can be run backwards from the U that is wanted.
EXACT_DRAWS = {
    0: (1, 5771886026982873665, 744770889),
    2**63 - 1: (1, 13370436444570793406, 3151207307),
    2**63: (3, 7878406519541971034, 4007559135),
    2**64 - 1: (1, 16314314711947355528, 2734673436),
}


def draw_at(engine: Engine, u: int, row: np.ndarray, **filters: float) -> int:
    seed, position, stream = EXACT_DRAWS[u]
    return engine.token(row, seed=seed, position=position, stream=stream, **filters)


def check_equal_running_mass(engine: Engine, size: int) -> None:
    """Equal masses: at U = 2^63, r is the running mass of the lower half, to the unit."""
    row = np.zeros(size, dtype=F32)
    found = [draw_at(engine, u, row) for u in EXACT_DRAWS]
    assert found == [0, size // 2 - 1, size // 2, size - 1]


def check_every_bit_of_u(engine: Engine, size: int) -> None:
    """Only the last U reaches a tail of one unit of mass: one of 24 or 53 bits would not."""
    row = np.full(size, -100, dtype=F32)
    row[0], row[size - 1] = 0, np.nextafter(F32(-41), F32(0))
    found = [draw_at(engine, u, row, temperature=SCALE_ONE) for u in EXACT_DRAWS]
    assert found == [0, 0, 0, size - 1]


def check_draws_are_streams(engine: Engine, request: Any) -> None:
    """Several draws of a row are those of as many streams."""
    request.plan["stream"] = 5
    together = engine.run(request, make_output(1, draws=6)).tokens[0].tolist()
    alone = []
    for stream in range(5, 11):
        request.plan["stream"] = stream
        alone += engine.run(request, make_output(1)).tokens[0].tolist()
    assert together == alone


# ---------------------------------------------------------------- top_p and min_p

# Equal tops, a tail of one logit, top_p, tokens kept. P * W / 2^31 lies less than one unit of mass
# above a running mass, so the next token is needed too: rounding down would leave it out.
ROUNDED_UP = [
    (1, 200, "-0x1.9452800000000p-3", "0x1.759f840000000p-8", 2),
    (1, 200, "-0x1.a9cf800000000p-2", "0x1.b248120000000p-8", 2),
    (1, 200, "-0x1.07c8a00000000p-1", "0x1.d106e60000000p-8", 2),
    (1, 300, "-0x1.4278c00000000p-2", "0x1.e833e20000000p-8", 3),
]


def check_need_is_rounded_up(
    engine: Engine, tops: int, tail: int, logit: str, top_p: str, kept: int
) -> None:
    row = np.array([0.0] * tops + [float.fromhex(logit)] * tail, dtype=F32)
    filters = {"temperature": SCALE_ONE, "top_p": float.fromhex(top_p)}
    assert engine.kept_set(row, **filters)[0].tolist() == list(range(kept))


def check_top_p_steps(engine: Engine, spread: float) -> None:
    """top_p at each step of the running mass, and next to it."""
    row = (np.random.default_rng(1).standard_normal(97) * spread).astype(F32)
    seen = reference.trace(row)
    running = np.cumsum(seen.mass).tolist()
    for mass in running:
        border = F32(min(1.0, mass / seen.total + 2.0**-21))
        for top_p in (next_after(border, 0), float(border), min(1.0, next_after(border, 2))):
            expected = reference.trace(row, top_p=top_p).kept
            assert len(engine.kept_set(row, top_p=top_p)[0]) == expected


def some_min_ps() -> list[float]:
    rng = np.random.default_rng(2)
    edges = [next_after(2.0**-60, 1), 1e-12, 1e-6, 0.01, 0.05, 0.1, 0.2, 0.5, next_after(1, 0), 1.0]
    return [*edges, *rng.random(200).tolist(), *(2.0 ** rng.uniform(-60, 0, 300)).tolist()]


def check_min_p_threshold(engine: Engine) -> None:
    """With a scale of 1 a logit below a top of 0 is its own y: put some around the threshold."""
    for min_p in some_min_ps():
        threshold = reference_rows.threshold(min_p)
        assert threshold is not None
        below, above = next_after(threshold, -99), next_after(threshold, 0)
        row = np.array([below, threshold, 0, above, below], dtype=F32)
        kept = engine.kept_set(row, temperature=SCALE_ONE, min_p=min_p)[0].tolist()
        assert kept == [1, 2, 3], min_p


# ---------------------------------------------------------------- edge rows

FLAT = {
    "zeros of both signs": [0.0, -0.0],
    "denormals": [1e-45, -1e-45, 1e-38, -1e-38, 0.0],
    "the largest": [MAX],
    "the lowest": [-MAX],
    "the smallest normal": [2.0**-126],
}


def each_place_of(size: int, background: float, value: float) -> np.ndarray:
    """A row for each token, which alone has the value."""
    rows = np.full((size, size), background, dtype=F32)
    np.fill_diagonal(rows, value)
    return rows


def check_one_bad_logit(engine: Engine, size: int, value: float, **settings: Any) -> None:
    """At each token, among zeros, and among logits that hide it from a maximum or a sum."""
    for background in (0.0, -np.inf, MAX, -MAX):
        rows = each_place_of(size, background, value)
        tokens, status = engine.sample(rows, make_plan(size, **settings, seed=4))
        assert status.tolist() == [reference.INVALID] * size
        assert tokens.tolist() == [-1] * size


def check_equal_logits(engine: Engine, kind: str) -> None:
    """Filters keep the lowest tokens, and the token is floor(U * kept / 2^64)."""
    for size in SIZES:
        row = np.resize(np.array(FLAT[kind], dtype=F32), size)
        for settings, kept in (({}, size), ({"top_k": 4}, min(4, size)), ({"min_p": 1.0}, size)):
            found = engine.kept_sets(make_request(row[np.newaxis], make_plan(1, **settings)))
            assert found.tokens.tolist() == list(range(kept))
            assert found.masses.tolist() == [2**40] * kept
            token = engine.token(row, **settings, seed=8, position=2)
            assert token == reference.uniform(8, 2, 0) * kept >> 64
