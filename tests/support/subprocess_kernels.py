"""An engine for tests: a program of the kernels, perhaps emulated, at the other end of a pipe.

A request is sent as the `Header` of subprocess_kernels.cpp, then as arrays: the number of
bytes of each (-1 for none) and the bytes. Results are such arrays.
"""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastsample.engines.contract import LogprobResult, SampleOutput, SampleRequest
from fastsample.inputs.logits_processors import LogitsProcessors
from tests.support.engines import KIND_OF, Engine, KeptSets

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
SAMPLE, KEPT_SETS = 0, 1
SOFTMAX_CODES = {"softmax": 2, "log_softmax": 3, "logsumexp": 4}
DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
REDUCTIONS = {"exact": 0, "fixed": 1, "fast": 2}
# Weak: they stand in for the instruction sets that dispatch.cpp names and that are not compiled.
NO_OTHERS = r"""#include "runtime/dispatch.hpp"
#include "simd/isa_list.hpp"
#define EMPTY(architecture, isa, ...) FASTSAMPLE_IF_##architecture(namespace isa { \
  extern __attribute__((weak)) const Kernels kernels; const Kernels kernels = {}; })
namespace fastsample { FASTSAMPLE_ISA_LIST(EMPTY) }
"""


def compile_kernels(
    folder: Path, compiler: str, flags: list[str], isa: str = "baseline", kernels: Path = KERNELS
) -> Path:
    """Compile the program with the kernels of one instruction set, by its namespace."""
    others = folder / "others.cpp"
    others.write_text(NO_OTHERS)
    names = [
        "sampling/penalties",
        "sampling/token_counts",
        "runtime/dispatch",
        "runtime/pool",
        "simd/isa",
    ]
    sources = [*(kernels / f"{name}.cpp" for name in names), others]
    sources.append(ROOT / "tests" / "support" / "subprocess_kernels.cpp")
    program = folder / "subprocess_kernels"
    names = [f"-I{kernels}", f"-DFASTSAMPLE_ISA={isa}"]
    subprocess.run([compiler, *flags, *names, *sources, "-o", program], check=True)
    return program


@dataclass(frozen=True)
class SubprocessEngine(Engine):
    """The native engine of a program in another process."""

    process: subprocess.Popen[bytes] | None = None

    def ask(
        self,
        function: int,
        request: SampleRequest,
        draws: int = 1,
        forms: int = 0,
        top_count: int = 0,
        logprob_draws: int = 0,
        has_count: bool = False,
    ) -> None:
        """Send a request."""
        values, vocabulary, plan, processors, reduction, given, replacement = request
        mask, *lists = processors or LogitsProcessors(None, None, None, None)
        covered = (0, 0, 0)
        if mask is not None:
            bits = mask.dtype != np.bool_
            columns = mask.shape[1] * (32 if bits else 1)
            covered = (0 if len(mask) == 1 else mask.strides[0], min(vocabulary, columns), bits)
        shape = (*values.shape, vocabulary, DTYPES[KIND_OF[values.dtype.char]])
        wanted = (forms, top_count, logprob_draws, 0 if given is None else given.shape[1])
        header = (function, *shape, draws, *wanted, *covered, REDUCTIONS[reduction])
        self._write(struct.pack("<16q", *header, not replacement, has_count))
        for array in (values, plan, mask):
            self._write_array(array)
        for one in lists:
            for array in (None, None, None) if one is None else one:
                self._write_array(array)
        self._write_array(given)
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.flush()

    def run(self, request: SampleRequest, out: SampleOutput, n_threads: int = 1) -> SampleOutput:
        """As the other engines; modes are in their usual order."""
        result = out.logprobs or LogprobResult.empty((), len(out.tokens), 0, 0)
        modes, *arrays = result
        counts = (result.top_tokens.shape[2], result.logprobs.shape[2])
        kept = [] if out.kept_count is None else [out.kept_count]
        self.ask(SAMPLE, request, out.tokens.shape[1], len(modes), *counts, has_count=bool(kept))
        for target in (out.tokens, *kept, *arrays, out.status):
            target[...] = self._read(target.dtype).reshape(target.shape)
        return out

    def kept_sets(
        self, request: SampleRequest, status: np.ndarray | None = None, n_threads: int = 1
    ) -> KeptSets:
        self.ask(KEPT_SETS, request)
        kinds = (np.int64, np.uint64, np.float32, np.int64, np.uint8)
        return KeptSets(*(self._read(kind) for kind in kinds))

    def softmax(self, name: str, request: SampleRequest) -> tuple[np.ndarray, np.ndarray]:
        self.ask(SOFTMAX_CODES[name], request)
        out = self._read(np.float64 if name == "logsumexp" else np.float32)
        return out.reshape(len(request.values), -1), self._read(np.uint8)

    def _write(self, data: bytes) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(data)

    def _write_array(self, array: Any) -> None:
        data = None if array is None else np.ascontiguousarray(array).tobytes()
        self._write(struct.pack("<q", -1 if data is None else len(data)) + (data or b""))

    def _read(self, dtype: Any) -> np.ndarray:
        assert self.process is not None and self.process.stdout is not None
        (size,) = struct.unpack("<q", self.process.stdout.read(8))
        return np.frombuffer(self.process.stdout.read(size), dtype)
