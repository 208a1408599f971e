"""`verify`: what it takes and tells, the cases that it is made of, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample.engines import is_installed, reference
from fastsample.verification import Report, run
from fastsample.verification import backends as ways
from fastsample.verification.baselines import PLAIN, Tally, plain_tokens
from fastsample.verification.calls import Answer, Doors, Way
from fastsample.verification.cases import (
    Case,
    cases_of,
    fixed_cases,
    given_case,
    good_rows,
    large_case,
    random_case,
)
from fastsample.verification.comparison import count_differences
from fastsample.verification.environment import conditions
from fastsample.verification.flush import flushes, flushing
from fastsample.verification.invariants import copies, thread_counts
from fastsample.verification.rows import KINDS, Dice, as_bfloat16, as_float16
from fastsample.verification.run import Proof, Wish, prove
from fastsample.verification.sharding import shard_count, ties_at_the_cut, uniforms
from tests.support.engines import native, usable_engines
from tests.support.fault_injection import other_mass, other_token

ROWS = np.random.default_rng(3).standard_normal((5, 700)).astype(np.float32) * 4

# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 17, 1000])
def test_rows_of_every_kind_are_good(kind: str, size: int) -> None:
    row = KINDS[kind](Dice(size), size)
    assert (row.shape, row.dtype) == ((size,), np.float32)
    assert reference.status(row) == reference.OK
    assert row.tobytes() == KINDS[kind](Dice(size), size).tobytes()


def hash_of(cases: list[Case]) -> str:
    digest = hashlib.sha256()
    for case in cases:
        for value in (case.rows, *case.settings.values()):
            for part in value if isinstance(value, tuple) else (value,):
                said = part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
                digest.update(said)
    return digest.hexdigest()[:16]


def test_fixed_cases_are_the_same_on_every_machine() -> None:
    """Made without a rounding and from raw words: these are golden bits."""
    assert hash_of(fixed_cases()) == "95217d5a277893ce"


def test_random_cases_are_many_and_made_again_by_name() -> None:
    cases = [random_case(number) for number in range(60)]
    assert {case.dtype for case in cases} == {"float32", "float16", "bfloat16"}
    assert {case.is_sequence for case in cases} == {True, False}
    assert len({kind for case in cases for kind in case.kinds}) == len(KINDS)
    assert any(0 in case.settings["temperature"] for case in cases)
    again = eval(cases[7].name, {"random_case": random_case})
    assert hash_of([again]) == hash_of([cases[7]])
    large = large_case(5)
    assert eval(large.name, {"large_case": large_case}).rows.tobytes() == large.rows.tobytes()
    large = fixed_cases()[-1]
    assert eval(large.name, {"fixed_cases": fixed_cases}).rows.tobytes() == large.rows.tobytes()


@pytest.mark.parametrize("number", range(60))
def test_a_case_is_what_it_says(number: int) -> None:
    case = random_case(number) if number % 10 else large_case(number)
    narrow = {"float32": np.array, "float16": as_float16, "bfloat16": as_bfloat16}[case.dtype]
    for row in case.rows:
        assert reference.status(row) == reference.OK
        assert narrow(row).tobytes() == row.tobytes()
    if case.is_sequence:
        assert not case.settings["stream"].any()
        assert set(np.diff(case.settings["position"])) == {1}
        assert len(set(case.settings["seed"])) == 1
    assert int(case.settings["stream"].max()) + case.draws < 2**32


def test_float16_refuses_what_it_cannot_hold() -> None:
    assert as_float16(np.float32([1.0, 1e6])) is None
    assert as_float16(np.float32([1.0, -np.inf])) is not None


# ---------------------------------------------------------------- the parts of a proof


def test_fixed_cases_have_whole_rows_as_long_as_models_have() -> None:
    wanted = [{}, {"top_p": 0.9}, {"min_p": 0.05}, {"temperature": 1.5, "top_p": 0.95}]
    for size in (32_000, 151_936):
        case = next(case for case in fixed_cases() if case.vocabulary == size)
        filters = [case.filters_of(row) for row in range(len(case.rows))]
        for whole in wanted:
            assert {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | whole in filters


def test_adjusted_rows_stay_good() -> None:
    cases = [case for case in map(random_case, range(100)) if case.is_adjusted]
    assert len(cases) > 5
    for case in cases:
        assert fastsample.sample(case.rows, **case.settings).tokens.min() >= 0


def test_a_row_of_a_file_is_named() -> None:
    assert given_case(ROWS, [3, 1], 0).kinds == ("given, row 3", "given, row 1")


def test_an_engine_on_a_gpu_is_not_asked_in_a_fork() -> None:
    """CUDA refuses a child whose parent has it in use: that says nothing of the engine."""
    here = os.getpid()

    def only_here(door: Any) -> Any:
        def asked(*given: Any, **how: Any) -> Any:
            assert os.getpid() == here, "Cannot re-initialize CUDA in forked subprocess"
            return door(*given, **{**how, "engine": "reference"})

        return asked

    doors = Doors(sample=only_here(fastsample.sample), sampler=only_here(fastsample.Sampler))
    case = random_case(21)
    assert case.is_sequence
    held = list(copies([Way(doors, "triton", None, "exact")], case, Answer()))
    assert {one.variant for one in held} == {"Sampler pickled", "Sampler cloned"}
    facts = conditions(ways.Engines([], [("triton", None)], {}), 1, [])
    assert "fork of triton" in facts["not_covered"]


def test_only_an_engine_with_threads_is_asked_for_them() -> None:
    case = random_case(5)
    for engine in ("reference", "numba"):
        assert not list(thread_counts(Way(Doors(), engine, None, "exact"), case))
    reference_alone = conditions(ways.Engines([("reference", None)], [], {}), 1, [])
    assert reference_alone["threads"] == [1]
    assert "threads of reference" in reference_alone["not_covered"]


@pytest.mark.skipif(not native, reason="the extension is absent")
def test_two_proofs_at_once_give_the_limit_of_threads_back() -> None:
    before = native.most_threads()
    first, second = ways.threads_allowed(), ways.threads_allowed()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert native.most_threads() == max(before, ways.MOST_THREADS)
    second.__exit__(None, None, None)
    assert native.most_threads() == before


def test_there_are_random_cases_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "fixed_cases", lambda: [random_case(5)])
    monkeypatch.setattr(Proof, "hold_wide", lambda self: None)
    report = prove(Wish(1e-9, 1, quick=True))
    assert (report.fixed_cases, report.random_cases) == (1, run.LEAST_RANDOM)


def test_uniforms_are_the_reference_s() -> None:
    for seed, position, stream in [(0, 0, 0), (2**64 - 1, 2**63 + 5, 2**32 - 9), (7, 3, 1)]:
        expected = [reference.uniform(seed, position, stream + n) for n in range(5)]
        assert uniforms(seed, position, stream, 5) == expected


def test_flushing_is_over_after_the_block() -> None:
    with flushing() as flushed:
        assert flushes() == flushed
    assert not flushes()


def test_ties_at_the_cut_are_seen() -> None:
    rows = np.float32([[3, 1, 1, 0], [3, 2, 1, 0], [1, 1, 0, 0]])
    settings: dict[str, Any] = dict.fromkeys(("temperature", "top_p"), np.ones(3))
    settings |= {"min_p": np.zeros(3), "top_k": np.array([2, 2, 2])}
    settings |= {name: np.zeros(3, np.uint64) for name in ("seed", "position", "stream")}
    case = Case("", rows, ("",) * 3, settings, 1, "float32", False)
    expected = Way(Doors(), "reference", None, "exact").whole(case)
    assert ties_at_the_cut(case, expected) == [True, False, False]


def test_no_more_shards_than_tokens() -> None:
    assert [shard_count(size) for size in (1, 2, 3, 4, 5, 300)] == [1, 2, 2, 3, 5, 2]


def test_differences_are_counted_by_bits() -> None:
    zeros, nans = np.array([0.0, 1.0, 2.0]), np.array([np.nan, 1.0])
    assert count_differences((zeros,), (np.array([-0.0, 1.0, 3.0]),)) == 2
    assert count_differences((nans,), (nans.copy(),)) == 0
    assert count_differences((np.arange(3),), (np.arange(5),)) == 5


def test_a_tally_counts_draws_and_keeps_the_first() -> None:
    case = random_case(5)
    exact = Answer(tokens=np.zeros((len(case.rows), 4), np.int64))
    tally = Tally(PLAIN)
    tokens = np.zeros((len(case.rows), 4), np.int64)
    tokens[0], tokens[2, 1], tokens[3, 3] = -1, 9, 8
    tally.add(case, exact, tokens)
    shown = tally.shown()
    assert (shown.draws, shown.differ) == (4 * (len(case.rows) - 1), 2)
    assert shown.first is not None
    assert (shown.first.row, shown.first.expected, shown.first.got) == (2, "0", "9")
    assert shown.first.stream == int(case.settings["stream"][2]) + 1


def test_plain_float32_draws_by_the_same_numbers() -> None:
    """Where masses are far apart it draws the same; over many draws it does not always."""
    row = np.log(np.float32([0.5, 0.25, 0.25]))
    case = given_case(row[None], [0, 0], 4)
    settings = {**case.settings, "top_k": np.zeros(2, int), "temperature": np.ones(2)}
    settings |= {"top_p": np.ones(2), "min_p": np.zeros(2)}
    case = Case("", case.rows, case.kinds, settings, 64, "float32", False)
    drawn = fastsample.sample(case.rows, **settings, n=64).tokens
    assert np.array_equal(plain_tokens(case), drawn)
    report = proved([random_case(22)])
    plain = next(one for one in report.shown if one.name == PLAIN)
    assert 0 < plain.differ < plain.draws


def proved(cases: list[Case]) -> Report:
    proof = Proof(Wish(1.0, 0, quick=True))
    for case in cases:
        proof.hold(case)
    return proof.report("", None)


def test_large_rows_hold() -> None:
    report = proved([large_case(1)])
    assert report.ok
    assert report.logits == 3 * large_case(1).vocabulary
    assert f"vocabularies above {large_case(1).vocabulary:,}" in report.conditions["not_covered"]


# ---------------------------------------------------------------- the fingerprint


def engine_sets() -> list[dict[str, Any]]:
    """What the table of engines may hold: each engine alone, on each of its instruction sets."""
    found = {engine.name: [] for engine in usable_engines()}
    for engine in usable_engines():
        found[engine.name].append(engine.isa)
    sets: list[dict[str, Any]] = [{}]
    for name, isas in found.items():
        if name in ("native", "numba"):
            sets += [{name: lambda _quick, isa=isa: ((isa,), "")} for isa in isas]
    return sets


def test_every_engine_gives_the_same_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    prints = set()
    for engines in engine_sets():
        monkeypatch.setattr(ways, "ENGINES", engines)
        prints.add(Proof(Wish(1.0, 0)).fingerprint([random_case(11), random_case(12)]))
    assert len(prints) == 1


def test_the_fingerprint_sees_a_token_and_a_mass() -> None:
    def fingerprint(doors: Doors) -> str:
        return Proof(Wish(1.0, 0, quick=True, doors=doors)).fingerprint([random_case(3)])

    honest = fingerprint(Doors())
    assert fingerprint(other_token(lambda _, how: how.get("logprobs") is None)) != honest
    assert fingerprint(other_mass(lambda _rows, _how: True)) != honest


# ---------------------------------------------------------------- the whole


@pytest.fixture(scope="module")
def quick() -> tuple[Report, float]:
    started = perf_counter()
    report = fastsample.verify(ROWS, quick=True, seed=4)
    return report, perf_counter() - started


def test_quick_holds(quick: tuple[Report, float]) -> None:
    report, seconds = quick
    assert report.ok
    assert all(line.covered for line in report.invariants if native)
    assert (report.fixed_cases, report.given_cases >= 2) == (13, True)
    assert report.random_cases >= run.LEAST_RANDOM
    assert report.tokens > 300_000
    assert report.tokens == sum(line.tokens for line in report.invariants)
    assert 0 < report.seconds < seconds + 0.01
    print(f"verify(quick=True): {seconds:.1f} s, {report.tokens:,} tokens")


def test_the_fingerprint_is_golden(quick: tuple[Report, float]) -> None:
    """Equal on every machine, with any engine; another one is another rule, or other cases."""
    assert quick[0].fingerprint.startswith("ad859f00c25127174ffb1985")


def test_own_rows_have_a_fingerprint_of_their_own(quick: tuple[Report, float]) -> None:
    report = quick[0]
    assert report.logits_fingerprint not in (None, report.fingerprint)
    proof = Proof(Wish(1.0, 0, quick=True))
    assert proof.fingerprint(cases_of(ROWS, list(range(5)))) == report.logits_fingerprint


def test_conditions_tell_what_it_holds_for(quick: tuple[Report, float]) -> None:
    facts = quick[0].conditions
    info = fastsample.info()
    assert facts["fastsample"] == info["version"]
    assert (facts["rule_version"], facts["numpy"]) == (info["rule_version"], np.__version__)
    assert facts["isa_usable"] == list(info["isa_usable"])
    assert facts["threads"] == [1, 2, 3, 8]
    assert {"cpu", "python", "system", "dtypes", "engines", "not_covered"} <= facts.keys()
    assert "reference" in facts["engines"]
    for engine in usable_engines():
        assert engine.name in facts["engines"] or engine.name in facts["not_covered"]
    assert ("torch" in facts["engines"]) == is_installed("torch")
    if is_installed("torch"):
        assert facts["torch"] == f"{info['torch']} on the CPU"
        assert {"threads of torch", "fixed and fast of torch"} <= facts["not_covered"].keys()


def test_a_report_is_json(quick: tuple[Report, float]) -> None:
    report = quick[0]
    again = json.loads(json.dumps(report.as_dict()))
    assert again["tokens"] == report.tokens
    assert [line["invariant"] for line in again["invariants"]] == [
        line.invariant for line in report.invariants
    ]
    assert again["invariants"][0]["groups"][0][0] == "reference"


def test_the_seed_makes_the_random_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[str] = []
    monkeypatch.setattr(Proof, "fingerprint", lambda self, cases: "")
    monkeypatch.setattr(Proof, "hold_wide", lambda self: None)
    monkeypatch.setattr(Proof, "hold", lambda self, case, origin: held.append(case.name))
    monkeypatch.setattr(Proof, "elapsed", property(lambda self: len(held) % 5))
    for seed in (1, 1, 2):
        prove(Wish(4.0, seed, quick=True))
        held.append("")
    first, second, third = held[:4], held[5:9], held[10:14]
    assert first == second != third
    assert len(set(first)) == 4
    again = eval(first[0], {"random_case": random_case})
    assert hash_of([again]) == hash_of([eval(second[0], {"random_case": random_case})])


def test_minutes_go_on_and_progress_is_told() -> None:
    told: list[tuple[float, int]] = []
    fastsample.verify(minutes=0.02, seed=1, progress=lambda *said: told.append(said))
    shares, tokens = zip(*told, strict=True)
    assert list(tokens) == sorted(tokens) and tokens[0] > 0
    assert list(shares) == sorted(shares) and shares[-1] <= 1


def test_bad_rows_are_left_out() -> None:
    rows = np.concatenate([np.full((1, 700), np.nan, np.float32), ROWS[:1]])
    assert good_rows(rows) == [1]
    assert good_rows(np.zeros((6_400, 3), np.float32)) == list(range(0, 6_400, 100))
    (case,) = cases_of(rows, [1])
    assert case.name == "given_case(logits, [1], 0)"
    assert case.rows[0].tobytes() == ROWS[0].tobytes()
