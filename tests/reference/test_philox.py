"""Random words: the published known answers, and how seed, position and stream enter them."""

from __future__ import annotations

import numpy as np
import pytest

from fastsample.engines import reference
from tests.support.case_loop import each
from tests.support.engines import Engine, make_plan

pytestmark = pytest.mark.smoke

ONES = 2**32 - 1
# Random123's known answers for philox4x32-10: key, counter, words.
KNOWN = [
    ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES), (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("key", "counter", "words"), KNOWN)
def test_reference_known_answers(key, counter, words):
    assert reference.philox4x32(key, counter) == words


def test_uniform_joins_the_first_two_words_low_word_first():
    seed, position, stream, purpose = 0x0123456789ABCDEF, 0xFEDCBA9876543210, 7, 3
    words = reference.philox4x32(
        (0x89ABCDEF, 0x01234567), (0x76543210, 0xFEDCBA98, stream, purpose)
    )
    assert reference.uniform(seed, position, stream, purpose) == words[0] + 2**32 * words[1]


DRAWS = [
    (0, 0, 0),
    (2**64 - 1, 2**64 - 1, 2**32 - 1),
    (2**32, 0, 0),
    (0, 2**32, 0),
    (0, 0, 1),
    (2**63, 2**63, 2**31),
    (123456789123456789, 5, 3),
    *np.random.default_rng(1).integers(0, (2**64, 2**64, 2**32), (100, 3), np.uint64).tolist(),
]


@each("size", [1, 2, 1000, 4096, 5003])
def test_a_constant_row_gives_the_draw_away(engine: Engine, size):
    """All masses are equal, so the token is floor(U * V / 2^64): the whole path in one formula."""
    rows = np.broadcast_to(np.float32(3.25), (len(DRAWS), size))
    rows = np.ascontiguousarray(rows)
    seed, position, stream = (np.array(x, dtype=np.uint64) for x in zip(*DRAWS, strict=True))
    tokens, status = engine.sample(
        rows, make_plan(len(DRAWS), seed=seed, position=position, stream=stream)
    )
    assert not status.any()
    assert tokens.tolist() == [(reference.uniform(*draw) * size) >> 64 for draw in DRAWS]
