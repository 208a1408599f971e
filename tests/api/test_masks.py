"""Masks of calls: short ones, lists with one for each row, and those that messages say to pass."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, filter_logits, kept_set, sample
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.sample_calls import ALLOWED, EVERYTHING, LOGITS, V, sample_on

NARROW = ALLOWED[:, : V - 1]
PADDED = np.concatenate([NARROW, np.zeros((4, 1), bool)], axis=1)
GREEDY = [SamplingParams(temperature=0)] * 4


def bits_of(allowed: np.ndarray) -> np.ndarray:
    padded = np.zeros(-(-len(allowed) // 32) * 32, bool)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view(np.int32)


# ---------------------------------------------------------------- short masks

CALLS = {
    "sample": lambda **mask: sample(LOGITS, temperature=0, **mask).tokens.tolist(),
    "one row": lambda mask, **short: sample(LOGITS[0], temperature=0, mask=mask[0], **short).tokens,
    "prepared": lambda mask, **short: (
        sample(LOGITS[0], temperature=0, seed=1, position=0, mask=mask[0], **short).tokens
    ),
    "kept_set": lambda **mask: kept_set(LOGITS, **mask).tokens.tolist(),
    "filter_logits": lambda **mask: filter_logits(LOGITS, **mask).tolist(),
    "sampler": lambda mask, **short: Sampler(GREEDY, stream="row", **short)(
        LOGITS, mask=mask
    ).tolist(),
    "sampler.sample": lambda mask, **short: (
        Sampler(GREEDY, stream="row", **short).sample(LOGITS, mask=mask).tokens.tolist()
    ),
    "clone": lambda mask, **short: (
        Sampler(GREEDY, stream="row", **short).clone()(LOGITS, mask=mask).tolist()
    ),
}


@each("name", CALLS)
def test_a_short_mask_is_an_error_unless_it_may_ban(name: str) -> None:
    call = CALLS[name]
    with pytest.raises(ValueError, match='short_mask="ban" bans the tokens past its end'):
        call(mask=NARROW)
    assert call(mask=NARROW, short_mask="ban") == call(mask=PADDED)


def test_a_short_mask_is_an_error_in_the_next_call_of_a_sampler() -> None:
    sampler = Sampler(GREEDY, stream="row")
    expected = sampler(LOGITS, mask=PADDED).tolist()
    for mask in (NARROW, NARROW[:1], NARROW[0]):
        with pytest.raises(ValueError, match="`mask` must have shape"):
            sampler(LOGITS, mask=mask)
    assert sampler(LOGITS, mask=PADDED).tolist() == expected
    assert sampler.sequence(0).position == 2


def test_a_mask_need_not_reach_past_the_valid_vocabulary() -> None:
    options = {"temperature": 0, "valid_vocab": V - 1}
    expected = sample(LOGITS, mask=ALLOWED, **options).tokens.tolist()
    assert sample(LOGITS, mask=NARROW, **options).tokens.tolist() == expected
    assert (
        Sampler(GREEDY, stream="row", valid_vocab=V - 1)(LOGITS, mask=NARROW).tolist() == expected
    )
    with pytest.raises(ValueError, match="short_mask"):
        sample(LOGITS, mask=NARROW[:, :-1], **options)


# ---------------------------------------------------------------- a list with a mask for each row

LISTS: dict[str, list[Any]] = {
    "bool": [ALLOWED[0], None, ALLOWED[2], None],
    "words": [bits_of(ALLOWED[0]), None, bits_of(ALLOWED[2]), None],
    "both": [ALLOWED[0], None, bits_of(ALLOWED[2]), None],
    "uint32": [bits_of(ALLOWED[0]).view(np.uint32), None, ALLOWED[2], None],
}
ALL = np.ones(V, bool)


@each("name", LISTS)
def test_a_list_has_a_mask_or_none_for_each_row(engine: Engine, name: str) -> None:
    stacked = np.stack([ALLOWED[0], ALL, ALLOWED[2], ALL])
    expected = sample_on(engine, LOGITS, mask=stacked, **EVERYTHING)
    for masks in (LISTS[name], tuple(LISTS[name])):
        found = sample_on(engine, LOGITS, mask=masks, **EVERYTHING)
        assert found.tokens.tolist() == expected.tokens.tolist()
        assert found.kept_count.tolist() == expected.kept_count.tolist()
        assert found.top_tokens.tolist() == expected.top_tokens.tolist()


def test_a_list_of_none_masks_nothing() -> None:
    expected = sample(LOGITS, temperature=0).tokens.tolist()
    assert sample(LOGITS, temperature=0, mask=[None] * 4).tokens.tolist() == expected
    assert Sampler(GREEDY, stream="row")(LOGITS, mask=[None] * 4).tolist() == expected
    assert sample(LOGITS[0], temperature=0, mask=[ALLOWED[0]]).tokens == (
        sample(LOGITS[0], temperature=0, mask=ALLOWED[0]).tokens
    )


def test_masks_of_a_list_may_be_short() -> None:
    masks = [NARROW[0], None, bits_of(ALLOWED[2])[:2], NARROW[3]]
    cut = ALLOWED[2] & (np.arange(V) < 64)
    expected = kept_set(LOGITS, mask=np.stack([PADDED[0], ALL, cut, PADDED[3]])).tokens.tolist()
    assert kept_set(LOGITS, mask=masks, short_mask="ban").tokens.tolist() == expected
    with pytest.raises(ValueError, match=r"got \(299,\) at row 0 \(short_mask"):
        kept_set(LOGITS, mask=masks)


# ---------------------------------------------------------------- what messages say to pass

ENCODINGS = {
    "additive": lambda allowed: np.where(allowed, 0, -np.inf).astype(np.float32),
    "additive -1e9": lambda allowed: np.where(allowed, 0, -1e9),
    "additive integers": lambda allowed: np.where(allowed, 0, -(10**9)),
    "additive int32": lambda allowed: np.where(allowed, 0, -(10**9)).astype(np.int32),
    **{
        f"numbers {dtype}": lambda allowed, dtype=dtype: allowed.astype(dtype)
        for dtype in ("f4", "f2", "i8", "i4", "u4", "u1", ">i4", ">f8")
    },
    **{
        f"words {dtype}": lambda allowed, dtype=dtype: bits_of(allowed).astype(dtype)
        for dtype in ("i8", "u8", ">i4", ">u4", ">i8")
    },
    "unsigned words": lambda allowed: bits_of(allowed).view(np.uint32).astype(np.int64),
    "words that are too many": lambda allowed: np.append(bits_of(allowed), np.int32(-1)),
    "bytes": lambda allowed: bits_of(allowed).view(np.uint8),
    "signed bytes": lambda allowed: bits_of(allowed).view(np.int8),
    "halves": lambda allowed: bits_of(allowed).view(np.int16),
    "list of bools": lambda allowed: allowed.tolist(),
    "list of numbers": lambda allowed: allowed.astype(int).tolist(),
    "list of words": lambda allowed: bits_of(allowed).view(np.uint32).tolist(),
    "list of tokens": lambda allowed: np.flatnonzero(allowed).tolist(),
    "set of tokens": lambda allowed: set(np.flatnonzero(allowed).tolist()),
    "tokens": np.flatnonzero,
}


@each("size", [33, 100, 1_000, 4_096])
@each("name", ENCODINGS)
def test_what_a_message_says_to_pass_allows_what_was_meant(name: str, size: int) -> None:
    rng = np.random.default_rng(size)
    allowed = rng.random(size) < 0.4
    mask = ENCODINGS[name](allowed)
    row = rng.standard_normal(size, dtype=np.float32)
    with pytest.raises((TypeError, ValueError)) as raised:
        sample(row, mask=mask)
    (code,) = re.findall(r"pass `(.*?)`", str(raised.value))
    mended = eval(code, {"np": np, "mask": mask})
    assert (filter_logits(row, mask=mended) > -np.inf).tolist() == allowed.tolist()
