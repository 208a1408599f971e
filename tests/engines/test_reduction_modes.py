"""The oracle for the reduction modes: native and numba == reference, bit for bit, but in fast.

A question is a request in one mode and the shape of its output. The reference answers each once,
for all engines. `test_reduction_fast` tests what "fast" guarantees: tokens of the right
distribution.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fastsample.engines import reference
from tests.support.case_loop import each
from tests.support.engines import (
    REDUCTION_ENGINES,
    Engine,
    SampleOutput,
    SampleRequest,
    differing,
    make_plan,
    make_request,
    needs_tested_engine,
    same_bits,
)
from tests.support.oracle import REFERENCE, SIZES, answer, random_answer_shape, random_temperatures
from tests.support.random_requests import (
    DTYPES,
    MODES,
    random_lists,
    random_request,
    random_settings,
    random_status,
)
from tests.support.random_rows import (
    HARD,
    SCALE_ONE,
    Rng,
    pick,
    random_draws,
)

pytestmark = needs_tested_engine

BIT_FOR_BIT = ("exact", "fixed")
BORDERS = (15, 16, 17, 127, 128, 129, 4095, 4096, 4097, 8191, 8192, 8193, 12_288, 32_000)
WIDE = 151_936


@pytest.fixture(params=REDUCTION_ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine but the reference."""
    return request.param


TOP_PS = (0.0, 2.0**-21, 1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 0.999999, 1 - 2.0**-22, 1 - 2.0**-24)
STAGES = ("temperature", "top_k", "top_p", "min_p")


def nuclear(rng: Rng, size: int) -> dict[str, Any]:
    """Settings whose top_p is in use: alone, or among other filters and in another order."""
    if rng.random() < 0.5:
        return {"top_p": pick(rng, TOP_PS), "temperature": pick(rng, (1.0, 1.0, 0.5, 3.0))}
    settings = random_settings(rng, size)
    if "top_p" not in settings["stages"]:
        settings["stages"] = STAGES
    return {**settings, "top_p": pick(rng, TOP_PS)}


def hard_request(seed: Any, size: int, kinds: tuple[str, ...], reduction: str) -> SampleRequest:
    """Each kind of row twice, each time with settings of its own, over masks and penalties."""
    rng = np.random.default_rng(seed)
    rows = np.stack([HARD[kind](rng, size) for kind in (*kinds, *kinds)])
    plan = np.concatenate([make_plan(1, **nuclear(rng, size)) for _ in rows])
    for name, values in random_draws(rng, len(rows)).items():
        plan[name] = values
    plan["stream"] = np.minimum(plan["stream"], 2**32 - 64)
    lists = random_lists(rng, len(rows), size, size) if rng.random() < 0.5 else {}
    return make_request(rows, plan, size, reduction, **lists)


# ---------------------------------------------------------------- questions and answers


def answered(
    request: SampleRequest, status: np.ndarray | np.uint8, shape: dict[str, Any]
) -> tuple[SampleRequest, np.ndarray, dict[str, Any], SampleOutput]:
    """A question with the reference's answer; the request is read-only from here on."""
    request.plan.flags.writeable = False
    return request, status, shape, answer(REFERENCE, request, status, **shape)


def compare(
    engine: Engine, question: tuple[SampleRequest, Any, dict[str, Any], SampleOutput], what: Any
) -> None:
    request, status, shape, expected = question
    found = answer(engine, request, status, 2, **shape)
    assert differing(expected, found) == [], (what, engine, request.reduction, request.values.shape)


@cache
def random_question(
    reduction: str, seed: int
) -> tuple[SampleRequest, Any, dict[str, Any], SampleOutput]:
    rng = np.random.default_rng((31, seed))
    n_rows = int(rng.integers(1, 9))
    request = random_request(rng, n_rows, pick(rng, (*SIZES, 4097)), reduction)
    return answered(
        request, random_status(rng, n_rows), random_answer_shape(rng, request.vocabulary)
    )


@cache
def hard_question(
    reduction: str, size: int, with_logprobs: bool
) -> tuple[SampleRequest, Any, dict[str, Any], SampleOutput]:
    kinds = tuple(HARD) if size < WIDE else ("plateau", "seventy values", "nearly flat", "normal 1")
    request = hard_request((32, size, with_logprobs), size, kinds, reduction)
    shape = {"modes": MODES, "top_count": min(size, 40)} if with_logprobs else {"draws": 5}
    return answered(request, np.uint8(0), shape)


@pytest.mark.parametrize("reduction", BIT_FOR_BIT)
def test_random_requests(engine: Engine, reduction: str):
    for seed in range(250):
        compare(engine, random_question(reduction, seed), seed)


