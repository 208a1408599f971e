"""The recorded rows that ship with the package."""

from __future__ import annotations

import numpy as np
import pytest

from fastsample import candidates, sample
from fastsample.cli.files import DEMO_DATA, demo_origins, demo_rows, demo_texts


def test_the_data_stay_under_two_megabytes():
    assert sum(len(entry.read_bytes()) for entry in DEMO_DATA.iterdir()) <= 2_000_000


def test_rows_are_finite_float32():
    rows = demo_rows()
    assert rows.dtype == np.float32
    assert rows.shape == (6, 49152)
    assert np.isfinite(rows).all()


def test_every_token_has_its_text():
    texts = demo_texts()
    assert len(texts) == demo_rows().shape[1]
    assert all(isinstance(text, str) for text in texts)
    assert " the" in texts


def test_origins_describe_the_rows():
    rows, texts, origins = demo_rows(), demo_texts(), demo_origins()
    assert len(origins) == len(rows)
    for row, origin in zip(rows, origins, strict=True):
        first = candidates(row, 1)[0]
        assert (first.token, texts[first.token]) == (origin["next_token"], origin["next_text"])
        assert first.raw_probability == pytest.approx(origin["top_probability"], abs=1e-4)


def test_rows_range_from_certain_to_flat():
    entropies = [origin["entropy_bits"] for origin in demo_origins()]
    assert min(entropies) < 0.1
    assert max(entropies) > 10


def test_rows_give_a_token_each():
    tokens = sample(demo_rows(), temperature=0).tokens
    assert tokens.tolist() == [origin["next_token"] for origin in demo_origins()]


def test_measure_times_both_equally_often():
    pytest.importorskip("typer")
    pytest.importorskip("rich")
    from fastsample.cli import demo

    draw, maximum = demo.measure(demo_rows(), seconds=0.01).values()
    assert draw.count == maximum.count >= 6
    assert 0 < draw.p50 <= draw.p90 <= draw.p99
