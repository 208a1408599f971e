"""Published cases that need more than one call: a test each, which names the case it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastsample
from tests.support.border_checks import EXACT_DRAWS
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.goodness_of_fit import chi_square_tail, g_statistic
from tests.support.published_tables import ALL, BY_ID, arguments_of, how, logits_of, of_type

F32 = np.float32
COVERED = {"distribution", "batch", "inverse_cdf", "logprobs", "mass"}  # by test_cases
BY_HAND: set[str] = set()


def case(name: str) -> tuple[np.ndarray, dict[str, Any]]:
    """A case's row and arguments."""
    row = logits_of(BY_ID[name])
    return row, arguments_of(BY_ID[name], len(row))


def covers(*names: str) -> Any:
    """Note that a test is those cases."""
    BY_HAND.update(names)
    return pytest.mark.parametrize("name", names) if len(names) > 1 else lambda test: test


def steps(row: np.ndarray, n_steps: int, engine: Engine, **arguments: Any) -> list[Any]:
    """Tokens at the positions 0, 1, ..."""
    return [
        fastsample.sample(row, position=position, **arguments, **how(engine)).tokens.tolist()
        for position in range(n_steps)
    ]


# ---------------------------------------------------------------- parameters


@covers("TP-16")
def test_flat_row(engine: Engine):
    row, arguments = case("TP-16")
    kept = fastsample.kept_set(row, **arguments, **how(engine)).tokens.tolist()
    assert kept == [*range(475)]


@covers("TE-08")
def test_infinite_temperature_is_an_error(engine: Engine):
    row, arguments = case("TE-08")
    with pytest.raises(ValueError, match="`temperature` must be"):
        fastsample.sample(row, **arguments, **how(engine))


@covers("AP-01")
@pytest.mark.parametrize("parameter", ["top_p", "min_p", "temperature"])
def test_nan_parameters_are_errors(engine: Engine, parameter):
    row = logits_of(BY_ID["AP-01"])
    with pytest.raises(ValueError, match=f"`{parameter}` must be .*nan"):
        fastsample.sample(row, **{parameter: float("nan")}, **how(engine))


@covers("AP-07", "AP-08")
def test_parameters_of_another_shape_are_errors(engine: Engine, name):
    setup = BY_ID[name]["setup"]
    rows = np.zeros((setup["B"], 4), dtype=F32)
    for parameters in setup["param_sets"]:
        (parameter,) = parameters
        with pytest.raises((TypeError, ValueError), match=f"`{parameter}` must "):
            fastsample.sample(rows, **parameters, seed=0, position=0, stream="row", **how(engine))


@covers("AP-12", "AP-03")
def test_tokens_outside_the_row_are_errors(engine: Engine, name):
    rows = np.zeros((2, 5), dtype=F32)
    before = rows.tobytes()
    for outside in (5, -1, 2**40):
        with pytest.raises(ValueError, match=r"`bias` must .*row 0"):
            fastsample.sample(rows, bias=[{outside: -np.inf}, {}], **how(engine))
        for history in ("prompt", "output"):
            with pytest.raises(ValueError, match=rf"`{history}` must .*row 1"):
                fastsample.sample(rows, **{history: [[0], [outside]]}, **how(engine))
    assert rows.tobytes() == before


@covers("AP-05")
def test_rows_further_apart_than_they_are_long(engine: Engine):
    padded = np.full((16, 4104), -1000, dtype=F32)
    view = padded[:, :4096]
    view[...] = np.linspace(10, -10, 4096) + np.arange(16)[:, np.newaxis] / 1000
    settings = {"top_k": 154, "top_p": 0.95, **how(engine)}
    one, other = (fastsample.kept_set(rows, **settings) for rows in (view, view.copy()))
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.masses.tolist() == other.masses.tolist()
    draws = {"seed": 3, "position": 0, "stream": "row"}
    one, other = (fastsample.sample(rows, **settings, **draws) for rows in (view, view.copy()))
    assert one.tokens.tolist() == other.tokens.tolist()


@covers("PR-10")
def test_a_vocabulary_past_the_limit_is_an_error(engine: Engine):
    row = np.broadcast_to(F32(0), (16_777_217,))
    with pytest.raises(ValueError, match=r"`logits` must .*16777217"):
        fastsample.sample(row, **how(engine))


# ---------------------------------------------------------------- rows that are not finite


