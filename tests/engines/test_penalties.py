"""Adjusting by hand and in fractions, on every engine: masks, bias, penalties, rounding."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.support.case_loop import each
from tests.support.engines import Engine, csr, make_plan, make_request
from tests.support.exact_arithmetic import round_to_float32

F32 = np.float32
INF = float("inf")


def adjusted(
    engine: Engine,
    row: Any,
    *,
    mask: np.ndarray | None = None,
    bias: dict[int, float] | None = None,
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    **settings: Any,
) -> list[float]:
    """The logits that an engine goes on with, in ascending token."""
    lists: dict[str, Any] = {"mask": None if mask is None else mask[np.newaxis]}
    if bias is not None:
        lists["bias"] = csr([list(bias)], [F32(list(bias.values()))])
    for name, tokens in (("prompt", prompt), ("output", output)):
        lists[name] = None if tokens is None else csr([tokens])
    row = F32(row)
    kept = engine.kept_sets(make_request(row[np.newaxis], make_plan(1, **settings), **lists))
    found = np.full(len(row), -np.inf, dtype=F32)
    found[kept.tokens] = kept.logits
    return found.tolist()


# ---------------------------------------------------------------- masks


@each("size", [5, 32, 33, 128, 129, 300])
def test_a_mask_of_bits_is_a_mask_of_bools(engine: Engine, size):
    rng = np.random.default_rng(size)
    row = rng.standard_normal(size).astype(F32)
    allowed = rng.random(size) < 0.4
    allowed[0] = True
    words = np.zeros(-(-size // 32), dtype=np.uint32)
    for token in np.flatnonzero(allowed):
        words[token // 32] |= np.uint32(1 << (token % 32))
    expected = np.where(allowed, row, -INF).tolist()
    assert adjusted(engine, row, mask=allowed) == expected
    assert adjusted(engine, row, mask=words) == expected


def test_what_a_mask_does_not_cover_is_banned(engine: Engine):
    row = np.arange(70)
    bools = np.ones(40, dtype=bool)
    assert adjusted(engine, row, mask=bools) == [*range(40), *[-INF] * 30]
    words = np.full(2, 0xFFFFFFFF, dtype=np.uint32)
    assert adjusted(engine, row, mask=words) == [*range(64), *[-INF] * 6]


def test_bits_past_the_vocabulary_do_not_count(engine: Engine):
    words = np.full(3, 0xFFFFFFFF, dtype=np.uint32)
    assert adjusted(engine, [1, 2, 3], mask=words) == [1, 2, 3]


def test_a_bias_brings_no_banned_token_back(engine: Engine):
    mask = np.array([True, False, True])
    assert adjusted(engine, [1, 2, -INF], mask=mask, bias={1: 9, 2: 9}) == [1, -INF, -INF]


# ---------------------------------------------------------------- penalties


def test_repetition_divides_above_zero_and_multiplies_below(engine: Engine):
    found = adjusted(
        engine, [3, -3, 0, 1, 4], prompt=[0, 1, 2], output=[0, 0, 3], repetition_penalty=2.0
    )
    assert found == [1.5, -6, 0, 0.5, 4]


def test_frequency_counts_and_presence_does_not(engine: Engine):
    output = [1, 1, 1, 2]
    assert adjusted(engine, [5, 5, 5], output=output, frequency_penalty=0.5) == [5, 3.5, 4.5]
    assert adjusted(engine, [5, 5, 5], output=output, presence_penalty=0.5) == [5, 4.5, 4.5]


def test_the_order_is_bias_repetition_frequency_presence(engine: Engine):
    """((-1 + 4) / 2 - 2 * 0.25) - 1"""
    found = adjusted(
        engine,
        [-1, 7],
        bias={0: 4},
        output=[0, 0],
        repetition_penalty=2.0,
        frequency_penalty=0.25,
        presence_penalty=1.0,
    )
    assert found == [0, 7]


SEEN = {
    "all": [3, 1, 2, 1],
    "prompt": [1, 1, 1, 0],
    "output": [2, 0, 1, 1],
    0: [0, 0, 0, 0],
    1: [0, 0, 1, 0],
    4: [2, 0, 1, 1],
    5: [2, 0, 2, 1],
    6: [2, 1, 2, 1],
    99: [3, 1, 2, 1],
}


@each("scope", SEEN)
@each("name", ["repetition", "frequency", "presence"])
def test_scopes(engine: Engine, name, scope):
    found = adjusted(
        engine,
        [8, 8, 8, 8, 8],
        prompt=[0, 1, 2],
        output=[0, 3, 0, 2],
        **{f"{name}_penalty": 2.0, f"{name}_scope": scope},
    )
    rule = {
        "repetition": lambda count: 4 if count else 8,
        "frequency": lambda count: 8 - 2 * count,
        "presence": lambda count: 6 if count else 8,
    }
    assert found == [rule[name](count) for count in [*SEEN[scope], 0]]


def test_default_scopes(engine: Engine):
    """Repetition looks at prompt and output, the other two at the output."""
    histories = {"prompt": [0], "output": [1]}
    assert adjusted(engine, [8, 8], **histories, repetition_penalty=2.0) == [4, 4]
    assert adjusted(engine, [8, 8], **histories, frequency_penalty=2.0) == [8, 6]
    assert adjusted(engine, [8, 8], **histories, presence_penalty=2.0) == [8, 6]


@each("name", ["repetition", "frequency", "presence"])
@each("penalty", [0.5, 2.0, 3e38])
def test_minus_inf_stays_under_every_penalty(engine: Engine, name, penalty):
    for sign in (1, -1) if name != "repetition" else (1,):
        settings = {f"{name}_penalty": sign * penalty}
        found = adjusted(
            engine, [-INF, 2, 1], output=[0, 0, 1], bias={1: -INF}, min_keep=3, **settings
        )
        assert found == [-INF, -INF, 1]


# ---------------------------------------------------------------- rounding


def as_read(exact: Fraction) -> Fraction:
    """An operation's result: rounded to float32, and 0 where that is denormal."""
    rounded = round_to_float32(exact)
    return Fraction(0) if abs(rounded) < Fraction(2) ** -126 else rounded


