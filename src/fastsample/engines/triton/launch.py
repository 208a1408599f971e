"""Launch kernels: each IEEE operation on its own, on the device of their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton import language as tl
from triton.runtime.jit import JITFunction

INTERPRETED = not isinstance(tl.sum, JITFunction)
"""Whether kernels run in NumPy, because TRITON_INTERPRET was 1 when Triton was loaded."""


def require_device() -> torch.device:
    """Return the device that kernels run on; raise where there is none."""
    if INTERPRETED:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RuntimeError(
            "engine 'triton' needs a CUDA device, which torch does not find (engine='torch', or "
            "TRITON_INTERPRET=1 in the environment to try it slowly on the CPU)"
        )
    return torch.device("cuda")


def check_device(device: torch.device) -> None:
    """Refuse logits that kernels cannot read."""
    if device.type != require_device().type:
        raise TypeError(
            f"`logits` must be on {require_device()} for engine 'triton', got a tensor on {device} "
            "(move them there, or leave `engine` out)"
        )


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, num_warps: int = 4) -> None:
    """Run a kernel, with multiply-add fusion off."""
    if INTERPRETED:
        # Overflow is silent on a device.
        with np.errstate(all="ignore"):
            kernel[grid](*args)
        return
    with torch.cuda.device_of(args[0]):
        kernel[grid](*args, num_warps=num_warps, enable_fp_fusion=False)


def bits_of(values: Tensor) -> Tensor:
    """Logits as `ordinals_at` reads them: float32 and bfloat16 as integers of their bits."""
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16}
    return values.view(bits.get(values.dtype, values.dtype))