@covers("NF-01", "NF-04", "NF-05", "NF-07", "NF-08", "NF-09")
def test_bad_rows_give_no_token(engine: Engine, name):
    row, arguments = case(name)
    with pytest.raises(ValueError, match=r"`logits` (holds (nan|inf) at|is -inf at every) token"):
        fastsample.sample(row, **arguments, **how(engine))
    for position in range(4):
        marked = fastsample.sample(
            row,
            **arguments,
            seed=1,
            position=position,
            on_invalid="mark",
            logprobs=0,
            **how(engine),
        )
        assert int(marked.tokens) == -1
        assert int(marked.status) == (2 if name == "NF-05" else 1)
        assert np.isnan(marked.logprobs)


# ---------------------------------------------------------------- the draw


@covers("DR-05", "DR-09")
def test_ten_million_draws_without_the_impossible_one(engine: Engine, name):
    row, _ = case(name)
    n = 10_000_000 if engine.is_native else 3000
    tokens = fastsample.sample(row, seed=5, position=0, n=n, **how(engine)).tokens
    counts = np.bincount(tokens, minlength=len(row))
    assert counts[BY_ID[name]["expect"]["never"]].tolist() == [0]
    assert np.count_nonzero(counts) == len(row) - 1


@covers("DR-06")
def test_many_rows_with_one_possible_token(engine: Engine):
    n_rows = BY_ID["DR-06"]["setup"]["repeat_rows"] if engine.is_native else 1000
    rows = np.broadcast_to(case("DR-06")[0], (n_rows, 2))
    result = fastsample.sample(rows, seed=5, position=0, stream="row", **how(engine))
    assert np.all(result.tokens == BY_ID["DR-06"]["expect"]["token"])


@covers("DR-08")
@pytest.mark.parametrize("word", EXACT_DRAWS)
def test_the_ends_of_a_random_word(engine: Engine, word):
    seed, position, stream = EXACT_DRAWS[word]
    result = fastsample.sample(
        case("DR-08")[0], seed=seed, position=position, stream=stream, **how(engine)
    )
    assert int(result.tokens) == 0


@covers("DR-11")
@each(
    "filters",
    [
        {"top_k": 8},
        {"top_k": 16},
        {"top_p": 0.5},
        {"top_p": 0.7},
        {"top_p": 0.99},
        {"top_k": 8, "top_p": 0.9},
        {"top_k": 4, "top_p": 0.5},
    ],
)
def test_goodness_of_fit_after_truncation(engine: Engine, filters):
    row = case("DR-11")[0]
    kept = fastsample.kept_set(row, **filters, **how(engine))
    shares = np.zeros(len(row))
    shares[kept.tokens] = kept.probabilities
    n = 50_000 if engine.is_native else 3000
    tokens = fastsample.sample(row, **filters, seed=6, position=1, n=n, **how(engine)).tokens
    counts = np.bincount(tokens, minlength=len(row))
    assert not counts[shares == 0].any()
    statistic = g_statistic(counts, shares)
    assert chi_square_tail(statistic, max(1, len(kept.tokens) - 1)) > 1e-6


# ---------------------------------------------------------------- seeds and batches


@covers("SB-01")
def test_other_rows_do_not_matter(engine: Engine):
    row = case("SB-01")[0]
    rows = np.stack([row, row])
    alone = steps(row, 64, engine, seed=42)
    for other in (42, 7):
        batch = steps(rows, 64, engine, seed=np.array([42, other]))
        assert [tokens[0] for tokens in batch] == alone
    sampler = fastsample.Sampler(
        [fastsample.SamplingParams(seed=42), fastsample.SamplingParams()], **how(engine)
    )
    assert [int(sampler(rows)[0]) for _ in range(64)] == alone


@covers("SB-03")
def test_a_permutation_of_rows_permutes_tokens(engine: Engine):
    row, arguments = case("SB-03")
    rows = np.stack([row, row[::-1]])
    one = steps(rows, 8, engine, **arguments, seed=np.array([11, 29]))
    other = steps(rows[::-1], 8, engine, **arguments, seed=np.array([29, 11]))
    assert [tokens[::-1] for tokens in other] == one


@covers("SB-05")
def test_positions_move_the_draw(engine: Engine):
    assert len(set(steps(case("SB-05")[0], 64, engine, seed=42))) >= 50


