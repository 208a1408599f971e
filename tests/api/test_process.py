"""What may happen to a process: little memory, no further threads, an end while threads draw."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("fastsample._native")
if sys.platform != "linux":
    pytest.skip("limits as Linux has them", allow_module_level=True)

START = """
import resource, threading
import numpy as np
import fastsample
from fastsample import Sampler, sample
rows = np.random.default_rng(3).normal(scale=4, size=(16, 151_936)).astype(np.float32)
def draw(n_threads=2, logprobs=None):
    chosen = {"temperature": 0.9, "top_p": 0.95, "seed": 5, "position": 2, "stream": "row"}
    return sample(rows, **chosen, n_threads=n_threads, logprobs=logprobs).tokens.tolist()
"""


def run(script: str, **options: Any) -> str:
    """Return what a script prints, which has to end well and to report nothing."""
    done = subprocess.run(
        [sys.executable, "-c", START + script],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        **options,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_little_memory_ends_in_the_token_or_in_a_clean_error() -> None:
    outcomes = run("""
expected = draw(1)
no_limit = resource.getrlimit(resource.RLIMIT_AS)
sampler = Sampler(temperature=0.9, seed=5)
first = sampler(rows[0])
for margin in (0, 1, 2, 3, 5, 8, 12, 16, 20, 24, 32, 48, 64, 256):
    used = 4096 * int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (used + (margin << 20), no_limit[1]))
    try:
        outcome = draw(logprobs=100_000) == expected  # 30 MB of results
        sampler.rewind(1)
        outcome &= sampler(rows[0]) == first
    except MemoryError:
        outcome = "MemoryError"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, no_limit)
    if not sampler.position:
        assert sampler(rows[0]) == first
    assert draw() == expected
    print(outcome)
""").split()
    assert {*outcomes} == {"True", "MemoryError"}
    assert outcomes[-1] == "True"


def test_without_another_thread_the_caller_draws() -> None:
    done = run("""
import os
if os.getuid() == 0:
    os.setgroups([])
    os.setuid(65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    threading.Thread(target=int).start()
except RuntimeError:
    print("no thread")
print(draw(8) == draw(1))
""")
    if "no thread" not in done:
        pytest.skip("the limit on threads does not act here")
    assert done.split() == ["no", "thread", "True"]


def test_a_daemon_thread_may_draw_while_the_process_ends() -> None:
    run("""
def loop():
    sampler = Sampler(seed=1)
    while True:
        draw()
        sampler(rows[0])
        started.set()
started = threading.Event()
for _ in range(3):
    threading.Thread(target=loop, daemon=True).start()
assert started.wait(100)
""")


def test_importing_and_drawing_leave_the_float_mode() -> None:
    run("""
draw()
assert np.float32(1e-40) * np.float32(1) > 0 and np.float32(1e-38) * np.float32(0.25) > 0
""")
