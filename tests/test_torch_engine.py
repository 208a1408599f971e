"""The torch engine gives native's bits: random jobs, real rows, and the limbs of wide integers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from jobs import FORMS, alike, random_forms, random_job, random_status, random_top_count
from strategies import random_draws, random_filters
from support import HELD, Engine, differing, make_job, make_outcome, make_plan

from fastsample import reference

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from fastsample.torch_rule import limbs, mass, rows  # noqa: E402
from fastsample.torch_rule.head import Head  # noqa: E402
from fastsample.torch_rule.settings import MOST_IN_HEAD  # noqa: E402
from fastsample.torch_rule.whole import Whole  # noqa: E402

TORCH = Engine("torch")
HOLDER = next((engine for engine in HELD if engine.is_native), Engine("reference"))
"""What torch is held to here: native, which the oracle holds to the reference, if it is there."""

COLUMNS = (1, 2, 63, 64, 65, 128, 200, 1000, 3001)
WIDE = 151_936


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Small rows: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---------------------------------------------------------------- jobs


def check_job(seed: tuple[int, ...]) -> int:
    """Hold one random job's draws, all that is told of them, and kept sets; how many rows."""
    rng = np.random.default_rng(seed)
    mixed = rng.random() < 0.1
    n_rows = int(rng.integers(1, 9 if mixed else 97))
    job = random_job(rng, n_rows, int(rng.choice(COLUMNS)))
    job = job if mixed else alike(job)
    forms = random_forms(rng)
    draws = 1 if forms else int(rng.choice([1, 1, 3]))
    count = random_top_count(rng, job.vocabulary) if forms else 0
    status = random_status(rng, n_rows)
    outcomes = []
    for engine in (HOLDER, TORCH):
        out = make_outcome(n_rows, draws, forms, count)
        out.status[:] = status
        outcomes.append(engine.run(job, out))
    assert differing(*outcomes) == [], seed
    sets = [engine.kept_sets(job, status) for engine in (HOLDER, TORCH)]
    assert differing(*sets) == [], seed
    return n_rows


def check_jobs(first: int, cases: int) -> None:
    done, seed = 0, 0
    while done < cases:
        done += check_job((71, first, seed))
        seed += 1
    print(f"{done} cases equal on torch and {HOLDER.isa or HOLDER.name}")


def test_jobs() -> None:
    check_jobs(0, 5_000)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(1, 5))
def test_more_jobs(part: int) -> None:
    check_jobs(part, 25_000)


# ---------------------------------------------------------------- whole vocabularies


def check_rows(values: np.ndarray, rng: np.random.Generator) -> int:
    """Hold a batch of wide rows, each with settings of its own; how many rows."""
    plan = make_plan(len(values), **random_draws(rng, len(values)))
    for record in plan:
        for name, value in random_filters(rng, values.shape[1]).items():
            record[name] = value
    job = make_job(values, plan)
    expected, found = (
        engine.run(job, make_outcome(len(values), forms=FORMS, top_count=5))
        for engine in (HOLDER, TORCH)
    )
    assert differing(expected, found) == []
    assert differing(HOLDER.kept_sets(job), TORCH.kept_sets(job)) == []
    return len(values)


CHAINS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.0},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    {"top_k": MOST_IN_HEAD, "temperature": 1.5},
    {"top_k": MOST_IN_HEAD + 1, "temperature": 1.5},
    {"top_p": 0.9},
    {"min_p": 0.01},
    {"top_k": 40, "top_p": 0.9, "stages": ("top_p", "temperature", "top_k"), "temperature": 0.7},
    {"top_k": 3, "min_keep": 5000, "top_p": 0.5},
)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_every_way_to_a_draw_from_wide_rows(chain: dict[str, Any], dtype: Any) -> None:
    rng = np.random.default_rng(72)
    values = (rng.standard_normal((3, WIDE)) * 3).astype(dtype)
    values[1] = np.rint(values[1])
    plan = make_plan(3, **chain, seed=[1, 2, 3], position=[4, 5, 2**63])
    job = make_job(values, plan)
    expected, found = (
        engine.run(job, make_outcome(3, forms=FORMS, top_count=3)) for engine in (HOLDER, TORCH)
    )
    assert differing(expected, found) == []
    assert differing(HOLDER.kept_sets(job), TORCH.kept_sets(job)) == []


def check_recorded(seed: int, cases: int) -> None:
    """Hold rows of a real model, from the file that FASTSAMPLE_LOGITS names."""
    path = os.environ.get("FASTSAMPLE_LOGITS")
    if not path:
        pytest.skip("FASTSAMPLE_LOGITS is not set: no recorded rows")
    values = np.load(path, mmap_mode="r")
    rng = np.random.default_rng(seed)
    done = 0
    while done < cases:
        at = rng.integers(0, max(1, len(values) - 7))
        done += check_rows(np.array(values[at : at + 8]), rng)
    print(f"{done} cases of recorded rows equal")


def test_recorded_rows() -> None:
    check_recorded(73, 64)


@pytest.mark.nightly
def test_recorded_rows_often() -> None:
    check_recorded(74, 1_000)


