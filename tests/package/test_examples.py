"""The examples that need no model run, and print what docs/determinism.md reports."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_batchs_size_changes_logits_and_no_token_of_equal_logits(dtype: str) -> None:
    command = [sys.executable, EXAMPLES / "batch_size.py", "--steps", "1", "--dtype", dtype]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{dtype} logits that differ" in output
    assert re.findall(r"(\d+) between batch and row", output) == ["0"] * 4
