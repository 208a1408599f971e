"""`verify`: its arguments and report, the cases that it is made of, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from itertools import islice
from time import perf_counter
from typing import Any
from unittest import mock

import numpy as np
import pytest

import fastsample
from fastsample.api.threads import threads_allowed
from fastsample.engines import ENGINES, is_installed, reference
from fastsample.params.ops import DrawMethod
from fastsample.verification import cases
from fastsample.verification.backends import THREADS, describe_environment
from fastsample.verification.baselines import PLAIN, plain_tokens
from fastsample.verification.calls import Backend, PublicApi
from fastsample.verification.cases import (
    FILTERS,
    Case,
    fixed_cases,
    fixed_logits_cases,
    large_case,
    logits_case,
    small_case,
    valid_rows,
)
from fastsample.verification.comparison import Report
from fastsample.verification.flush import flushes, flushing
from fastsample.verification.invariants import copies, expected_results, thread_counts
from fastsample.verification.rows import KINDS, RandomWords, as_bfloat16, as_float16
from fastsample.verification.run import LEAST_RANDOM, Verification
from fastsample.verification.sharding import has_tie, shard_count, uniforms
from tests.support.engines import native, usable_engines
from tests.support.fault_injection import always, other_mass, other_token

ROWS = np.random.default_rng(3).standard_normal((5, 700)).astype(np.float32) * 4

# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 17, 1000])
def test_rows_of_every_kind_are_valid(kind: str, size: int) -> None:
    row = KINDS[kind](RandomWords(size), size)
    assert (row.shape, row.dtype) == ((size,), np.float32)
    assert reference.status(row) == reference.OK
    assert row.tobytes() == KINDS[kind](RandomWords(size), size).tobytes()


def hash_of(some_cases: list[Case]) -> str:
    """Of rows and parameters but the draw, which rule 1 did not have."""
    digest = hashlib.sha256()
    for case in some_cases:
        parameters = [value for name, value in case.settings.items() if name != "draw"]
        for value in (case.rows, *parameters):
            for part in value if isinstance(value, tuple) else (value,):
                is_array = isinstance(part, np.ndarray)
                digest.update(part.tobytes() if is_array else repr(part).encode())
    return digest.hexdigest()[:16]


def test_fixed_cases_are_the_same_on_every_machine() -> None:
    """Made without a rounding and from raw words: these are golden bits."""
    assert hash_of(of_rule_1()) == "95217d5a277893ce"
    assert hash_of(fixed_cases()) == "6c67971cc32eb7ff"


def of_rule_1() -> list[Case]:
    """The fixed cases of rule 1: all that are not drawn by race."""
    return [case for case in fixed_cases() if not case.is_race]


def test_fixed_cases_do_not_change_with_new_filters_and_kinds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(cases.MORE_FILTERS, "new_filter", (0.0, 0.5))
    monkeypatch.setitem(KINDS, "new kind", KINDS["bell"])
    assert hash_of(of_rule_1()) == "95217d5a277893ce"
    assert hash_of(fixed_logits_cases(ROWS, range(5))) == "7df47ef6faf10d2b"
    random = [small_case(number) for number in range(1000, 1040)]
    assert any("new_filter" in case.settings for case in random)
    assert any("new_filter" in case.settings.get("stages", ()) for case in random)
    assert any("new kind" in case.kinds for case in random)
    assert not any(case.is_plain for case in random if "new_filter" in case.settings)


def test_more_filters_have_values_on_and_off() -> None:
    for name, pool in cases.MORE_FILTERS.items():
        off = cases.BY_NAME[name].off[0]
        assert off in pool and any(value != off for value in pool)
        assert name not in FILTERS


def test_random_cases_vary_and_are_reproduced_by_name() -> None:
    random = [small_case(number) for number in range(1000, 1060)]
    assert {case.dtype for case in random} == {"float32", "float16", "bfloat16"}
    assert {case.is_sequence for case in random} == {True, False}
    assert len({kind for case in random for kind in case.kinds}) == len(KINDS)
    assert any(0 in case.settings["temperature"] for case in random)
    some = (random[7], large_case(1005), random[8].by_race())
    for case in (*some, fixed_cases()[3], fixed_cases()[-1]):
        assert hash_of([eval(case.name, vars(cases))]) == hash_of([case])


REFERENCE: list[Any] = [("reference", None)]


def test_cases_by_race() -> None:
    """Their expected tokens are those of `sample`, and the rest is that of the case without."""
    case = small_case(1006)
    race = case.by_race()
    assert (race.is_race, case.is_race) == (True, False)
    by_race, inverse = expected_results(race, "exact"), expected_results(case, "exact")
    how: dict[str, Any] = {"draw": "race", "n": case.draws, "engine": "reference"}
    drawn = fastsample.sample(case.rows, **{**case.settings, **how}).tokens
    assert by_race["token"].tolist() == drawn.tolist() != inverse["token"].tolist()
    assert by_race["masses"].tolist() == inverse["masses"].tolist()
    assert np.array_equal(by_race["softmax"], inverse["softmax"])


def test_fixed_races_are_listed_and_not_sequences_and_adjusted() -> None:
    races = [case for case in fixed_cases() if case.is_race]
    listed = [
        reference.is_listed(case.vocabulary, **case.filters(b))
        for case in races
        for b in range(len(case.rows))
    ]
    assert min(sum(listed), len(listed) - sum(listed)) >= 10
    assert any(case.is_sequence for case in races) and any("mask" in one.settings for one in races)
    assert any(case.is_large for case in races)


def test_random_cases_are_of_both_draws_where_every_engine_has_them() -> None:
    verification = Verification(quick=True, engines=REFERENCE, logits=ROWS, valid_rows=range(5))
    some = [case.is_race for _, case in islice(verification.random_cases(), 40)]
    assert some.count(True) == 20
    assert "random cases by race" not in verification.report().environment["not_covered"]
    old = replace(ENGINES["numba"], draws=(DrawMethod.INVERSE,))
    with mock.patch.dict(ENGINES, numba=old):
        verification = Verification(quick=True, engines=[*REFERENCE, ("numba", None)])
        some = [case.is_race for _, case in islice(verification.random_cases(), 40)]
        assert not any(some)
        assert "random cases by race" in verification.report().environment["not_covered"]
        race = small_case(1).by_race()
        names = [[one.engine for one in verification.backends("exact", c)] for c in (race, None)]
        assert names == [["reference"], ["reference", "numba"]]


def test_a_fault_of_races_alone_is_found() -> None:
    faulty = other_token(lambda _, options: options["draw"] == "race")
    for case, is_found in ((small_case(6).by_race(), True), (small_case(6), False)):
        verification = Verification(engines=REFERENCE, api=faulty)
        verification.check(case)
        first = verification.report().invariants[0].first
        assert (first is not None) is is_found
        assert first is None or (first.case, first.parameters["draw"]) == (case.name, "race")


@pytest.mark.parametrize("number", range(60))
def test_a_case_is_what_it_says(number: int) -> None:
    case = small_case(number) if number % 10 else large_case(number)
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


def test_fixed_cases_have_rows_as_long_as_models_have_without_top_k() -> None:
    wanted = [{}, {"top_p": 0.9}, {"min_p": 0.05}, {"temperature": 1.5, "top_p": 0.95}]
    for size in (32_000, 151_936):
        case = next(case for case in fixed_cases() if case.vocabulary == size)
        filters = [case.filters(row) for row in range(len(case.rows))]
        for some in wanted:
            assert {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | some in filters


def test_adjusted_rows_stay_valid() -> None:
    adjusted = [case for case in map(small_case, range(100)) if "mask" in case.settings]
    assert len(adjusted) > 5
    for case in adjusted:
        assert fastsample.sample(case.rows, **case.settings).tokens.min() >= 0


def test_a_row_of_the_logits_is_named() -> None:
    assert logits_case(ROWS, [3, 1], 0).kinds == ("row 3 of the logits", "row 1 of the logits")


def test_invalid_rows_are_left_out() -> None:
    rows = np.concatenate([np.full((1, 700), np.nan, np.float32), ROWS[:1]])
    assert valid_rows(rows) == [1]
    assert valid_rows(np.zeros((6_400, 3), np.float32)) == list(range(0, 6_400, 100))
    (case,) = fixed_logits_cases(rows, [1])
    assert case.name == "logits_case(logits, [1], 0)"
    assert case.rows[0].tobytes() == ROWS[0].tobytes()


# ---------------------------------------------------------------- parts


def test_an_engine_on_a_gpu_is_not_checked_in_a_fork() -> None:
    """CUDA refuses a forked process whose parent has it in use: that is no fault of the engine."""
    parent = os.getpid()

    def only_here(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            assert os.getpid() == parent, "Cannot re-initialize CUDA in forked subprocess"
            return function(*arguments, **{**options, "engine": "reference"})

        return call

    api = PublicApi(sample=only_here(fastsample.sample), sampler=only_here(fastsample.Sampler))
    case = small_case(21)
    assert case.is_sequence
    gpu = Backend(api, "triton", None, "exact")
    checks = list(copies([gpu], case, {}))
    assert {check.variant for check in checks} == {"Sampler pickled", "Sampler cloned"}
    assert "fork of triton" in describe_environment([gpu], {})["not_covered"]


def test_only_engines_with_threads_are_checked_with_threads() -> None:
    alone = [Backend(PublicApi(), "reference", None, "exact")]
    assert not list(thread_counts(alone, small_case(5), {}))
    environment = describe_environment(alone, {})
    assert environment["threads"] == [1]
    assert "threads of reference" in environment["not_covered"]


@pytest.mark.skipif(not native, reason="the extension is absent")
def test_two_runs_at_once_restore_the_limit_of_threads() -> None:
    before = native.most_threads()
    first, second = threads_allowed(max(THREADS)), threads_allowed(max(THREADS))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert native.most_threads() == max(before, *THREADS)
    second.__exit__(None, None, None)
    assert native.most_threads() == before


def test_an_engine_without_a_stage_is_not_checked_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    verification = Verification(engines=[("reference", None)])
    assert verification.backends("exact", small_case(5))
    monkeypatch.setattr(Case, "ops", {"an op that no engine has"})
    assert not verification.backends("exact", small_case(5), with_default=True)


def test_uniforms_are_the_reference_s() -> None:
    for seed, position, stream in [(0, 0, 0), (2**64 - 1, 2**63 + 5, 2**32 - 9), (7, 3, 1)]:
        expected = [reference.uniform(seed, position, stream + n) for n in range(5)]
        assert uniforms({"seed": seed, "position": position, "stream": stream}, 5) == expected


@pytest.mark.parametrize("reduction", ["exact", "fixed"])
def test_expected_results_are_the_reference_engine_s(reduction: str) -> None:
    engine = Backend(PublicApi(), "reference", None, reduction)
    for case in (small_case(5), small_case(21)):
        expected = expected_results(case, reduction)
        for name, array in (engine.everything(case) | engine.functions(case)).items():
            assert array.tobytes() == expected[name].tobytes(), name


def test_flushing_is_over_after_the_block() -> None:
    with flushing() as flushed:
        assert flushes() == flushed
    assert not flushes()


def test_ties_at_the_cut_are_seen() -> None:
    row = np.float32([3, 1, 1, 0])
    assert has_tie(row, np.array([0, 1]))
    assert not has_tie(row, np.array([0, 1, 2]))
    assert has_tie(np.float32([1, 1, 0]), np.array([1, 2]))


def test_no_more_shards_than_tokens() -> None:
    assert [shard_count(size) for size in (1, 2, 3, 4, 5, 300)] == [1, 2, 2, 3, 5, 2]


def test_plain_float32_draws_with_the_same_numbers() -> None:
    """Where masses are far apart it draws the same; over many draws it does not always."""
    row = np.log(np.float32([0.5, 0.25, 0.25]))
    settings = {name: np.zeros(1, np.uint64) for name in cases.RNG}
    settings |= {name: np.array([value]) for name, value in cases.OFF.items()} | cases.INVERSE
    case = Case("", row[None], ("",), settings, 64)
    drawn = fastsample.sample(case.rows, **settings, n=64).tokens
    assert np.array_equal(plain_tokens(case, 0), drawn[0])
    report = checked([small_case(22)])
    plain = next(one for one in report.baselines if one.invariant == PLAIN)
    assert 0 < plain.mismatches < plain.tokens


def checked(some_cases: list[Case]) -> Report:
    verification = Verification(quick=True)
    for case in some_cases:
        verification.check(case)
    return verification.report()


def test_large_rows_are_equal() -> None:
    report = checked([large_case(1)])
    assert report.ok
    assert report.logits == 3 * large_case(1).vocabulary
    not_covered = report.environment["not_covered"]
    assert f"vocabularies above {large_case(1).vocabulary:,}" in not_covered


# ---------------------------------------------------------------- the fingerprint


def engine_lists() -> list[list[Any]]:
    """Each engine of this process alone, on each of its instruction sets, and the reference."""
    found = usable_engines()
    names = ("native", "numba", "reference")
    return [[(one.name, one.isa)] for one in found if one.name in names]


def test_every_engine_gives_the_same_fingerprint() -> None:
    some = [small_case(11), small_case(12)]
    prints = {Verification(engines=engines).fingerprint(some) for engines in engine_lists()}
    assert len(prints) == 1


def test_the_fingerprint_depends_on_tokens_and_masses() -> None:
    def fingerprint(api: PublicApi) -> str:
        return Verification(quick=True, api=api).fingerprint([small_case(3)])

    expected = fingerprint(PublicApi())
    assert fingerprint(other_token(lambda _, o: o.get("logprobs") is None)) != expected
    assert fingerprint(other_mass(always)) != expected


# ---------------------------------------------------------------- all of it


@pytest.fixture(scope="module")
def quick() -> tuple[Report, float]:
    started = perf_counter()
    report = fastsample.verify(ROWS, quick=True, seed=4)
    return report, perf_counter() - started


def test_a_quick_run_is_ok(quick: tuple[Report, float]) -> None:
    report, seconds = quick
    assert report.ok
    assert all(line.covered for line in report.invariants if native)
    assert (report.cases["fixed"], report.cases["logits"] >= 2) == (19, True)
    assert report.cases["random"] >= LEAST_RANDOM
    assert report.tokens > 300_000
    assert report.tokens == sum(line.tokens for line in report.invariants)
    assert 0 < report.seconds < seconds + 0.01
    print(f"verify(quick=True): {seconds:.1f} s, {report.tokens:,} tokens")


def test_the_fingerprint_is_golden(quick: tuple[Report, float]) -> None:
    """Equal on every machine, with any engine; another one is another rule, or other cases."""
    assert quick[0].fingerprint.startswith("dde34d758299557f541dc93f")


def test_the_fingerprint_of_rule_1_holds() -> None:
    """Draws by the inverse method are those of rule 1: this is its fingerprint."""
    assert Verification().fingerprint(of_rule_1()).startswith("ad859f00c25127174ffb1985")


def test_own_rows_have_a_fingerprint_of_their_own(quick: tuple[Report, float]) -> None:
    report = quick[0]
    assert report.logits_fingerprint not in (None, report.fingerprint)
    own = Verification(quick=True).fingerprint(fixed_logits_cases(ROWS, range(5)))
    assert own == report.logits_fingerprint


def test_the_environment_is_described(quick: tuple[Report, float]) -> None:
    facts, info = quick[0].environment, fastsample.info()
    for name in ("version", "rule_version", "isa", "isa_usable", "cpu", "torch"):
        assert facts[name] == info[name]
    assert facts["numpy"] == np.__version__
    assert facts["threads"] == [1, 2, 3, 8]
    assert {"python", "system", "dtypes", "backends", "not_covered"} <= facts.keys()
    for engine in usable_engines():
        label = Backend(PublicApi(), engine.name, engine.isa, "exact").label
        assert label in [*facts["backends"], "reference"] or engine.name in facts["not_covered"]
    assert ("torch" in facts["backends"]) == is_installed("torch")
    if is_installed("torch"):
        assert {"threads of torch", "fixed, fast of torch"} <= facts["not_covered"].keys()


def test_a_report_is_json(quick: tuple[Report, float]) -> None:
    report = quick[0]
    again = json.loads(json.dumps(report.as_dict()))
    assert again["tokens"] == report.tokens
    assert [line["invariant"] for line in again["invariants"]] == [
        line.invariant for line in report.invariants
    ]
    assert again["invariants"][0]["groups"][0][0] == "reference"
    assert {"name", "deviations"}.isdisjoint(again["invariants"][0])


def test_there_are_random_cases_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "fixed_cases", lambda: [small_case(5)])
    monkeypatch.setattr(cases, "flat_case", lambda _: small_case(5))
    report = Verification(1e-9, 1, quick=True).run()
    assert (report.cases["fixed"], report.cases["random"]) == (1, LEAST_RANDOM)


def test_the_seed_makes_the_random_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr(Verification, "check_fixed", lambda self: ("", None))
    monkeypatch.setattr(Verification, "elapsed", property(lambda self: len(names) % 5))

    def check(self: Verification, case: Case, origin: str) -> None:
        names.append(case.name)

    monkeypatch.setattr(Verification, "check", check)
    for seed in (1, 1, 2):
        Verification(4.0, seed, engines=[("reference", None)]).run()
        names.append("")
    first, second, third = names[:4], names[5:9], names[10:14]
    assert first == second != third
    assert len(set(first)) == 4
    assert hash_of([eval(first[1], vars(cases))]) == hash_of([eval(second[1], vars(cases))])


def test_minutes_are_a_time_and_progress_is_reported() -> None:
    calls: list[tuple[float, int]] = []
    fastsample.verify(minutes=0.02, seed=1, progress=lambda *call: calls.append(call))
    shares, tokens = zip(*calls, strict=True)
    assert list(tokens) == sorted(tokens) and tokens[0] > 0
    assert list(shares) == sorted(shares) and shares[-1] <= 1
