"""The candidate table: its raw columns stay with the row, its processed ones with the settings."""

from __future__ import annotations

import numpy as np
import pytest

from fastsample import sample
from fastsample.api.candidates import Candidate, candidates
from fastsample.engines.reference import race as reference_race
from tests.support import reference_rows

SEVEN = np.log(np.array([0.5, 0.2, 0.1, 0.08, 0.04, 0.01, 0.07], dtype=np.float32))
USUAL = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}


def wide_row(seed: int = 0, size: int = 3000) -> np.ndarray:
    return (4 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


def raw_columns(listed: list[Candidate]) -> list[tuple[float, ...]]:
    return [(c.rank, c.token, c.logit, c.raw_probability, c.running_total) for c in listed]


def test_published_example_three_logits():
    listed = candidates(np.array([1, 4, 2], dtype=np.float32))
    assert [c.token for c in listed] == [1, 2, 0]
    assert [c.logit for c in listed] == [4.0, 2.0, 1.0]
    assert [round(c.raw_probability, 2) for c in listed] == [0.84, 0.11, 0.04]
    assert listed[-1].running_total == 1.0


@pytest.mark.parametrize(
    ("setting", "stage"),
    [({"top_k": 3}, "top_k"), ({"top_p": 0.8}, "top_p"), ({"min_p": 0.18}, "min_p")],
)
def test_cut_by_names_the_filter(setting, stage):
    listed = candidates(SEVEN, **setting)
    assert [c.cut_by for c in listed] == [None] * 3 + [stage] * 4
    assert [c.token for c in listed] == [0, 1, 2, 3, 6, 4, 5]
    assert [round(c.probability, 4) for c in listed[:3]] == [0.625, 0.25, 0.125]
    assert all(c.probability == 0.0 for c in listed[3:])


def test_cut_by_names_the_first_filter_that_cuts():
    listed = candidates(SEVEN, top_k=5, top_p=0.8, min_p=0.3)
    cuts = [c.cut_by for c in listed]
    assert cuts == [None, None, "min_p", "top_p", "top_p", "top_k", "top_k"]


def test_tempered_columns_depend_on_the_temperature_alone():
    row = wide_row()
    probabilities = np.exp(np.sort(row.astype(np.float64))[::-1] / 0.7)
    probabilities /= probabilities.sum()
    for settings in ({}, {"top_k": 5, "top_p": 0.5}):
        listed = candidates(row, 300, temperature=0.7, **settings)
        tempered = [c.tempered_probability for c in listed]
        assert tempered == pytest.approx(probabilities[:300], rel=1e-5)
        assert [c.tempered_total for c in listed] == pytest.approx(np.cumsum(tempered), rel=1e-12)


def test_the_total_of_top_p_is_of_the_tokens_it_sees():
    listed = candidates(SEVEN, temperature=0.5, top_k=4, top_p=0.9, min_p=0.01)
    seen = np.array([0.5, 0.2, 0.1, 0.08]) ** 2
    totals = [c.top_p_total for c in listed]
    assert totals[:4] == pytest.approx(np.cumsum(seen / seen.sum()), rel=1e-6)
    assert totals[4:] == [None] * 3
    assert [c.cut_by for c in listed] == [None] * 2 + ["top_p"] * 2 + ["top_k"] * 3


@pytest.mark.parametrize("setting", [{}, {"top_k": 3}, {"temperature": 0, "top_p": 0.5}])
def test_no_total_of_top_p_where_it_is_off(setting):
    assert {c.top_p_total for c in candidates(SEVEN, **setting)} == {None}


def test_temperature_zero_leaves_the_first_token():
    listed = candidates(SEVEN, temperature=0, top_p=0.1)
    assert [c.probability for c in listed] == [1.0] + [0.0] * 6
    assert [c.cut_by for c in listed] == [None] + ["temperature"] * 6


def test_masked_token_is_cut_by_the_mask():
    row = np.array([1, -np.inf, 2], dtype=np.float32)
    last = candidates(row)[-1]
    assert (last.token, last.cut_by, last.raw_probability, last.probability) == (1, "mask", 0, 0)


def test_kept_token_without_mass_is_marked():
    last = candidates(np.array([0, -40], dtype=np.float32))[-1]
    assert (last.cut_by, last.probability) == ("mass", 0.0)


def test_raw_columns_do_not_move_with_the_settings():
    row = wide_row()
    plain = raw_columns(candidates(row, 200))
    for settings in ({"temperature": 0.2}, {"temperature": 0}, {"top_p": 0.3}, USUAL):
        assert raw_columns(candidates(row, 200, **settings)) == plain


def test_temperature_moves_the_processed_column():
    row = wide_row()
    cold, warm = (candidates(row, 1, temperature=t)[0].probability for t in (0.5, 2.0))
    assert cold > candidates(row, 1)[0].probability > warm


def test_probabilities_are_masses_over_the_total():
    row = wide_row()
    tokens, mass = reference_rows.kept_set(row, **USUAL)
    expected = {int(t): int(m) / int(mass.sum()) for t, m in zip(tokens, mass, strict=True)}
    listed = candidates(row, row.size, **USUAL)
    assert {c.token: c.probability for c in listed if c.cut_by is None} == expected
    assert sum(expected.values()) == pytest.approx(1.0)


def test_probabilities_agree_with_an_exact_softmax():
    row = wide_row()
    exact = np.exp(row.astype(np.float64) - row.max())
    exact /= exact.sum()
    for c in candidates(row, 100):
        assert c.raw_probability == pytest.approx(exact[c.token], rel=1e-5)


def test_a_drawn_token_is_never_a_cut_one():
    row = wide_row()
    possible = {c.token for c in candidates(row, row.size, **USUAL) if c.cut_by is None}
    drawn = {int(sample(row, **USUAL, seed=3, position=i).tokens) for i in range(200)}
    assert drawn <= possible


def test_equal_logits_list_the_lower_token_first():
    assert [c.token for c in candidates(np.zeros(5, dtype=np.float32))] == [0, 1, 2, 3, 4]


def test_a_short_vocabulary_is_listed_completely():
    assert len(candidates(SEVEN, 1000)) == 7
    assert [c.rank for c in candidates(SEVEN, 3)] == [1, 2, 3]


def halves() -> np.ndarray:
    """Values that float16 and bfloat16 both hold exactly."""
    row = np.random.default_rng(3).integers(-40, 40, 300).astype(np.float32) / 4
    row[7] = -np.inf
    return row


def test_float16_rows_are_widened():
    assert candidates(halves().astype(np.float16), 300, **USUAL) == candidates(
        halves(), 300, **USUAL
    )


@pytest.mark.parametrize("library", ["ml_dtypes", pytest.param("torch", marks=pytest.mark.torch)])
def test_bfloat16_rows_are_widened(library):
    module = pytest.importorskip(library)
    if library == "torch":
        row = module.from_numpy(halves()).to(module.bfloat16)
    else:
        row = halves().astype(module.bfloat16)
    assert candidates(row, 300, **USUAL) == candidates(halves(), 300, **USUAL)
    row[3] = np.nan
    with pytest.raises(ValueError, match="holds nan at token 3"):
        candidates(row)


def test_the_row_does_not_change():
    row = wide_row()
    before = row.copy()
    candidates(row, **USUAL)
    np.testing.assert_array_equal(row, before)


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        ([0, np.nan, 1], {}),
        ([0, np.inf], {}),
        ([-np.inf, -np.inf], {}),
        ([0, 1], {"top_p": 1.3}),
        ([0, 1], {"temperature": -1}),
    ],
)
def test_errors_are_those_of_sample(row, settings):
    logits = np.array(row, dtype=np.float32)
    with pytest.raises(ValueError) as expected:
        sample(logits, **settings)
    with pytest.raises(ValueError) as got:
        candidates(logits, **settings)
    assert str(got.value) == str(expected.value)


