"""Rows over threads: the same answers at every number and limit, side by side, and after a fork."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fastsample
from tests.support.engines import Engine, make_plan
from tests.support.forks import holds_in_a_child

native = pytest.importorskip("fastsample._native")

RNG = np.random.default_rng(4)
ROWS = RNG.normal(scale=3, size=(67, 300)).astype(np.float32)
WIDE = RNG.normal(scale=3, size=(9, 2**17)).astype(np.float32)
PLAN = {"temperature": 0.9, "top_p": 0.95, "seed": 3}
TASKS = Path("/proc/self/task")


def tokens_of(rows: np.ndarray = WIDE, n_threads: int | None = None) -> list[int]:
    chosen = {"stream": "row", "position": 0, "n_threads": n_threads}
    return fastsample.sample(rows, **PLAN, **chosen).tokens.tolist()


@pytest.fixture(params=[1, 2, 8])
def limit(request: pytest.FixtureRequest) -> Iterator[int]:
    """A limit on threads, for one test."""
    before = native.most_threads()
    native.limit_threads(request.param)
    yield request.param
    native.limit_threads(before)


# ---------------------------------------------------------------- the same answers


@pytest.mark.parametrize("n_threads", [None, 1, 2, 3, 8])
def test_a_limit_never_changes_tokens(limit: int, n_threads: int | None) -> None:
    assert native.most_threads() == limit
    assert tokens_of(ROWS, n_threads) == tokens_of(ROWS, 1)
    assert tokens_of(WIDE, n_threads) == tokens_of(WIDE, 1)


@pytest.mark.parametrize("n_threads", [2, 3, 7, 16])
def test_every_row_is_answered_once(engine: Engine, n_threads: int) -> None:
    """For every number of rows: they are handed out in runs of different lengths."""
    plan = make_plan(len(ROWS), **PLAN, stream=range(len(ROWS)))
    expected, _ = engine.sample(ROWS, plan)
    for count in range(len(ROWS)):
        tokens, status = engine.sample(ROWS[:count], plan[:count].copy(), n_threads)
        assert tokens.tolist() == expected[:count].tolist()
        assert not status.any()


@pytest.mark.torch
def test_threads_of_torch_change_nothing() -> None:
    """torch has its own threads: as many as it was set to, whatever the call's `n_threads`."""
    torch = pytest.importorskip("torch")
    plan = make_plan(len(WIDE), **PLAN, stream=range(len(WIDE)))
    expected, _ = Engine("reference").sample(WIDE, plan)
    before = torch.get_num_threads()
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            tokens, _ = Engine("torch").sample(WIDE, plan)
            assert tokens.tolist() == expected.tolist(), n_threads
    finally:
        torch.set_num_threads(before)


# ---------------------------------------------------------------- side by side


