"""`SampleResult.to_openai`: log-probabilities as OpenAI's API for chat completions has them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from fastsample import sample

WORDS = [b"a", b" the", b"\xe2\x82", b"\xac", b""]
LOGITS = np.array([[1.0, 2.0, 0.5, -np.inf, 0.0], [0.0, 0.0, 3.0, 1.0, -1e9]], np.float32)
GREEDY: dict[str, Any] = {"temperature": 0}
PLACE: dict[str, Any] = {"seed": 1, "position": 0, "stream": "row"}


def in_json(value: Any) -> Any:
    """The value, from strict JSON of it, in UTF-8 as servers write it."""
    return json.loads(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())


def test_an_object_has_the_fields_of_the_api() -> None:
    result = sample(LOGITS[0], **GREEDY, logprobs=2)
    found = result.to_openai(WORDS.__getitem__)
    top = result.top_logprobs.tolist()
    entry = {"token": " the", "logprob": float(result.logprobs), "bytes": [32, 116, 104, 101]}
    likely = [
        {"token": " the", "logprob": top[0], "bytes": [32, 116, 104, 101]},
        {"token": "a", "logprob": top[1], "bytes": [97]},
    ]
    assert found == {"content": [{**entry, "top_logprobs": likely}], "refusal": None}
    assert in_json(found) == found


def test_what_json_cannot_hold() -> None:
    """-inf, and what is below -9999, is that number."""
    raw, processed = (
        sample(LOGITS, **GREEDY, logprobs=5, logprobs_mode=mode).to_openai(WORDS.__getitem__)
        for mode in ("raw", "processed")
    )
    likely = in_json(raw)[0]["content"][0]["top_logprobs"]
    assert [one["logprob"] for one in likely][-1] == -9999.0
    assert likely[-1]["bytes"] == [0xAC]
    assert raw[1]["content"][0]["top_logprobs"][-1]["logprob"] == -9999.0
    likely = in_json(processed)[1]["content"][0]["top_logprobs"]
    assert [one["logprob"] for one in likely] == [0.0, *[-9999.0] * 4]


def test_parts_of_characters() -> None:
    """Bytes are exact; a str that may stand for others has none. UTF-8 can encode every token."""
    (entry,) = sample(LOGITS[1], **GREEDY, logprobs=0).to_openai(WORDS.__getitem__)["content"]
    assert (entry["token"], entry["bytes"]) == ("\ufffd", [0xE2, 0x82])
    for text, token, data in [
        ("\ufffd", "\ufffd", None),
        ("\ud800x", "\ufffdx", None),
        (b"\xe2\x82".decode(errors="surrogateescape"), "\ufffd\ufffd", None),
        ("\ud83d\ude00", "\U0001f600", [0xF0, 0x9F, 0x98, 0x80]),
        ("\ufeff\u20ac", "\ufeff\u20ac", [0xEF, 0xBB, 0xBF, 0xE2, 0x82, 0xAC]),
    ]:
        result = sample(LOGITS[1], **GREEDY, logprobs=0)
        (entry,) = in_json(result.to_openai(lambda _, text=text: text))["content"]
        assert (entry["token"], entry["bytes"]) == (token, data)


@pytest.mark.parametrize("n", [None, 1, 3])
@pytest.mark.parametrize("rows", [LOGITS[0], LOGITS, LOGITS[:0]])
def test_lists_for_the_axes_of_the_tokens(rows: np.ndarray, n: int | None) -> None:
    place = PLACE if rows.ndim == 2 else {**PLACE, "stream": 0}
    result = sample(rows, **place, n=n, logprobs=2)
    found = result.to_openai(WORDS.__getitem__)
    for at in np.ndindex(result.tokens.shape):
        one, row = found, at[: rows.ndim - 1]
        for place_on_axis in at:
            one = one[place_on_axis]
        (entry,) = one["content"]
        assert entry["logprob"] == result.logprobs[at]
        assert entry["bytes"] == [*WORDS[result.tokens[at]]]
        likely = [one["bytes"] for one in entry["top_logprobs"]]
        assert likely == [[*WORDS[token]] for token in result.top_tokens[row]]
    if rows.ndim == 2:
        assert len(found) == len(rows)


def test_one_of_several_modes() -> None:
    modes = ("processed", "raw")
    both = sample(LOGITS, **PLACE, logprobs=1, logprobs_mode=modes)
    for at, mode in enumerate(modes):
        one = sample(LOGITS, **PLACE, logprobs=1, logprobs_mode=mode)
        alone = one.to_openai(WORDS.__getitem__)
        assert both.to_openai(WORDS.__getitem__, mode=at) == alone


def test_rows_without_log_probabilities() -> None:
    rows = LOGITS.copy()
    rows[0, 0] = np.nan
    marked = sample(rows, **PLACE, logprobs=1, on_invalid="mark").to_openai(WORDS.__getitem__)
    assert marked[0] is None
    assert marked[1] is not None
    masked = sample(rows, **PLACE, logprobs=1, mask=~np.isnan(rows)).to_openai(WORDS.__getitem__)
    assert masked[0] is None
    assert masked[1] == marked[1]


def test_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arrays, tensors = (
        sample(one, **PLACE, n=2, logprobs=3).to_openai(WORDS.__getitem__)
        for one in (LOGITS, torch.from_numpy(LOGITS))
    )
    assert in_json(tensors) == tensors == arrays


def test_a_text_in_one_list() -> None:
    """As docs/api.md collects it: with a decode that returns str."""
    content = []
    for position in range(4):
        result = sample(LOGITS[0], seed=3, position=position, logprobs=1)
        content += result.to_openai(str)["content"]
    assert [one["token"] for one in content] == [
        str(sample(LOGITS[0], seed=3, position=position).tokens) for position in range(4)
    ]