@covers("SB-07")
def test_0_is_a_seed(engine: Engine):
    row = case("SB-07")[0]
    assert steps(row, 16, engine, seed=0) == steps(row, 16, engine, seed=0)
    assert steps(row, 16, engine, seed=0) != steps(row, 16, engine, seed=1)


@covers("SB-09")
def test_threads_and_instruction_sets(engine: Engine):
    row, arguments = case("SB-09")
    rows = np.stack([row, row, row])
    expected = fastsample.kept_set(rows, **arguments, engine="reference")
    found = fastsample.kept_set(rows, **arguments, **how(engine))
    assert found.masses.tobytes() == expected.masses.tobytes()
    draws = {"seed": 5, "position": 0, "stream": "row"}
    tokens = fastsample.sample(rows, **arguments, **draws, engine="reference").tokens
    for n_threads in (1, 2, 3):
        again = fastsample.sample(rows, **arguments, **draws, n_threads=n_threads, **how(engine))
        assert again.tokens.tolist() == tokens.tolist()


@covers("SB-10")
def test_the_same_call_gives_the_same_bits(engine: Engine):
    row, arguments = case("SB-10")
    first = fastsample.kept_set(row, **arguments, **how(engine))
    for _ in range(100 if engine.is_native else 2):
        again = fastsample.kept_set(row, **arguments, **how(engine))
        assert again.tokens.tobytes() == first.tokens.tobytes()
        assert again.masses.tobytes() == first.masses.tobytes()


@covers("SB-11")
def test_draws_of_one_seed_differ_by_their_streams(engine: Engine):
    row = case("SB-11")[0]
    several = fastsample.sample(row, seed=9, position=0, n=8, **how(engine)).tokens.tolist()
    again = fastsample.sample(row, seed=9, position=0, n=8, **how(engine)).tokens.tolist()
    rows = np.broadcast_to(row, (8, len(row)))
    batch = fastsample.sample(rows, seed=9, position=0, stream="row", **how(engine))
    same = fastsample.sample(rows, seed=9, position=0, stream=0, **how(engine))
    assert several == again == batch.tokens.tolist()
    assert len(set(several)) == 8
    assert set(same.tokens.tolist()) == {several[0]}


PINNED: dict[tuple[str, int], list[int]] = {
    ("inverse", 0): [4, 1, 1, 2, 3, 0, 4, 0, 3, 0, 4, 0, 1, 2, 0, 4],
    ("inverse", 1): [4, 4, 2, 0, 3, 1, 0, 2, 4, 3, 2, 3, 4, 0, 4, 0],
    ("inverse", 1337): [4, 4, 0, 0, 1, 3, 1, 4, 4, 4, 3, 3, 4, 2, 4, 0],
    ("race", 0): [1, 0, 3, 3, 4, 1, 4, 1, 1, 4, 2, 3, 2, 2, 3, 0],
    ("race", 1): [4, 1, 3, 3, 2, 2, 2, 2, 1, 3, 4, 2, 3, 0, 0, 4],
    ("race", 1337): [4, 0, 4, 2, 3, 2, 0, 1, 4, 3, 4, 4, 2, 0, 4, 2],
}


@covers("SB-12")
@pytest.mark.parametrize(("draw", "seed"), PINNED)
def test_the_stream_is_stable_across_releases(engine: Engine, draw, seed):
    assert steps(case("SB-12")[0], 16, engine, seed=seed, draw=draw) == PINNED[draw, seed]


@covers("LP-11")
def test_logits_do_not_change(engine: Engine):
    row, arguments = case("LP-11")
    before = row.tobytes()
    options = {"seed": 4, "position": 2, "logprobs": 4, "logprobs_mode": "processed", **how(engine)}
    one, other = (fastsample.sample(row, **arguments, **options) for _ in range(2))
    assert row.tobytes() == before
    assert one.top_logprobs.tobytes() == other.top_logprobs.tobytes()
    assert int(one.tokens) == int(other.tokens)


# ---------------------------------------------------------------- the file


def test_every_case_is_run_or_left_out():
    by_rule = {name for kind in COVERED for name in of_type(kind)}
    left_out = {one["id"] for one in ALL if "left_out" in one}
    assert by_rule | BY_HAND | left_out == set(BY_ID)
    assert not by_rule & BY_HAND
    assert len(BY_ID) == len(ALL) == 162