def in_fractions(x: float, b: float, r: float, f: float, s: float, count: int) -> float:
    value = as_read(Fraction(x) + Fraction(b))
    value = as_read(value / Fraction(r) if value > 0 else value * Fraction(r))
    value = as_read(value - as_read(Fraction(f) * count))
    return float(as_read(value - Fraction(s)))


def near(rng: np.random.Generator, size: int, scale: float) -> np.ndarray:
    return (rng.uniform(-4, 4, size) * scale).astype(F32).astype(np.float64)


@pytest.mark.parametrize("scale", [1.0, 2.0**-126, 2.0**-120])
def test_every_operation_is_rounded_and_read(engine: Engine, scale):
    """Around the smallest normal float32 too, where results vanish or just do not."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        size = 40
        x, b = near(rng, size, scale), near(rng, size, scale)
        x[np.abs(x) < 2.0**-126] = 0
        r = float(F32(rng.uniform(0.3, 3)))
        f, s = near(rng, 2, scale).tolist()
        output = rng.integers(0, size, 3 * size).tolist()
        counts = np.bincount(output, minlength=size).tolist()
        expected = [
            in_fractions(*each, r, f, s, count)
            if count
            else float(as_read(Fraction(each[0]) + Fraction(each[1])))
            for each, count in zip(zip(x.tolist(), b.tolist(), strict=True), counts, strict=True)
        ]
        found = adjusted(
            engine,
            x,
            bias=dict(enumerate(b.tolist())),
            output=output,
            repetition_penalty=r,
            frequency_penalty=f,
            presence_penalty=s,
        )
        assert found == expected


def test_just_below_the_smallest_normal_rounds_up_to_it(engine: Engine):
    """(2 - 2^-23) * 2^-127 lies halfway between the largest denormal and the smallest normal."""
    x = float(F32(2 - 2.0**-23)) * 2.0**-126
    assert adjusted(engine, [-x, x, 1], output=[0, 1], repetition_penalty=0.5)[0] == -(2.0**-126)
    assert adjusted(engine, [-x, x, 1], output=[0, 1], repetition_penalty=2.0)[1] == 2.0**-126
    below = float(F32(2 - 2.0**-22)) * 2.0**-126
    assert adjusted(engine, [-below, 1], output=[0], repetition_penalty=0.5)[0] == 0


def test_a_denormal_parameter_counts_in_full(engine: Engine):
    assert adjusted(engine, [0, 1], output=[0] * 4000, frequency_penalty=-1e-41)[0] > 0
    assert adjusted(engine, [0, 1], output=[0] * 400, frequency_penalty=-1e-41)[0] == 0
    smallest, step = 2.0**-126, 2.0**-149
    assert adjusted(engine, [smallest, 1], bias={0: step})[0] == smallest + step
