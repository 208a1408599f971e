"""What a thread keeps from row to row: less than one and a half rows, after any request."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fastsample.engines import is_installed

MEASURE = """
import numpy as np
import fastsample

def resident():
    with open("/proc/self/statm") as memory:
        return int(memory.read().split()[1]) * 4096

rng = np.random.default_rng(0)
row = np.zeros(2**22, np.float32)
row += rng.standard_normal(row.size, np.float32)
# The first call loads and makes what is there once, for a row of any size.
fastsample.sample(row[:1000], temperature=0.0)
before = resident()
for settings in ({}, {"top_p": 0.9}, {"top_p": 0.9999}, {"top_k": 100_000}, {"top_k": 3_000_000},
                 {"min_p": 0.01}, {"temperature": 1.5, "top_p": 0.95}, {"top_n_sigma": 2.0},
                 {"typical_p": 0.9}, {"typical_p": 0.9, "temperature": 100.0}):
    for position in range(2):
        fastsample.sample(row, **settings, seed=1, position=position, n_threads=1)
fastsample.sample(row, seed=1, position=0, n_threads=1, logprobs=row.size)
print((resident() - before) / row.nbytes)
"""


@pytest.mark.skipif(not is_installed("native"), reason="fastsample._native is not built")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_workspace_is_smaller_than_one_and_a_half_rows() -> None:
    result = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=120
    )
    share = float(result.stdout)
    assert 0.1 < share <= 1.5
