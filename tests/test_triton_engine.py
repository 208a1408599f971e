"""The Triton engine gives native's bits: random jobs, wide rows and recorded ones.

Without a GPU the kernels run in Triton's interpreter, which conftest.py asks for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from held import CHAINS, hold_chain, hold_jobs, hold_recorded
from support import Engine

pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.triton

TRITON = Engine("triton")
COLUMNS = (1, 2, 63, 64, 65, 128, 200, 1000, 3001)


def test_jobs() -> None:
    hold_jobs(TRITON, (91, 0), COLUMNS, 300)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(1, 5))
def test_more_jobs(part: int) -> None:
    hold_jobs(TRITON, (91, part), COLUMNS, 3_000)


@pytest.mark.parametrize(
    "chain",
    [
        chain if at == 2 else pytest.param(chain, marks=pytest.mark.nightly)
        for at, chain in enumerate(CHAINS)
    ],
    ids=str,
)
def test_every_way_to_a_draw_from_wide_rows(chain: dict[str, Any]) -> None:
    hold_chain(TRITON, chain, np.float32)


@pytest.mark.nightly
def test_recorded_rows() -> None:
    hold_recorded(TRITON, 92, 64)
