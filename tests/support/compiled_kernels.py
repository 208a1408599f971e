"""Compile every kernel that a draw launches, for a GPU that is not here, and print JSON of each.

    TRITON_INTERPRET=0 python tests/support/compiled_kernels.py float32,bfloat16 80,90 151936 50,0

Draws run with a launch that compiles instead of running: so what is compiled are the very launches,
with the tiles, dtypes and stages that a device would get. Values stay whatever they were.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fastsample.engines.torch.batch import TensorRequest
from fastsample.engines.torch.penalties import TensorProcessors
from fastsample.engines.triton import (
    batch,
    block_max,
    full_vocab_path,
    prepare_params,
    race,
    topk_path,
)
from fastsample.engines.triton.launch import launch
from fastsample.params.ops import DrawMethod

KINDS = {
    **{torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.uint8: "u8"},
    **{torch.float16: "fp16", torch.float32: "fp32", torch.float64: "fp64", torch.bool: "i1"},
}
BIN = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def kind_of(parameter: Any, value: Any) -> str:
    """The type of an argument, as Triton writes it."""
    if parameter.annotation_type:
        return str(parameter.annotation_type)
    if isinstance(value, torch.Tensor):
        return f"*{KINDS[value.dtype]}"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def is_compiled_in(parameter: Any, value: Any) -> bool:
    """Whether an argument is a compiled constant; a 1 is, as in a launch."""
    if parameter.is_constexpr or value is None:
        return True
    is_one = isinstance(value, int) and value == 1
    return is_one and not (parameter.do_not_specialize or parameter.annotation_type)


class Launches:
    """Every kernel that was to be launched, once for each of its compiled forms."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[ASTSource, int]] = {}

    def launch(self, kernel: Any, grid: Any, *args: Any, num_warps: int = 4) -> None:
        """Replace `engines.triton.launch.launch`."""
        signature, constants = {}, {}
        for parameter, value in zip(kernel.params, args, strict=True):
            if is_compiled_in(parameter, value):
                signature[parameter.name], constants[parameter.name] = "constexpr", value
            else:
                signature[parameter.name] = kind_of(parameter, value)
        name = f"{kernel.fn.__name__} {list(signature.values())} {list(constants.values())}"
        source = ASTSource(kernel, signature, constants)
        self.found[name] = source, num_warps


def draws(dtypes: list[str], vocabulary: int, top_ks: list[int]) -> Launches:
    """Draw in some dtypes on both paths, with numbers that rows share or not.

    With a vocabulary of 1 all is 1 that can be: rows, draws and steps.
    """
    n_rows, n_draws = (1, 1) if vocabulary == 1 else (3, 2)
    launches = Launches()
    for module in (batch, topk_path, prepare_params, block_max, full_vocab_path, race):
        if getattr(module, "launch", None) is launch:
            module.launch = launches.launch
    batch.check_device = lambda device: None
    none = TensorProcessors(None, None, None, None, None, (-1, -3, -3))
    for dtype in dtypes:
        values = torch.zeros((n_rows, vocabulary), dtype=getattr(torch, dtype))
        for top_k in top_ks:
            for same in (True, False):
                row = [1.0, 0.0, 0.0, 0.8, 1.0, 0.8, top_k, 0.95, 0.05, 0.01, 0.1]
                numbers = torch.tensor([row], dtype=torch.float64).repeat(n_rows, 1)
                rng_position = torch.tensor([[1, 2, 3]]).repeat(n_rows, 1)
                if not same:
                    numbers[0, 3] += 1
                    rng_position[0, 0] += 1
                request = TensorRequest(
                    values=values,
                    vocabulary=vocabulary,
                    numbers=numbers,
                    host_numbers=None,
                    rng_position=rng_position,
                    bad=None,
                    processors=none,
                    ops=(1, 2, 3, 4, 5, 6),
                    draws=n_draws,
                    method=DrawMethod.INVERSE,
                )
                for method in (DrawMethod.INVERSE, DrawMethod.RACE):
                    batch.sample(request._replace(method=method))
    return launches


def compiled(source: ASTSource, num_warps: int, capability: int) -> dict[str, Any]:
    """What comes of a kernel: PTX, SASS, and what it takes of a processor."""
    target = GPUTarget("cuda", capability, 32)
    options = {"num_warps": num_warps, "enable_fp_fusion": False}
    made = triton.compile(source, target=target, options=options)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "a.cubin"
        cubin.write_bytes(made.asm["cubin"])
        tool = shutil.which("nvdisasm") or str(BIN / "nvdisasm")
        sass = subprocess.run([tool, cubin], capture_output=True, text=True).stdout
        usage = subprocess.run(
            [BIN / "cuobjdump", "-res-usage", cubin], capture_output=True, text=True
        ).stdout
    return {
        "ptx": made.asm["ptx"],
        "sass": sass,
        "registers": int((re.findall(r"REG:(\d+)", usage) or [-1])[0]),
        "stack": int((re.findall(r"STACK:(\d+)", usage) or [-1])[0]),
        "shared": made.metadata.shared,
    }


if __name__ == "__main__":
    dtypes, capabilities = (argument.split(",") for argument in sys.argv[1:3])
    made = draws(dtypes, int(sys.argv[3]), [int(top_k) for top_k in sys.argv[4].split(",")])
    results = [
        {"name": name, "capability": int(number), **compiled(*source, int(number))}
        for number in capabilities
        for name, source in made.found.items()
    ]
    json.dump(results, sys.stdout)