def test_callers_side_by_side_all_end() -> None:
    """More callers than workers, short calls among long ones, and the pool is busy throughout."""
    expected = {len(rows): tokens_of(rows, 1) for rows in (ROWS, WIDE)}
    wrong, counts = [], [0] * 6

    def call(caller: int) -> None:
        rows = WIDE if caller % 2 else ROWS
        for _ in range(5 if caller % 2 else 100):
            counts[caller] += 1
            if tokens_of(rows, 2 + caller % 3) != expected[len(rows)]:
                wrong.append(caller)

    callers = [threading.Thread(target=call, args=(n,)) for n in range(len(counts))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(120)
    assert not any(caller.is_alive() for caller in callers)
    assert (wrong, counts) == ([], [100, 5] * 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_row_that_is_emptied_during_a_call_has_no_token_beside_a_count_of_none() -> None:
    row, seconds = RNG.normal(size=40_000).astype(np.float32), 1.0
    filled, empty, is_done = row.copy(), np.full_like(row, -np.inf), threading.Event()

    def write() -> None:
        while not is_done.is_set():
            row[:] = empty
            row[:] = filled

    writer, end, found = threading.Thread(target=write), time.monotonic() + seconds, set()
    writer.start()
    while time.monotonic() < end:
        options = {"typical_p": 0.9, "n": 4, "kept_count": True, "on_invalid": "mark"}
        result = fastsample.sample(row, **options)
        is_drawn = result.tokens >= 0
        assert is_drawn.all() == is_drawn.any()
        found.add((bool(is_drawn.all()), bool(result.kept_count > 0), int(result.status)))
    is_done.set()
    writer.join()
    assert (True, True, fastsample.Status.OK) in found
    assert found <= {(True, True, fastsample.Status.OK), (False, False, fastsample.Status.EMPTY)}


def test_a_child_forked_while_the_pool_is_busy_has_a_pool_of_its_own() -> None:
    expected = tokens_of(ROWS, 1)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            tokens_of(ROWS, 3)

    busy = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in busy:
        thread.start()
    try:
        for _ in range(20):
            assert holds_in_a_child(lambda: tokens_of(ROWS, 3) == expected)
    finally:
        stop.set()
        for thread in busy:
            thread.join()
    assert tokens_of(ROWS, 3) == expected


# ---------------------------------------------------------------- how many

COUNT_WORKERS = """
import os
import numpy as np
import fastsample

fastsample.sample(np.zeros((16, 32), np.float32), n_threads=1)
before = len(os.listdir("/proc/self/task"))
fastsample.sample(np.zeros((16, 32), np.float32), n_threads=12)
print(fastsample.info()["threads"], len(os.listdir("/proc/self/task")) - before)
"""


def run(source: str, **environment: str) -> str:
    """What a new process prints; it fails with what it says."""
    kept = {name: text for name, text in os.environ.items() if name != "FASTSAMPLE_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**kept, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


needs_tasks = pytest.mark.skipif(not TASKS.exists(), reason="this system does not list threads")


BLOCKED = """
import os, signal, time
import numpy as np
import fastsample

def blocked(task):
    with open(f"/proc/self/task/{task}/status") as status:
        return next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk"))

fastsample.sample(np.zeros((8, 2**17), np.float32), seed=1, position=0, stream="row", n_threads=2)
(worker,) = set(os.listdir("/proc/self/task")) - {str(os.getpid())}
# Until it has started, the C library blocks every signal, also 32 that is its own.
while blocked(worker) >> 31 & 1:
    time.sleep(0.01)
print([blocked(worker) >> number - 1 & 1 for number in (signal.SIGTERM, signal.SIGSEGV)])
"""


@needs_tasks
def test_workers_block_signals_but_those_of_faults() -> None:
    """A signal that the program waits for would end the process if a worker received it."""
    environment = {"OPENBLAS_NUM_THREADS": "1", "FASTSAMPLE_NUM_THREADS": "2"}
    assert run(BLOCKED, **environment) == "[1, 0]"


@needs_tasks
@pytest.mark.parametrize("number", [1, 3, 40])
def test_the_environment_limits_every_call(number: int) -> None:
    workers = min(number, 12) - 1
    assert run(COUNT_WORKERS, FASTSAMPLE_NUM_THREADS=str(number)) == f"{number} {workers}"


@needs_tasks
def test_no_call_uses_more_threads_than_there_are_processors() -> None:
    processors = len(os.sched_getaffinity(0))
    done = run(COUNT_WORKERS, FASTSAMPLE_NUM_THREADS="")
    assert done == f"{processors} {min(processors, 12) - 1}"


# ---------------------------------------------------------------- threadpoolctl

LIMITED = """
{imports}
import os
import numpy as np

def ours():
    return [one for one in threadpoolctl.threadpool_info() if one["user_api"] == "fastsample"]

def workers():
    before = len(os.listdir("/proc/self/task"))
    fastsample.sample(np.zeros((16, 32), np.float32), n_threads=3)
    return len(os.listdir("/proc/self/task")) - before

[found] = ours()
assert found["version"] == fastsample.__version__
assert found["num_threads"] == fastsample.info()["threads"] == 5
with threadpoolctl.threadpool_limits(1):
    assert ours()[0]["num_threads"] == fastsample.info()["threads"] == 1
    assert workers() == 0
with threadpoolctl.threadpool_limits(1, user_api="blas"):
    assert fastsample.info()["threads"] == 5
with threadpoolctl.threadpool_limits({{"fastsample": 2}}):
    assert workers() == 1
assert fastsample.info()["threads"] == 5
print("limited")
"""


@needs_tasks
@pytest.mark.parametrize(
    "imports",
    [
        "import threadpoolctl, fastsample",
        "import fastsample, threadpoolctl; fastsample.threads.register()",
        "import threadpoolctl, fastsample; fastsample.threads.register()",
    ],
)
def test_threadpoolctl_sees_and_limits(imports: str) -> None:
    pytest.importorskip("threadpoolctl")
    source = LIMITED.format(imports=imports)
    assert run(source, FASTSAMPLE_NUM_THREADS="5") == "limited"


ORDERS = pytest.mark.parametrize(
    "order", ["fastsample, threadpoolctl", "threadpoolctl, fastsample"]
)
REGISTER = """
try:
    fastsample.threads.register()
except {error} as error:
    print("refused")
"""


@ORDERS
def test_a_bad_environment_stops_no_import(order: str) -> None:
    pytest.importorskip("threadpoolctl")
    source = f"import {order}; print('imported')" + REGISTER.format(error="ValueError")
    assert run(source, FASTSAMPLE_NUM_THREADS="many") == "imported\nrefused"


@ORDERS
def test_kernels_that_cannot_be_loaded_stop_no_import(order: str, tmp_path: Path) -> None:
    pytest.importorskip("threadpoolctl")
    package = Path(fastsample.__file__).parent
    copy = shutil.copytree(package, tmp_path / "fastsample", ignore=shutil.ignore_patterns("*.so"))
    (copy / Path(native.__file__).name).write_bytes(b"no library")
    source = f"import {order}; print('imported')" + REGISTER.format(error="ImportError")
    assert run(source, PYTHONPATH=str(tmp_path)) == "imported\nrefused"


def test_a_threadpoolctl_that_knows_no_other_libraries_stops_no_import() -> None:
    old = "import sys, types; sys.modules['threadpoolctl'] = types.ModuleType('threadpoolctl')"
    assert run(f"{old}; import fastsample; print('imported')") == "imported"
