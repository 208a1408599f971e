"""Mask, bias, penalties and stages, as callers of `sample` give them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastsample import SampleResult, SamplingParams, filter_logits, sample
from fastsample.engines import ENGINES
from fastsample.inputs.arrays import _nearest_by_bits, nearest_float32
from fastsample.inputs.logits import as_rows
from fastsample.inputs.logits_processors import make_logits_processors
from fastsample.params.table import BY_NAME, STAGES
from tests.support.case_loop import each
from tests.support.engines import Engine, same_bits, sha256
from tests.support.rounding_modes import KNOWN, rounding
from tests.support.sample_calls import (
    ALLOWED,
    EVERYTHING,
    LOGITS,
    OUTPUT,
    PROMPT,
    RNG,
    RNG_POSITION,
    V,
    kept_count_on,
    sample_on,
)

try:
    import torch
except ModuleNotFoundError:
    torch = None


def tokens(logits: Any, **arguments: Any) -> list[int]:
    listed: list[int] = sample(logits, **{**RNG_POSITION, **arguments}).tokens.tolist()
    return listed


def answers(result: SampleResult) -> list[Any]:
    fields = ("tokens", "logprobs", "ranks", "top_tokens", "top_logprobs", "kept_count", "status")
    return [np.asarray(getattr(result, name)).tolist() for name in fields]


def bits_of(allowed: np.ndarray) -> np.ndarray:
    """The layout of xgrammar and llguidance: int32 words, the lowest bit first."""
    padded = np.zeros((len(allowed), -(-allowed.shape[1] // 32) * 32), bool)
    padded[:, : allowed.shape[1]] = allowed
    return np.packbits(padded, axis=1, bitorder="little").view("<i4").astype(np.int32)


# ---------------------------------------------------------------- mask

FORMS_OF_A_MASK: dict[str, Callable[[np.ndarray], Any]] = {
    "bool": lambda allowed: allowed,
    "columns apart": np.asfortranarray,
    "int32": bits_of,
    "uint32": lambda allowed: bits_of(allowed).view(np.uint32),
    "int32 apart": lambda allowed: np.repeat(bits_of(allowed), 2, axis=1)[:, ::2],
}
if torch is not None:
    FORMS_OF_A_MASK["torch bool"] = torch.from_numpy
    FORMS_OF_A_MASK["torch int32"] = lambda allowed: torch.from_numpy(bits_of(allowed))


@each("form", FORMS_OF_A_MASK)
def test_a_mask_bans(engine: Engine, form: str) -> None:
    mask = FORMS_OF_A_MASK[form](ALLOWED)
    banned = np.where(ALLOWED, LOGITS, -np.inf)
    chain = {"temperature": 0.8, "top_p": 0.9}
    masked = sample_on(engine, LOGITS, mask=mask, **chain, **EVERYTHING)
    expected = sample_on(engine, banned, **chain, **EVERYTHING)
    assert masked.tokens.tolist() == expected.tokens.tolist()
    assert masked.kept_count.tolist() == expected.kept_count.tolist()
    assert masked.logprobs[1:].tolist() == expected.logprobs[1:].tolist()
    assert masked.top_tokens[1:].tolist() == expected.top_tokens[1:].tolist()


@pytest.mark.parametrize("form", [lambda mask: mask, bits_of], ids=["bool", "bits"])
def test_one_mask_serves_all_rows(engine: Engine, form: Callable[..., Any]) -> None:
    expected = answers(
        sample_on(engine, LOGITS, mask=form(np.stack([ALLOWED[0]] * 4)), **EVERYTHING)
    )
    assert answers(sample_on(engine, LOGITS, mask=form(ALLOWED[:1]), **EVERYTHING)) == expected
    assert answers(sample_on(engine, LOGITS, mask=form(ALLOWED[:1])[0], **EVERYTHING)) == expected


def test_columns_past_a_mask_are_banned(engine: Engine) -> None:
    short = ALLOWED.copy()
    short[:, 64:] = False
    expected = answers(sample_on(engine, LOGITS, mask=short, **EVERYTHING))
    assert (
        answers(sample_on(engine, LOGITS, mask=short[:, :64], short_mask="ban", **EVERYTHING))
        == expected
    )
    assert answers(sample_on(engine, LOGITS, mask=bits_of(short)[:, :2], **EVERYTHING)) == expected


def test_what_a_mask_bans_need_not_be_finite(engine: Engine) -> None:
    spoilt = np.where(ALLOWED, LOGITS, np.nan).astype(np.float32)
    masked = sample_on(engine, spoilt, mask=ALLOWED, **EVERYTHING)
    assert masked.tokens.tolist() == tokens(LOGITS, mask=ALLOWED)
    raw, tempered = masked.logprobs[0], masked.logprobs[1]
    assert np.isnan(raw).all()
    assert np.isfinite(tempered).all()
    assert (masked.top_tokens[0] == -1).all()
    assert (masked.ranks[0] == 0).all()


# ---------------------------------------------------------------- bias

BIASES = [{5: 4.0, 7: -np.inf}, {}, {0: -2.5}, {299: 1e3}]


def test_a_bias_is_added(engine: Engine) -> None:
    added = LOGITS.copy()
    for row, bias in zip(added, BIASES, strict=True):
        for token, value in bias.items():
            row[token] += np.float32(value)
    biased = sample_on(engine, LOGITS, bias=BIASES, top_k=9, **EVERYTHING)
    expected = sample_on(engine, added, top_k=9, **EVERYTHING)
    assert biased.tokens.tolist() == expected.tokens.tolist()
    assert biased.top_logprobs[1:].tolist() == expected.top_logprobs[1:].tolist()


def test_forms_of_a_bias() -> None:
    bias = {3: 2.0, 9: -1.5}
    expected = answers(sample(LOGITS, bias=[bias] * 4, **RNG_POSITION, **EVERYTHING))
    forms = [
        bias,
        ([3, 9], [2.0, -1.5]),
        (np.array([9, 3], np.int32), np.array([-1.5, 2], np.float16)),
        [{np.int64(9): np.float64(-1.5), 3: 2}] * 4,
        {"3": 2.0, "9": -1.5},  # as JSON has them
        [{"9": -1.5, "3": 2}] * 4,
        [(3, 2.0), (9, -1.5)],
        [(np.uint64(3), 2), ("9", -1.5)],
        [[3, 2.0], [9, -1.5], [0, 0.0]],
        ((3, 9), (2.0, -1.5)),
    ]
    if torch is not None:
        forms.append((torch.tensor([3, 9]), torch.tensor([2.0, -1.5])))
    for form in forms:
        assert answers(sample(LOGITS, bias=form, **RNG_POSITION, **EVERYTHING)) == expected
    none = answers(sample(LOGITS, **RNG_POSITION, **EVERYTHING))
    for form in ({}, [None] * 4, [{}] * 4, ([], []), None):
        assert answers(sample(LOGITS, bias=form, **RNG_POSITION, **EVERYTHING)) == none


def test_a_bias_may_be_any_integer() -> None:
    """Those beyond 2^53 are rounded to float64 first."""
    row = np.zeros(3, np.float32)
    step = 2**36  # half of float32's at 2^60
    for number, rounded in (
        (2**60 + step + 2**9, 2**60 + 2 * step),
        (2**60 + step + 1, 2**60),
        (-(2**60) - step - 2**9, -(2**60) - 2 * step),
        (2**64, 2**64),
        (-(2**64), -(2**64)),
        (2**100 + 1, 2**100),
        (3, 3),
    ):
        forms = [{1: number}, [(1, number)], ([1], [number])]
        if abs(number) < 2**63:
            forms += [([1], np.array([number])), ({1: np.int64(number)})]
        for bias in forms:
            assert filter_logits(row, bias=bias)[1] == rounded
    with pytest.raises(ValueError, match="must be finite or -inf in float32, got inf for token 1"):
        sample(row, bias={1: 10**400})


def test_a_bias_for_a_row_alone() -> None:
    one = {"seed": 3, "position": 9, "stream": 2}
    for b, bias in enumerate(BIASES):
        alone = [tokens(LOGITS[b], **{**one, "bias": form}) for form in (bias, [bias])]
        assert alone[0] == alone[1]
        assert alone[0] == tokens(LOGITS, **{**one, "bias": BIASES})[b]


# ---------------------------------------------------------------- histories and penalties


def penalised(row: np.ndarray, history: list[int], r: float, f: float, s: float) -> np.ndarray:
    """Repetition, frequency and presence of one history, an operation of float32 at a time."""
    out = row.copy()
    for token in set(history):
        out[token] = out[token] / np.float32(r) if out[token] > 0 else out[token] * np.float32(r)
        out[token] -= np.float32(f) * np.float32(history.count(token))
        out[token] -= np.float32(s)
    return out


PENALTIES = {"repetition_penalty": 1.3, "frequency_penalty": 0.25, "presence_penalty": -0.5}
SCOPES: dict[Any, Callable[[list[int], list[int]], list[int]]] = {
    "all": lambda prompt, output: prompt + output,
    "prompt": lambda prompt, output: prompt,
    "output": lambda prompt, output: output,
    10: lambda prompt, output: (prompt + output)[-10:],
    0: lambda prompt, output: [],
    10**6: lambda prompt, output: prompt + output,
}


@each("scope", SCOPES)
def test_penalties(engine: Engine, scope: Any) -> None:
    scopes = {f"{name}_scope": scope for name in ("repetition", "frequency", "presence")}
    expected = np.stack(
        [
            penalised(row, SCOPES[scope](prompt, output), 1.3, 0.25, -0.5)
            for row, prompt, output in zip(LOGITS, PROMPT, OUTPUT, strict=True)
        ]
    )
    result = sample_on(
        engine, LOGITS, prompt=PROMPT, output=OUTPUT, **PENALTIES, **scopes, **EVERYTHING
    )
    by_hand = sample_on(engine, expected, **EVERYTHING)
    assert result.tokens.tolist() == by_hand.tokens.tolist()
    assert result.top_logprobs[1:].tolist() == by_hand.top_logprobs[1:].tolist()


def test_penalties_of_a_row_are_its_own(engine: Engine) -> None:
    by_row = {name: [value, 1.0, 0.5, value] for name, value in PENALTIES.items()}
    batch = sample_on(engine, LOGITS, prompt=PROMPT, output=OUTPUT, **by_row).tokens
    for b, row in enumerate(LOGITS):
        own = {name: values[b] for name, values in by_row.items()}
        alone = sample_on(engine, row, prompt=PROMPT[b], output=OUTPUT[b], stream=b, **own)
        assert alone.tokens == batch[b]


def test_forms_of_a_history() -> None:
    table = RNG.integers(0, V, (4, 6))
    expected = tokens(LOGITS, output=table.tolist(), **PENALTIES)
    forms = [table, table.astype(np.uint16), list(table), tuple(map(tuple, table)), table[:, ::1]]
    if torch is not None:
        forms += [torch.from_numpy(table), list(torch.from_numpy(table))]
    for form in forms:
        assert tokens(LOGITS, output=form, **PENALTIES) == expected
    one = {**PENALTIES, "stream": 0}
    for form in (table[0].tolist(), table[0], table[:1], [table[0]], [table[0].tolist()]):
        assert tokens(LOGITS[0], output=form, **one) == expected[0]
        assert tokens(LOGITS[:1], output=form, **one) == expected[:1]


def test_empty_histories_change_nothing() -> None:
    expected = tokens(LOGITS, **PENALTIES)
    for nothing in ([[]] * 4, np.empty((4, 0), np.int64), None):
        assert tokens(LOGITS, prompt=nothing, output=nothing, **PENALTIES) == expected
    for nothing in ([], [[]], (), np.empty(0)):
        assert tokens(LOGITS[0], prompt=nothing, **PENALTIES) == expected[0]
    assert tokens(LOGITS[:0], prompt=[], output=[], bias=[], **PENALTIES) == []


def test_a_ban_outlasts_every_penalty(engine: Engine) -> None:
    only = np.arange(V) == 5
    history = list(range(V))
    result = sample_on(
        engine,
        LOGITS,
        mask=only,
        output=[history] * 4,
        repetition_penalty=0.01,
        frequency_penalty=-1e30,
        presence_penalty=-1e30,
        kept_count=True,
    )
    assert result.tokens.tolist() == [5] * 4
    assert result.kept_count.tolist() == [1] * 4


def test_no_arrays_are_made_without_processors() -> None:
    assert make_logits_processors(as_rows(LOGITS)) is None
    some = make_logits_processors(as_rows(LOGITS), output=OUTPUT)
    assert some is not None
    assert (some.mask, some.bias, some.prompt) == (None, None, None)


def test_arguments_do_not_change() -> None:
    mask, table = ALLOWED.copy(), RNG.integers(0, V, (4, 6))
    bias = (np.array([3, 4]), np.array([1.0, 2.0]))
    before = sha256(LOGITS, mask, table, *bias)
    sample(LOGITS, mask=mask, bias=bias, prompt=table, output=table, **PENALTIES)
    assert sha256(LOGITS, mask, table, *bias) == before


# ---------------------------------------------------------------- stages, min_keep


def test_the_order_of_stages_matters(engine: Engine) -> None:
    """At a low temperature top_p keeps less; before it, more."""
    chain = {"temperature": 0.3, "top_p": 0.9}
    first = kept_count_on(engine, LOGITS, stages=("temperature", "top_p"), **chain)
    last = kept_count_on(engine, LOGITS, stages=("top_p", "temperature"), **chain)
    usual = kept_count_on(engine, LOGITS, **chain)
    assert usual.tolist() == first.tolist()
    assert (first < last).all()


def test_min_keep(engine: Engine) -> None:
    filters = {"top_k": 3, "top_p": 0.1, "min_p": 0.9}
    assert kept_count_on(engine, LOGITS, min_keep=25, **filters).tolist() == [25] * 4
    assert kept_count_on(engine, LOGITS, min_keep=10**6, **filters).tolist() == [V] * 4
    by_row = kept_count_on(engine, LOGITS, min_keep=[1, 2, 3, 400], top_k=1)
    assert by_row.tolist() == [1, 2, 3, V]


FIELDS: dict[str, Any] = {
    "temperature": 2.0,
    "top_k": 2,
    "top_p": 0.3,
    "min_p": 0.5,
    "typical_p": 0.3,
    "epsilon_cutoff": 0.02,
    "top_n_sigma": 0.5,
    "top_a": 0.9,
    "seed": 2**40,
    "repetition_penalty": 3.0,
    "frequency_penalty": 3.0,
    "presence_penalty": 3.0,
    "repetition_scope": "prompt",
    "frequency_scope": 3,
    "presence_scope": "all",
    "ignore_tokens": range(150),
    "min_keep": 50,
    "stages": ("top_p", "temperature", "top_k", "min_p"),
    "draw": "race",
}


@each("name", SamplingParams.__slots__)
def test_every_field_changes_some_result(engine: Engine, name: str) -> None:
    if name in STAGES and BY_NAME[name].op not in ENGINES[engine.name].ops:
        pytest.skip(f"engine {engine.name!r} has no stage {name!r}")
    if name == "draw" and not engine.has_race:
        pytest.skip(f"engine {engine.name!r} has no race")
    base = {
        **{"temperature": 0.9, "top_k": 200, "top_p": 0.9, "min_p": 0.001, "seed": 3},
        **{"repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": 0.5},
        "draw": "inverse",
    }
    place = {"position": 1, "stream": "row", "prompt": PROMPT, "output": OUTPUT, **EVERYTHING}
    before = answers(sample_on(engine, LOGITS, **{**place, **base}))
    assert answers(sample_on(engine, LOGITS, **{**place, **base, name: FIELDS[name]})) != before


# ---------------------------------------------------------------- what is laid out


def test_a_tuple_of_dicts_is_as_good_as_a_list_of_them() -> None:
    rows = as_rows(np.zeros((2, 5), np.float32))
    for bias in ([{1: 2.0}, {3: -1.0}], [None, {0: 1.0}], [{2: 1.0}, None]):
        listed = make_logits_processors(rows, bias=bias)
        for given, expected in zip(
            make_logits_processors(rows, bias=tuple(bias)).bias, listed.bias, strict=True
        ):
            assert np.array_equal(given, expected)


def test_a_denormal_bias_survives_flushing() -> None:
    if torch is None:
        pytest.skip("needs torch, which can switch flushing on")
    row = np.full(2, 2.0**-126, np.float32)
    biases = ([1e-39], np.array([1e-39]), np.array([1e-39], np.float32))
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        for values in biases:
            assert sample(row, bias=([1], values), temperature=0).tokens == 1
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.skipif(not KNOWN, reason="the rounding mode cannot be set here")
@each("mode", ["down", "up", "zero"])
def test_a_bias_is_rounded_to_nearest(engine: Engine, mode: str) -> None:
    if engine.name not in ("native", "numba"):
        pytest.skip(f"engine {engine.name!r} refuses other rounding modes")
    bias = {token: token / 10 for token in range(20)}
    with rounding(mode):
        found = filter_logits(
            np.zeros(20, np.float32), bias=bias, engine=engine.name, isa=engine.isa
        )
    assert same_bits(found, (np.arange(20) / 10).astype(np.float32))


def test_nearest_float32_is_exact_in_every_range() -> None:
    """By integers it is NumPy's cast: normal and denormal results, ties, overflow and nan."""
    rng = np.random.default_rng(4)
    exponents = rng.integers(1023 - 160, 1023 + 130, 100_000).astype(np.uint64) << np.uint64(52)
    bits = rng.integers(2**64, size=100_000, dtype=np.uint64) & np.uint64(2**63 + 2**52 - 1)
    coarse = bits & ~np.uint64(2**28 - 1)  # with ties
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 2.0**-150, 3.4028235677973366e38])
    for numbers in ((bits | exponents).view(float), (coarse | exponents).view(float), special):
        with np.errstate(over="ignore"):
            expected = numbers.astype(np.float32)
        assert same_bits(_nearest_by_bits(numbers.view(np.uint64)), expected)
        assert same_bits(nearest_float32(numbers), expected)


def test_a_history_that_changes_during_a_call_is_the_one_that_was_checked() -> None:
    """No promise about which tokens count: only that nothing outside the vocabulary does."""
    history = np.zeros(200_000, np.int64)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            history[100_000:] = 10**9
            history[100_000:] = 0

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(60):
            with contextlib.suppress(ValueError):
                sample(LOGITS[0], output=history, frequency_penalty=0.1)
    finally:
        stop.set()
        writer.join()