# ---------------------------------------------------------------- limbs


def as_int64(numbers: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(numbers, np.uint64).view(np.int64))


EDGES = (0, 1, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64 - 1)


def test_uniform_is_philox() -> None:
    rng = np.random.default_rng(75)
    words = [int(word) for word in rng.integers(0, 2**64, 300, dtype=np.uint64)]
    seeds, positions = [*EDGES, *words], [*reversed(EDGES), *words[::-1]]
    streams = [number & limbs.WORD for number in seeds]
    places = list(zip(seeds, positions, streams, strict=True))
    for purpose in (0, 3):
        high, low = limbs.uniform(*map(as_int64, zip(*places, strict=True)), purpose)
        expected = [reference.uniform(*place, purpose) for place in places]
        found = [(a << 32) + b for a, b in zip(high.tolist(), low.tolist(), strict=True)]
        assert found == expected


def test_products_are_exact() -> None:
    rng = np.random.default_rng(76)
    us = [*EDGES, *(int(u) for u in rng.integers(0, 2**64, 500, dtype=np.uint64))]
    totals = [1, 2, 2**31 - 1, 2**31, 2**40, 2**61 + 12345, 2**62 - 1]
    totals += [int(total) for total in rng.integers(1, 2**62, 40)]
    shares = [0, 1, 2**30, 2**31 - 2**10, 2**31]
    for total in totals:
        w = torch.tensor([total])
        words = torch.tensor([u >> 32 for u in us]), torch.tensor([u & limbs.WORD for u in us])
        assert limbs.scaled(words, w).tolist() == [u * total >> 64 for u in us]
        needs = limbs.needed(torch.tensor(shares), w).tolist()
        assert needs == [-(-share * total >> 31) for share in shares]


# ---------------------------------------------------------------- numbers


def test_masses_are_the_reference_s() -> None:
    rng = np.random.default_rng(77)
    logits = np.concatenate(
        [-rng.exponential(9, 200_000), -np.arange(0, 70, 0.25), [-np.inf, 0]]
    ).astype(np.float32)
    for temperature in (1.0, 0.3, 1e-30, 7.0, 3e38):
        expected = reference.masses(logits, np.float32(0), temperature)[1]
        scale = mass.scale_of(torch.tensor([[temperature]], dtype=torch.float64))
        y = mass.gaps(torch.from_numpy(logits)[None], torch.zeros(1, 1), scale)
        found = mass.masses(y)[0].numpy().view(np.uint64)
        assert np.array_equal(found, expected), temperature


def test_logarithms_are_the_reference_s() -> None:
    numbers = np.exp(np.random.default_rng(78).uniform(-60, 60, 100_000))
    found = mass.ln(torch.from_numpy(numbers)).numpy()
    assert found.tobytes() == reference.ln(numbers).tobytes()


def test_parameters_round_as_the_reference_s() -> None:
    numbers = [0.8, 1e-40, 2.0**-150, 2.0**-149, 2.0**-126, 1 + 2.0**-24, 3e38, 1e300, -1e-41]
    found = mass.to_float32(torch.tensor(numbers, dtype=torch.float64)).tolist()
    with np.errstate(over="ignore"):
        assert found == [reference.to_float32(number) for number in numbers]


@pytest.mark.parametrize("flush", [False, True])
def test_denormals_are_read_as_0(flush: bool) -> None:
    row = np.float32([1e-40, -1e-40, -0.0, 2.0**-126, -(2.0**-126), np.nan, np.inf, -np.inf, 3])
    torch.set_flush_denormal(flush)
    try:
        found = rows.widened(torch.from_numpy(row)[None], len(row))[0, : len(row)].numpy()
    finally:
        torch.set_flush_denormal(False)
    assert found.tobytes() == reference.read(row).tobytes()


def test_first_tokens_are_in_order_among_ties() -> None:
    rng = np.random.default_rng(79)
    for size in (1, 64, 65, 5000):
        row = rng.integers(0, 3, size).astype(np.float32)
        for count in {1, min(7, size), min(200, size), size}:
            looked_at = rows.rows_of(rows.widened(torch.from_numpy(row)[None], size))
            tokens, _ = rows.first(looked_at, count)
            assert tokens[0].tolist() == reference.order(row)[:count].tolist()


@pytest.mark.parametrize("size", [2, 128, 4096])
@pytest.mark.parametrize("head", [False, True])
def test_draws_at_the_border_between_two_tokens(size: int, head: bool) -> None:
    """Equal masses: the first U of a token is its own, and the one before is the token before's."""
    looked_at = rows.rows_of(rows.widened(torch.zeros(1, size), size))
    tokens = Head(looked_at, size) if head else Whole(looked_at)
    kept, scale = tokens.finite(), torch.full((1, 1), mass.SCALE_OF_ONE)
    for token in (1, size // 2, size - 1):
        u = token * 2**64 // size
        words = torch.tensor([[u >> 32, (u - 1) >> 32]]), torch.tensor([[0, limbs.WORD]])
        drawn, total = tokens.draw(kept, scale, words)
        assert drawn.tolist() == [[token, token - 1]]
        assert total.tolist() == [[size * 2**40]]
