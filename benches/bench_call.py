"""Call overhead: rows of 16 tokens, on one thread, against `np.max` of such a row.

python benches/publish.py --only call
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from call import forms_of
from rivals import ARGMAX, OURS

if TYPE_CHECKING:
    from conftest import Bench

LOGITS = np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32)
FORMS = {**forms_of(LOGITS), ARGMAX: lambda: np.argmax(LOGITS[0])}
LOOP = 100
"""Calls that are timed together: one alone takes hardly longer than to read the clock."""


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("name", FORMS)
def test_call(bench: Bench, name: str) -> None:
    """A call in a loop."""
    form = FORMS[name]
    about = {"source": "normal", "vocabulary": LOGITS.shape[1], "limit": None}
    about |= {"table": "calls", "setting": name, "contender": ARGMAX if name == ARGMAX else OURS}
    bench.compare(
        lambda _: [form() for _ in range(LOOP)],
        LOGITS,
        lambda row: [np.max(row) for _ in range(LOOP)],
        tokens=LOOP,
        **about,
    )
