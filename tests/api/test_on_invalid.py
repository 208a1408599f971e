"""Bad rows that `on_invalid="mark"` marks, among good ones that are drawn from as if alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, Status
from tests.support.engines import Engine
from tests.support.sample_calls import ALL_LOGPROBS, EVERYTHING, LOGITS, sample_on

ROWS = np.stack([LOGITS[0]] * 6)
ROWS[1, 4] = np.nan
ROWS[2] = -np.inf
ROWS[4, 0] = np.inf
CODES = [Status.OK, Status.INVALID, Status.EMPTY, Status.BAD_PARAM, Status.INVALID, Status.OK]
MARK: dict[str, Any] = {
    "on_invalid": "mark",
    "temperature": [1.0, 1.0, 1.0, -1.0, 1.0, 1.0],
    "seed": 8,
    "position": 0,
    "stream": "row",
}


def test_bad_rows_are_marked(engine: Engine) -> None:
    result = sample_on(engine, ROWS, **MARK, **EVERYTHING)
    assert result.status.dtype == np.uint8
    assert result.status.tolist() == CODES
    bad = result.status != Status.OK
    assert (result.tokens == -1).tolist() == bad.tolist()
    assert (result.kept_count == 0).tolist() == bad.tolist()
    for form in range(3):
        assert np.isnan(result.logprobs[form]).tolist() == bad.tolist()
        assert (result.ranks[form] == 0).tolist() == bad.tolist()
        assert (result.top_tokens[form, bad] == -1).all()
        assert np.isnan(result.top_logprobs[form, bad]).all()


def test_neighbours_of_bad_rows_are_unharmed(engine: Engine) -> None:
    marked = sample_on(engine, ROWS, **MARK, **ALL_LOGPROBS)
    for b in (0, 5):
        alone = sample_on(engine, ROWS[b], seed=8, position=0, stream=b, **ALL_LOGPROBS)
        assert alone.tokens == marked.tokens[b]
        assert alone.top_logprobs.tolist() == marked.top_logprobs[:, b].tolist()


def test_marks_of_one_row(engine: Engine) -> None:
    result = sample_on(engine, ROWS[1], on_invalid="mark", stream=0)
    assert (result.tokens.shape, result.status.shape) == ((), ())
    assert (int(result.tokens), result.status) == (-1, Status.INVALID)


def test_marks_of_several_draws(engine: Engine) -> None:
    result = sample_on(engine, ROWS, **MARK, n=3)
    assert (result.tokens == -1).all(axis=1).tolist() == [code != 0 for code in CODES]


def test_marked_rows_are_written_out(engine: Engine) -> None:
    out = np.full(6, -5)
    sample_on(engine, ROWS, **MARK, out=out)
    assert (out == -1).tolist() == [code != 0 for code in CODES]


def test_bad_seeds_are_marked(engine: Engine) -> None:
    seeds = [1, 2**64, 3, -1]
    result = sample_on(engine, LOGITS, on_invalid="mark", seed=seeds, position=1, stream=0)
    assert result.status.tolist() == [0, 3, 0, 3]
    assert result.seed.tolist() == [1, 0, 3, 0]
    result = sample_on(
        engine,
        LOGITS,
        on_invalid="mark",
        seed=[1, 2, 3, 4],
        position=1,
        stream=0,
        top_p=[1, 2, 1, 1],
    )
    assert result.seed.tolist() == [1, 0, 3, 4]


def test_rows_that_adjusting_spoils_are_marked(engine: Engine) -> None:
    top = np.full((3, 4), 3e38, np.float32)
    result = sample_on(
        engine, top, on_invalid="mark", bias=[{1: 3e38}, None, dict.fromkeys(range(4), -np.inf)]
    )
    assert result.status.tolist() == [Status.INVALID, Status.OK, Status.EMPTY]


BAD_BIASES = [{9**9: 1.0}, {0: np.nan}, {1: np.inf}, {-1: 1.0}, {"0": 1.0, 0: 2.0}]
GOOD_BIASES = [None, {1: 9.0}]


def test_a_bad_bias_marks_its_row_alone(engine: Engine) -> None:
    biases = [*BAD_BIASES, *GOOD_BIASES]
    rows = np.stack([LOGITS[0]] * len(biases))
    place: dict[str, Any] = {"seed": 8, "position": 0, "stream": "row"}
    marked = sample_on(engine, rows, on_invalid="mark", bias=biases, **place)
    n_bad = len(BAD_BIASES)
    assert marked.status.tolist() == [Status.BAD_PARAM] * n_bad + [Status.OK] * len(GOOD_BIASES)
    good = sample_on(engine, rows, bias=[None] * n_bad + GOOD_BIASES, **place)
    assert marked.tokens.tolist() == [-1] * n_bad + good.tokens[n_bad:].tolist()


def test_a_bad_bias_for_all_rows_is_an_error(engine: Engine) -> None:
    with pytest.raises(ValueError, match="`bias` must be finite or -inf"):
        sample_on(engine, ROWS, on_invalid="mark", bias={0: np.nan})


def test_a_bad_bias_does_not_stop_other_sequences() -> None:
    sampler = Sampler([SamplingParams(seed=1), SamplingParams(seed=2, presence_penalty=0.5)])
    rows = np.stack([LOGITS[0]] * 2)
    for bad in BAD_BIASES:
        expected = sampler.clone().sample(rows, bias=[None, {1: 2.0}]).tokens[1]
        result = sampler.sample(rows, bias=[bad, {1: 2.0}], on_invalid="mark")
        assert result.status.tolist() == [Status.BAD_PARAM, Status.OK]
        assert result.tokens.tolist() == [-1, expected]
    assert [sampler.sequence(number).position for number in (0, 1)] == [0, len(BAD_BIASES)]
    with pytest.raises(ValueError, match="at row 0"):
        sampler(rows, bias=[BAD_BIASES[0], None])
