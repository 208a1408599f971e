"""`sample`: the forms of its arguments and results, and that nothing else enters a draw."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from fastsample import SampleResult, sample
from tests.support import reference_rows
from tests.support.engines import Engine, sha256

RNG = np.random.default_rng(11)
LOGITS = (RNG.normal(size=(6, 300)) * 3).astype(np.float32)
CHAIN = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
BY_ROW: dict[str, Any] = {
    "temperature": [0.0, 0.5, 1.0, 1.5, 0.7, 100.0],
    "top_k": [0, 5, 0, 40, 1, 299],
    "top_p": [1.0, 0.9, 0.5, 1.0, 0.0, 0.99],
    "min_p": [0.0, 0.0, 0.1, 0.05, 1.0, 0.0],
    "seed": [0, 1, 2**63, 2**64 - 1, 7, 7],
    "position": [0, 1, 2**32, 2**64 - 1, 4, 4],
    "stream": [0, 1, 2, 2**32 - 1, 4, 5],
}


DTYPES = {"seed": np.uint64, "position": np.uint64}
ARRAYS = {name: np.array(values, DTYPES.get(name)) for name, values in BY_ROW.items()}


def on(engine: Engine, logits: np.ndarray, **arguments: Any) -> SampleResult:
    return sample(logits, engine=engine.name, isa=engine.isa, **arguments)


# ---------------------------------------------------------------- the same rule behind every form


def test_rows_follow_the_reference(engine: Engine) -> None:
    expected = [
        reference_rows.sample_row(row, **{name: values[b] for name, values in BY_ROW.items()})[0]
        for b, row in enumerate(LOGITS)
    ]
    assert on(engine, LOGITS, **BY_ROW, draw="inverse").tokens.tolist() == expected


def test_a_batch_is_its_rows(engine: Engine) -> None:
    batch = on(engine, LOGITS, **BY_ROW).tokens
    for b, row in enumerate(LOGITS):
        alone = on(engine, row, **{name: values[b] for name, values in BY_ROW.items()})
        assert alone.tokens == batch[b]


def test_order_and_companions_do_not_matter() -> None:
    order = np.array([3, 0, 5])
    part = {name: values[order] for name, values in ARRAYS.items()}
    assert sample(LOGITS[order], **part).tokens.tolist() == (
        sample(LOGITS, **BY_ROW).tokens[order].tolist()
    )


def test_forms_of_parameters() -> None:
    tuples = {name: tuple(values) for name, values in BY_ROW.items()}
    expected = sample(LOGITS, **BY_ROW).tokens.tolist()
    assert sample(LOGITS, **tuples).tokens.tolist() == expected
    assert sample(LOGITS, **ARRAYS).tokens.tolist() == expected


@pytest.mark.parametrize("n_threads", [1, 2, 3, 16])
def test_threads_do_not_matter(engine: Engine, n_threads: int) -> None:
    tokens = on(engine, LOGITS, **BY_ROW, n_threads=n_threads).tokens
    assert np.array_equal(tokens, sample(LOGITS, **BY_ROW).tokens)


def test_a_stream_per_row_is_the_word_row() -> None:
    by_word = sample(LOGITS, **CHAIN, seed=3, position=2, stream="row")
    by_number = sample(LOGITS, **CHAIN, seed=3, position=2, stream=np.arange(6))
    assert np.array_equal(by_word.tokens, by_number.tokens)


def test_seed_position_and_stream_each_move_the_draw() -> None:
    flat = np.zeros(2**20, np.float32)
    here = {"seed": 1, "position": 2, "stream": 3}
    moved = [here, *({**here, name: here[name] + 1} for name in here)]
    assert len({int(sample(flat, **place).tokens) for place in moved}) == 4


def test_int64_seeds_are_bits() -> None:
    bits = np.array([2**63, 2**64 - 1, 0, 1, 2, 3], dtype=np.uint64)
    plain = sample(LOGITS, seed=bits, position=0)
    signed = sample(LOGITS, seed=bits.view(np.int64), position=0)
    assert np.array_equal(plain.tokens, signed.tokens)
    assert np.array_equal(plain.seed, signed.seed)


@pytest.mark.parametrize("dtype", [np.uint64, np.uint32, np.int64])
def test_the_seeds_of_a_result_are_a_copy(dtype: type[np.generic]) -> None:
    seeds = np.arange(6).astype(dtype)
    found = sample(LOGITS, seed=seeds, position=0).seed
    seeds[:] = 9
    assert found.dtype == np.uint64
    assert found.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("logits", [LOGITS, LOGITS[0]], ids=["rows", "one row"])
def test_a_fresh_seed_is_replayed_by_one_line(logits: np.ndarray) -> None:
    result = sample(logits, **CHAIN)
    again = sample(logits, seed=result.seed, position=0, stream="row", **CHAIN)
    assert np.array_equal(again.tokens, result.tokens)


# ---------------------------------------------------------------- shapes


def test_one_row_gives_an_array_without_dimensions(engine: Engine) -> None:
    tokens = on(engine, LOGITS[0], seed=1, position=0).tokens
    assert isinstance(tokens, np.ndarray)
    assert tokens.shape == ()
    assert tokens.dtype == np.int64


def test_a_batch_of_one_needs_no_stream() -> None:
    assert sample(LOGITS[:1], seed=1, position=0).tokens.shape == (1,)


def test_no_rows(engine: Engine) -> None:
    tokens = on(engine, LOGITS[:0], seed=1, position=0).tokens
    assert tokens.shape == (0,)
    assert tokens.dtype == np.int64


@pytest.mark.parametrize(
    "logits",
    [np.zeros((0, 5), "f4"), np.empty((0, 5), "f4"), np.zeros((2, 5), "f4")[:0, ::-1]],
    ids=["zeros", "empty", "reversed"],
)
def test_no_rows_however_made(engine: Engine, logits: np.ndarray) -> None:
    for arguments in ({}, {"seed": 1, "position": 0}, {"seed": [], "position": []}):
        tokens = on(engine, logits, **arguments).tokens
        assert tokens.shape == (0,)
        assert tokens.dtype == np.int64


def test_one_token(engine: Engine) -> None:
    assert on(engine, LOGITS[:, :1], **CHAIN).tokens.tolist() == [0] * 6


@pytest.mark.parametrize("rows", [slice(None, None, -1), slice(None, None, 2), [5, 5, 1]])
def test_strides_do_not_matter(engine: Engine, rows: Any) -> None:
    view, arguments = LOGITS[rows], {**CHAIN, "seed": 5, "position": 6, "stream": "row"}
    assert np.array_equal(
        on(engine, view, **arguments).tokens, sample(view.copy(), **arguments).tokens
    )


def test_alignment_does_not_matter(engine: Engine) -> None:
    memory = np.zeros(LOGITS.nbytes + 1, np.uint8)
    moved = memory[1:].view(np.float32).reshape(LOGITS.shape)
    moved[...] = LOGITS
    assert np.array_equal(on(engine, moved, **BY_ROW).tokens, sample(LOGITS, **BY_ROW).tokens)


# ---------------------------------------------------------------- the seed that was used


def test_a_fresh_seed_differs_and_replays() -> None:
    first, second = sample(LOGITS, **CHAIN), sample(LOGITS, **CHAIN)
    assert first.seed != second.seed
    replayed = sample(LOGITS, **CHAIN, seed=first.seed, position=0, stream="row")
    assert np.array_equal(first.tokens, replayed.tokens)


def test_seed_of_the_result() -> None:
    assert sample(LOGITS[0], seed=np.uint64(5), position=0).seed == 5
    assert type(sample(LOGITS[0], seed=np.uint64(5), position=0).seed) is int
    by_row = sample(LOGITS, seed=list(range(6)), position=0).seed
    assert by_row.dtype == np.uint64
    assert by_row.tolist() == list(range(6))


# ---------------------------------------------------------------- what a call may touch


def test_input_does_not_change(engine: Engine) -> None:
    before = sha256(LOGITS, *ARRAYS.values())
    on(engine, LOGITS, **ARRAYS)
    assert sha256(LOGITS, *ARRAYS.values()) == before


def test_read_only_input(engine: Engine) -> None:
    frozen = LOGITS.copy()
    frozen.flags.writeable = False
    assert np.array_equal(on(engine, frozen, **BY_ROW).tokens, sample(LOGITS, **BY_ROW).tokens)


def test_out_is_the_tokens(engine: Engine) -> None:
    memory = np.full(12, -5)
    result = on(engine, LOGITS, **BY_ROW, out=memory[::2])
    assert result.tokens.base is memory
    assert memory[::2].tolist() == sample(LOGITS, **BY_ROW).tokens.tolist()
    assert memory[1::2].tolist() == [-5] * 6


def test_out_of_one_row() -> None:
    out = np.array(-5)
    assert sample(LOGITS[0], temperature=0, out=out).tokens is out
    assert out == LOGITS[0].argmax()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_out_is_untouched_by_a_bad_row(engine: Engine, bad: float) -> None:
    spoilt, out = LOGITS.copy(), np.full(6, -5)
    spoilt[4, 17] = bad
    before = sha256(spoilt)
    with pytest.raises(ValueError, match=f"row 4 holds {bad} at token 17"):
        on(engine, spoilt, out=out)
    assert out.tolist() == [-5] * 6
    assert sha256(spoilt) == before


def test_the_first_bad_row_is_named(engine: Engine) -> None:
    spoilt = LOGITS.copy()
    spoilt[2] = -np.inf
    spoilt[3, 0] = np.nan
    with pytest.raises(ValueError, match="row 2 is -inf at every token"):
        on(engine, spoilt, temperature=0)


# ---------------------------------------------------------------- threads


def test_other_threads_run_during_a_call(engine: Engine) -> None:
    """The counter lets go of the GIL at every step; the caller never has to within the interval."""
    if engine.name == "reference":
        pytest.skip("the reference engine is Python and holds the GIL")
    logits = np.zeros((16, 2**18), np.float32)
    logits += np.linspace(0, 1, 2**18, dtype=np.float32)
    count, stop, started = [0], threading.Event(), threading.Event()

    def run() -> None:
        while not stop.is_set():
            count[0] += 1
            started.set()
            time.sleep(0)

    interval = sys.getswitchinterval()
    counter = threading.Thread(target=run)
    counter.start()
    try:
        started.wait()
        sys.setswitchinterval(1000)
        for _ in range(20):
            before = count[0]
            on(engine, logits, top_p=0.9, n_threads=1)
            advanced = count[0] > before
            if advanced:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        counter.join()
    assert advanced


def test_many_threads_at_once(engine: Engine) -> None:
    expected = on(engine, LOGITS, **BY_ROW).tokens
    same = []

    def run() -> None:
        for _ in range(5):
            same.append(np.array_equal(on(engine, LOGITS, **BY_ROW, n_threads=2).tokens, expected))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 40


@pytest.mark.parametrize(("name", "count"), [("native", 2_000), ("numba", 200)])
def test_a_row_that_changes_during_a_call_never_gives_a_token_outside_it(
    name: str, count: int
) -> None:
    """No promise about which token: only that no wrong caller gets what is not in the row."""
    pytest.importorskip("fastsample._native" if name == "native" else "numba")
    row = RNG.normal(size=5_000).astype(np.float32)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            row.fill(3)
            row[::3] = -np.inf
            row[-1] = 9

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for i in range(count):
            for keywords in ({"temperature": 0}, {}, {"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.1}):
                token = int(sample(row, seed=i, position=0, **keywords, engine=name).tokens)
                assert 0 <= token < 5_000
    finally:
        stop.set()
        writer.join()
