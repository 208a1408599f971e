"""How kernels are launched: each IEEE operation on its own, on the device of what they read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton.runtime.jit import JITFunction


def is_interpreted(kernel: Any) -> bool:
    """Tell whether a kernel runs in NumPy, as TRITON_INTERPRET=1 has it."""
    return not isinstance(kernel, JITFunction)


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, num_warps: int = 4) -> None:
    """Run a kernel, with multiply-add fusion off."""
    if is_interpreted(kernel):
        # What overflows on a device without a word does so here too.
        with np.errstate(all="ignore"):
            kernel[grid](*args)
        return
    with torch.cuda.device_of(args[0]):
        kernel[grid](*args, num_warps=num_warps, enable_fp_fusion=False)


def bits_of(values: Tensor) -> Tensor:
    """Logits as `numbers.ranks_at` reads them: float32 and bfloat16 as the integers they are."""
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16}
    return values.view(bits.get(values.dtype, values.dtype))
