"""`reduction` as users give it: to `sample`, to a `Sampler` for all its calls, and to softmax."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample import Sampler, SamplingParams, sample
from fastsample.engines.reference import logprobs as reference_logprobs
from fastsample.engines.reference import softmax as reference_softmax
from tests.support import reference_rows
from tests.support.engines import REDUCTION_ENGINES, Engine, same_bits
from tests.support.prepared_calls import refuse
from tests.support.sampler_steps import PARAMS, STEPS, forbid_general_path

BIT_FOR_BIT = ("exact", "fixed")
ROW = STEPS[0, 0]
HOW = {"temperature": 0.9, "top_p": 0.95, "seed": 3, "draw": "inverse"}

FLAT = np.zeros(1024, np.float32)
JUST_MORE_THAN_ONE = SamplingParams(top_p=2.0**-10 + 2.0**-21 + 2.0**-33, seed=1)
"""Of `FLAT` exact keeps one token, whose P is of 31 bits, and fixed two."""

KEPT = {"exact": {0}, "fixed": {0, 1}}


@pytest.fixture(params=[Engine("reference"), *REDUCTION_ENGINES], ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine that has these reductions."""
    return request.param


def drawn_from(draw: Callable[[], Any]) -> set[int]:
    return {int(draw()) for _ in range(30)}


def test_every_mode_has_its_own_logprobs(engine: Engine) -> None:
    """A kept token of v = 2^-44: its integer mass is 0."""
    row = np.float32([-44 * np.log(2), 0])
    how = {"logprobs": 2, "logprobs_mode": "processed", "engine": engine.name, "isa": engine.isa}
    found = {mode: sample(row, **how, reduction=mode) for mode in ("exact", "fixed", "fast")}
    logprobs = {mode: float(result.top_logprobs[1]) for mode, result in found.items()}
    faint = pytest.approx(-44 * np.log(2))
    assert logprobs == {"exact": -np.inf, "fixed": faint, "fast": faint}


@pytest.mark.parametrize("mode", BIT_FOR_BIT)
def test_sample(engine: Engine, mode: str) -> None:
    """One row and several, with and without log-probabilities, prepared and not."""
    rows = STEPS[0]
    place = {"stream": "row", "position": 5}
    how = {"engine": engine.name, "isa": engine.isa, "reduction": mode}
    drawn = sample(rows, **HOW, **place, **how).tokens.tolist()
    found = sample(rows, **HOW, **place, **how, logprobs=2, logprobs_mode="tempered")
    assert drawn == found.tokens.tolist()
    for b, row in enumerate(rows):
        alone = {"seed": 3, "position": 5, "stream": b}
        expected, _ = reference_rows.sample_row(
            row, temperature=0.9, top_p=0.95, reduction=mode, **alone
        )
        assert int(sample(row, **{**HOW, **alone}, **how).tokens) == expected == drawn[b]
        logprobs = reference_logprobs.tempered(row, 0.9, mode)
        assert found.logprobs[b] == logprobs[expected]


def test_the_default_is_exact(engine: Engine) -> None:
    how = {"top_p": JUST_MORE_THAN_ONE.top_p, "engine": engine.name, "isa": engine.isa}
    for chosen, kept in (({}, 1), ({"reduction": "exact"}, 1), ({"reduction": "fixed"}, 2)):
        assert int(sample(FLAT, **how, **chosen, kept_count=True).kept_count) == kept
    assert drawn_from(lambda: Sampler(**how)(FLAT)) == {0}


@pytest.mark.parametrize("mode", ["exact", "fixed", "fast"])
def test_a_name_may_be_another_kind_of_str(engine: Engine, mode: str) -> None:
    """Such as NumPy's, in which an array's items come."""
    name, how = np.str_(mode), {"engine": engine.name, "isa": engine.isa}
    for extra in ({}, {"logprobs": 2}):
        found = [sample(ROW, **HOW, **how, **extra, position=0, reduction=r) for r in (mode, name)]
        assert found[0].tokens == found[1].tokens
    sampler = Sampler(**HOW, reduction=name, **how)
    for _ in range(3):
        sampler(ROW)
    assert type(sampler.reduction) is str
    for function in (fastsample.softmax, fastsample.log_softmax, fastsample.logsumexp):
        assert same_bits(*(function(ROW, reduction=r, **how) for r in (mode, name)))
    assert fastsample.reduce_sum(np.ones(3), name) == 3


# ---------------------------------------------------------------- samplers


