"""Run the tests that reach the kernels under GCC's sanitizers: python tools/sanitize.py address

`address` finds accesses outside of memory, and with UBSan undefined operations such as signed
overflow; `thread` finds data races. The tree is copied to a temporary folder and built there, so
that no sanitized extension is left where it could be imported by mistake. Run by `make asan` and
`make tsan`.

The tests are those of the native engine: what Numba, torch and Triton compile is not instrumented,
and none of them has to be installed. A process ends at its first error, and the test that was
running is named as crashed. Reports of AddressSanitizer and ThreadSanitizer come last, also those
of processes whose output a test discards, and each fails the run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SUPPRESSIONS = ROOT / "tools" / "thread_sanitizer.supp"
IGNORED = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
COPIED = ("kernels", "src", "tests", "setup.py", "pyproject.toml", "README.md", "LICENSE")
OTHER_ENGINES = ("numba", "torch", "triton", "reference")

# Every kernel on every instruction set of the machine, in a few minutes on two cores.
TESTS = (
    "engines/test_golden.py",
    "engines/test_reduction_golden.py",
    "engines/test_golden_distinct.py",
    "engines/test_oracle_distinct.py",
    "engines/test_edge_rows.py",
    "engines/test_dtypes.py",
    "engines/test_penalties.py",
    "engines/test_threshold_in_place.py",
    "engines/test_determinism.py",
    "engines/test_concurrent_threads.py",
    "api/test_prepared_step.py",
    "api/test_prepared_sample.py",
    "api/test_prepared_sequences.py",
    "api/test_histories.py",
    "api/test_sampler.py",
    "api/test_sampler_copies.py",
    "api/test_sampler_interrupted.py",
    "api/test_threads.py",
    "api/test_reduce_sum.py",
    "api/test_reduction.py",
    "api/test_logits_processors.py",
    "api/test_logprobs.py",
    "api/test_softmax.py",
    "api/test_filtering.py",
    "api/test_sequences.py",
    "api/test_candidates.py",
)


class Sanitizer(NamedTuple):
    """One kind of build, and what runs with it."""

    build: str
    """FASTSAMPLE_SANITIZE of setup.py."""
    runtime: str
    """The library that has to be loaded before all others, up to its version."""
    options: dict[str, str]
    """What the runtimes read; each also gets the path of its reports."""
    without: tuple[str, ...] = ()
    """Tests that cannot pass with the runtime."""


# Leaks are not looked for: Python frees little of what it holds when it ends, and all of that would
# be reported. With stack use after return, GCC 12 keeps vectors of 64 bytes at addresses that are
# not multiples of 64. PYTHONMALLOC: in Python's own arenas no byte is out of bounds.
ADDRESS = Sanitizer(
    build="address,undefined",
    runtime="libasan.so",
    options={
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    },
)

# die_after_fork=0: tests fork while the pool is busy, and the child starts a pool of its own. The
# runtime has a thread of its own, which tests that count threads would count, and it keeps several
# bytes for each that is read: more than there is for a row of 2**32 logits.
THREAD = Sanitizer(
    build="thread",
    runtime="libtsan.so",
    options={
        "TSAN_OPTIONS": f"halt_on_error=1:die_after_fork=0:suppressions={SUPPRESSIONS}",
    },
    without=(
        "test_workers_block_signals",
        "test_the_environment_limits_every_call",
        "test_no_call_uses_more_threads",
        "test_threadpoolctl_sees_and_limits",
        "test_more_logits_than_32_bits_count",
    ),
)

SANITIZERS = {"address": ADDRESS, "thread": THREAD}


def build(sanitizer: Sanitizer, folder: Path) -> Path:
    """Copy the tree to `folder` and build the extension there; return its path."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
        else:
            shutil.copy(ROOT / name, folder / name)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    variables = {**os.environ, "FASTSAMPLE_SANITIZE": sanitizer.build}
    subprocess.run(command, cwd=folder, env=variables, check=True)
    (extension,) = (folder / "src" / "fastsample").glob("*.so")
    return extension


def preloaded(sanitizer: Sanitizer, extension: Path) -> str:
    """Return LD_PRELOAD for the interpreter, which is not linked with the sanitizer.

    The runtime comes first. It looks for the function that throws exceptions when it starts, so
    the C++ library has to be there by then.
    """
    linked = subprocess.run(["ldd", extension], capture_output=True, text=True, check=True).stdout
    paths = []
    for name in (sanitizer.runtime, "libstdc++.so"):
        found = re.search(rf"{re.escape(name)}[.\d]* => (/\S+)", linked)
        if found is None:
            sys.exit(f"the extension is not linked with {name}: GCC is needed (CC=gcc CXX=g++)")
        paths.append(found[1])
    return ":".join(paths)


def environment(sanitizer: Sanitizer, extension: Path, reports: Path) -> dict[str, str]:
    """Return the environment of the tests: the copied package, the runtime and its options."""
    source = extension.parents[1]
    variables = {**os.environ, **sanitizer.options}
    for name in (name for name in sanitizer.options if name.endswith("_OPTIONS")):
        variables[name] += f":log_path={reports / name}"
    variables["LD_PRELOAD"] = preloaded(sanitizer, extension)
    variables["PYTHONPATH"] = f"{source}:{source.parent}"
    return variables


def is_loaded(extension: Path, variables: dict[str, str]) -> bool:
    """Whether the tests will import this extension and no other that is installed."""
    source = "import fastsample._native as native; print(native.__file__)"
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip()) == extension


def run_tests(sanitizer: Sanitizer, jobs: str, chosen: list[str]) -> bool:
    """Build, run the tests and print every report; return whether all is well."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "fastsample").resolve()
        reports = Path(temporary, "reports")
        folder.mkdir()
        reports.mkdir()
        extension = build(sanitizer, folder)
        variables = environment(sanitizer, extension, reports)
        if not is_loaded(extension, variables):
            sys.exit(f"Python does not import {extension}")
        tests = chosen or [f"tests/{name}" for name in TESTS]
        skipped = " or ".join((*OTHER_ENGINES, *sanitizer.without))
        # UBSan of GCC 12 reports to standard error alone: --capture=sys lets that through.
        pytest = [sys.executable, "-m", "pytest", "-n", jobs, "-p", "no:cacheprovider", "-x"]
        command = [*pytest, "--capture=sys", "-k", f"not ({skipped})", *tests]
        done = subprocess.run(command, cwd=folder, env=variables)
        found = sorted(reports.iterdir())
        for report in found:
            print(report.read_text(errors="replace"), file=sys.stderr)
    return done.returncode == 0 and not found


def main() -> None:
    """Read the command line: the sanitizer, `--jobs`, and tests instead of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sanitizer", choices=SANITIZERS)
    parser.add_argument("--jobs", default="2", help="how many tests run at a time")
    parser.add_argument("tests", nargs="*", help="files of tests to run, such as tests/api")
    arguments = parser.parse_args()
    sanitizer = SANITIZERS[arguments.sanitizer]
    sys.exit(not run_tests(sanitizer, arguments.jobs, arguments.tests))


if __name__ == "__main__":
    main()