def test_several_rows_are_refused():
    with pytest.raises(ValueError, match=r"one row of shape \(V,\), got \(2, 7\)"):
        candidates(np.stack([SEVEN, SEVEN]))


@pytest.mark.parametrize(
    ("n", "kind"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)]
)
def test_n_is_checked(n, kind):
    with pytest.raises(kind, match="`n` must be"):
        candidates(SEVEN, n)


# ---------------------------------------------------------------- how a token is drawn


@pytest.mark.parametrize(
    "settings", [{}, USUAL, {"top_p": 0.9}, {"temperature": 0}, {"top_k": 1}, {"top_k": 2}]
)
def test_a_trace_is_of_the_draw_of_sample(settings):
    row = wide_row()
    for position in range(20):
        place = {"seed": 3, "position": position, "stream": 4}
        listed, trace = candidates(row, 5, **settings, draw=True, **place)
        how = {"draw": "race", "margin": True, "engine": "reference"}
        drawn = sample(row, **settings, **place, **how)
        assert listed == candidates(row, 5, **settings)
        assert (trace.token, trace.margin) == (int(drawn.tokens), float(drawn.margin))
        if trace.winner is None:
            assert trace.runner_up is None
            continue
        assert trace.winner.token == trace.token != trace.runner_up.token
        assert trace.winner.time <= trace.runner_up.time


def test_heights_are_of_the_stream_that_tokens_share():
    """A listed row has none: each token has a clock of its own."""
    row = wide_row()
    traces = [candidates(row, 1, draw=True, seed=1, position=i)[1] for i in range(30)]
    heights = [trace.winner.height for trace in traces]
    assert None in heights
    assert any(height is not None and height >= 0 for height in heights)
    listed = [candidates(row, 1, **USUAL, draw=True, seed=1, position=i)[1] for i in range(30)]
    assert all(trace.winner.height is trace.runner_up.height is None for trace in listed)


def test_a_race_that_is_left_open_has_no_arrivals(monkeypatch):
    monkeypatch.setattr(reference_race, "LIMIT", 1)
    row = np.concatenate([np.float32([0.0, 0.0]), np.full(4094, -30, np.float32)])
    traces = [candidates(row, draw=True, seed=1, position=i, top_p=0.9)[1] for i in range(9)]
    (open_one, *_) = [trace for trace in traces if trace.winner is None]
    assert open_one.runner_up is None
    assert open_one.token in (0, 1)
    assert np.isnan(open_one.margin)


def test_the_place_of_a_draw_is_checked():
    for place in ({"seed": 1}, {"position": 2}, {"stream": 1}):
        with pytest.raises(ValueError, match="`draw` must be True with a seed"):
            candidates(SEVEN, **place)
    assert candidates(SEVEN, draw=False) == candidates(SEVEN)