@each("with_logprobs", [False, True], ids=["draws", "logprobs"])
@each("size", [*BORDERS, WIDE])
@pytest.mark.parametrize("reduction", BIT_FOR_BIT)
def test_hard_rows_around_the_borders_of_lanes_and_blocks(
    engine: Engine, reduction, size, with_logprobs
):
    compare(engine, hard_question(reduction, size, with_logprobs), size)


# ---------------------------------------------------------------- nuclei on the edge


EDGES = {"faint": 1.0, "rounding": SCALE_ONE}
"""Kinds of rows whose masses integers round, or whose sums round, and temperatures."""


def parting_top_ps(row: np.ndarray, temperature: float) -> np.ndarray:
    """Each top_p at which the sums of the rule, one by one in float64, and the integers part."""
    how = {"temperature": temperature}
    exact, fixed = reference.trace(row, **how), reference.trace(row, **how, reduction="fixed")
    units = np.cumsum(exact.mass[: exact.kept])
    one_by_one = np.cumsum(fixed.mass[: fixed.kept], dtype=np.float64)
    near = (one_by_one / fixed.total + 2.0**-21).astype(np.float32)
    top_ps = np.unique([np.nextafter(near, np.float32(0)), near, np.nextafter(near, np.float32(2))])
    top_ps = top_ps[(top_ps > 2.0**-20) & (top_ps < 1)].astype(np.float64)
    need = (top_ps - 2.0**-21) * fixed.total
    end = np.searchsorted(one_by_one, need)
    parted: np.ndarray = end != np.searchsorted(units, np.ceil(need * 2.0**40).astype(np.uint64))
    return top_ps[parted]


@cache
def edge_question(kind: str) -> tuple[SampleRequest, Any, dict[str, Any], SampleOutput]:
    """Such nuclei: of masses that integers round, or that only sums round."""
    rng = np.random.default_rng(35)
    row, temperature = HARD[kind](rng, WIDE), EDGES[kind]
    top_ps = parting_top_ps(row, temperature)
    assert len(top_ps) >= 10
    rows = np.broadcast_to(row, (len(top_ps), WIDE))
    plan = make_plan(len(top_ps), top_p=top_ps, temperature=temperature, seed=range(len(top_ps)))
    return answered(make_request(rows, plan, WIDE, "fixed"), np.uint8(0), {})


@pytest.mark.parametrize("kind", EDGES)
def test_nuclei_that_end_where_float64_and_integers_part(engine: Engine, kind: str):
    compare(engine, edge_question(kind), kind)


@pytest.mark.parametrize("reduction", ["fixed", "fast"])
def test_kept_sets_do_not_depend_on_the_mode(engine: Engine, reduction: str):
    request = hard_request(33, 4097, tuple(HARD), reduction)
    exact = request._replace(reduction="exact")
    assert differing(REFERENCE.kept_sets(exact), engine.kept_sets(request)) == []


# ---------------------------------------------------------------- softmax and its kin


@cache
def softmax_question(
    reduction: str, dtype: str, size: int
) -> tuple[SampleRequest, dict[str, tuple[np.ndarray, np.ndarray]]]:
    rng = np.random.default_rng((34, size))
    n_rows = 40 if size < WIDE else 6
    values = DTYPES[dtype](rng, n_rows, size)
    if dtype == "float32":
        kinds = ("plateau", "seventy values", "nearly flat")
        values[:3] = [HARD[kind](rng, size) for kind in kinds]
    plan = make_plan(n_rows, temperature=random_temperatures(rng, n_rows))
    request = make_request(values, plan, size, reduction)
    return request, {
        name: REFERENCE.softmax(name, request) for name in ("softmax", "log_softmax", "logsumexp")
    }


@each("dtype", DTYPES)
@each("size", [1, 17, 129, 4097, 12_288, WIDE])
@pytest.mark.parametrize("reduction", BIT_FOR_BIT)
def test_softmax_log_softmax_and_logsumexp(engine: Engine, reduction, size, dtype):
    request, answers = softmax_question(reduction, dtype, size)
    for name, expected in answers.items():
        found = engine.softmax(name, request)
        assert all(map(same_bits, expected, found)), (name, engine)


def test_softmax_at_temperature_0(engine: Engine):
    values = np.float32([[1, 3, 3, -np.inf], [-1, -1e-40, 0, -0.0]])
    for reduction in ("fixed", "fast"):
        request = make_request(values, make_plan(2, temperature=[0.0, 1e-50]), 4, reduction)
        for name in ("softmax", "log_softmax"):
            assert all(
                map(same_bits, REFERENCE.softmax(name, request), engine.softmax(name, request))
            )
