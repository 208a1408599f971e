"""`sample(..., n=..., replacement=False)`: distinct tokens of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample import Status, sample
from tests.support.engines import Engine

V = 300
ROWS = np.random.default_rng(3).normal(0, 2, (5, V)).astype(np.float32)
PLACE: dict[str, Any] = {"seed": 7, "position": 3, "stream": "row"}


def on(engine: Engine) -> dict[str, Any]:
    if not engine.has_distinct:
        pytest.skip("the engine draws with replacement alone")
    return {"engine": engine.name, "isa": engine.isa}


@pytest.mark.parametrize(
    "settings", [{}, {"top_k": 20}, {"top_p": 0.9, "temperature": 1.5}], ids=str
)
def test_distinct_tokens_on_one_stream(engine: Engine, settings: dict[str, Any]) -> None:
    how = {**settings, **PLACE, **on(engine)}
    tokens = sample(ROWS, n=10, replacement=False, **how).tokens
    assert tokens.shape == (5, 10)
    assert all(len(set(row)) == 10 for row in tokens.tolist())
    assert tokens[:, 0].tolist() == sample(ROWS, **how).tokens.tolist()
    assert tokens[:, :4].tolist() == sample(ROWS, n=4, replacement=False, **how).tokens.tolist()
    # Row b is on stream b, and its tokens are those of the row alone.
    alone = {**how, "stream": 2}
    assert sample(ROWS[2], n=10, replacement=False, **alone).tokens.tolist() == tokens[2].tolist()


def test_all_tokens_of_a_row(engine: Engine) -> None:
    for size in (1, 2, 3, 16, 17, 128, 129, V):
        tokens = sample(ROWS[:, :size], n=size, replacement=False, **PLACE, **on(engine)).tokens
        assert np.array_equal(np.sort(tokens), np.tile(np.arange(size), (5, 1)))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_processors_dtypes_and_threads(engine: Engine, n_threads: int) -> None:
    how: dict[str, Any] = {**PLACE, "n": 12, "replacement": False, "kept_count": True}
    how |= {"mask": np.arange(V) % 3 > 0, "bias": {4: 3.0}, "output": [[4, 4, 5]] * 5}
    how |= {"presence_penalty": 0.5, "min_p": 0.001, "valid_vocab": V - 9}
    rows = ROWS.astype(np.float16)
    expected = sample(rows, **how, engine="reference")
    found = sample(rows, **how, **on(engine), n_threads=n_threads)
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.kept_count.tolist() == expected.kept_count.tolist()
    assert np.isin(found.tokens, np.flatnonzero(how["mask"][: V - 9])).all()


def test_missing_tokens_are_marked(engine: Engine) -> None:
    rows = ROWS.copy()
    rows[1, 2:] = -np.inf
    rows[2, 4] = np.nan
    rows[3, 3:] = -80  # of mass 0
    rows[3, :3] = 0
    how = {**PLACE, **on(engine)}
    found = sample(
        rows, n=6, replacement=False, temperature=[1, 1, 1, 1, 0], on_invalid="mark", **how
    )
    assert found.status.tolist() == [0, 0, Status.INVALID, 0, 0]
    drawn = [[token for token in row if token >= 0] for row in found.tokens.tolist()]
    assert [len(row) for row in drawn] == [6, 2, 0, 3, 1]
    assert sorted(drawn[1]) == [0, 1] and sorted(drawn[3]) == [0, 1, 2]
    assert drawn[4] == [ROWS[4].argmax()]
    assert all((row[len(one) :] == -1).all() for row, one in zip(found.tokens, drawn, strict=True))
    with pytest.raises(ValueError, match=r"`logits` row 1 must have n = 6 tokens .* got 2 "):
        sample(np.delete(rows, 2, axis=0), n=6, replacement=False, **how)
    with pytest.raises(ValueError, match=r"`logits` must have n = 2 tokens .* got 1 "):
        sample(ROWS[0], n=2, replacement=False, temperature=0, **{**how, "stream": 0})


def test_out_gets_the_tokens() -> None:
    out = np.zeros((5, 4), np.int64)
    found = sample(ROWS, n=4, replacement=False, **PLACE, out=out)
    assert found.tokens is out and len(set(out[0].tolist())) == 4
    # An error leaves it as it is.
    out[:] = 7
    with pytest.raises(ValueError, match="must have n = 4 tokens"):
        sample(ROWS, n=4, replacement=False, top_k=3, **PLACE, out=out)
    assert (out == 7).all()


def test_without_a_seed_a_fresh_one_is_in_the_result() -> None:
    first = sample(ROWS, n=3, replacement=False)
    place = {"seed": first.seed, "position": 0, "stream": "row"}
    again = sample(ROWS, n=3, replacement=False, **place)
    assert first.tokens.tolist() == again.tokens.tolist()


def test_one_token_is_that_of_a_draw() -> None:
    found = sample(ROWS, n=1, replacement=False, **PLACE).tokens
    assert found.tolist() == sample(ROWS, n=1, **PLACE).tokens.tolist()


def test_a_stream_is_enough_for_many_tokens() -> None:
    """They take one, and may be drawn on the last."""
    tokens = sample(ROWS[0], n=9, replacement=False, seed=1, position=0, stream=2**32 - 1).tokens
    assert len(set(tokens.tolist())) == 9