def test_a_sampler_shows_its_mode() -> None:
    for mode in ("exact", "fixed", "fast"):
        shown = f"reduction={mode!r}" if mode != "exact" else "position=0)"
        assert Sampler(seed=1, reduction=mode).reduction == mode
        assert shown in repr(Sampler(seed=1, reduction=mode))
    assert repr(Sampler([], reduction="fast")) == "Sampler(0 sequences, reduction='fast')"
    assert repr(Sampler([])) == "Sampler(0 sequences)"
    with pytest.raises(AttributeError, match="`reduction` cannot be set"):
        Sampler().reduction = "fast"


def test_a_pickle_of_an_unknown_mode_is_refused() -> None:
    state = {**Sampler(JUST_MORE_THAN_ONE, stream="row").__getstate__(), "reduction": "turbo"}
    with pytest.raises(ValueError, match=r"`reduction` must be .* got 'turbo'"):
        Sampler.__new__(Sampler).__setstate__(state)


@pytest.mark.parametrize("mode", BIT_FOR_BIT)
def test_a_sampler_draws_every_token_in_its_mode(engine: Engine, mode: str) -> None:
    how = {"engine": engine.name, "isa": engine.isa, "reduction": mode}
    sampler = Sampler(PARAMS, stream="row", **how, draw="inverse")
    for position, rows in enumerate(STEPS[:4]):
        found = sampler.sample(rows, logprobs=0) if position == 2 else None
        tokens = sampler(rows) if found is None else found.tokens
        expected = [
            reference_rows.sample_row(
                row,
                **{name: getattr(PARAMS, name) for name in ("temperature", "top_k", "top_p")},
                min_p=PARAMS.min_p,
                seed=sampler.seed,
                position=position,
                stream=b,
                reduction=mode,
            )[0]
            for b, row in enumerate(rows)
        ]
        assert list(tokens) == expected


@pytest.mark.parametrize(
    "duplicate",
    [Sampler.clone, copy.deepcopy, lambda sampler: pickle.loads(pickle.dumps(sampler))],
    ids=["clone", "deepcopy", "pickle"],
)
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("mode", BIT_FOR_BIT)
def test_copies_and_pickles_keep_the_mode(
    duplicate: Callable[[Sampler], Sampler], prepared: bool, mode
) -> None:
    sampler = Sampler(JUST_MORE_THAN_ONE, stream="row", reduction=mode)
    if prepared:
        sampler(FLAT)
    twin = duplicate(sampler)
    assert drawn_from(lambda: twin(FLAT)) == KEPT[mode]
    assert int(twin.sample(FLAT, kept_count=True).kept_count) == len(KEPT[mode])


@pytest.mark.parametrize("mode", BIT_FOR_BIT)
def test_prepared_steps_draw_in_the_mode_of_their_sampler(native_engine: Engine, mode) -> None:
    where = {"engine": native_engine.name, "isa": native_engine.isa}
    sampler = Sampler(JUST_MORE_THAN_ONE, stream="row", reduction=mode, **where)
    sampler(FLAT)
    forbid_general_path(sampler)
    assert drawn_from(lambda: sampler(FLAT)) == KEPT[mode]


@pytest.mark.parametrize("mode", BIT_FOR_BIT)
def test_prepared_calls_of_sample_draw_in_their_mode(native_engine: Engine, mode, monkeypatch):
    monkeypatch.setattr(sys.modules["fastsample.api.sample"], "as_rows", refuse)
    how = {"top_p": JUST_MORE_THAN_ONE.top_p, "seed": 1, "reduction": mode}
    where = {"engine": native_engine.name, "isa": native_engine.isa}
    results = [sample(FLAT, position=position, **how, **where) for position in range(30)]
    assert {int(result.tokens) for result in results} == KEPT[mode]


# ---------------------------------------------------------------- softmax


@pytest.mark.parametrize("mode", BIT_FOR_BIT)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_softmax_log_softmax_and_logsumexp(engine: Engine, name: str, mode: str) -> None:
    function, of_reference = getattr(fastsample, name), getattr(reference_softmax, name)
    rows = STEPS[0]
    how = {"reduction": mode, "engine": engine.name, "isa": engine.isa}
    expected = np.array([of_reference(row, 0.7, mode) for row in rows])
    assert same_bits(function(rows, 0.7, **how), expected)
    out = np.empty_like(expected)
    assert function(rows, 0.7, **how, out=out) is out
    assert same_bits(out, expected)
    if name != "logsumexp":
        place = rows.copy()
        assert same_bits(function(place, 0.7, **how, out=place), expected)
