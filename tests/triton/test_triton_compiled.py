"""Triton's kernels compiled for GPUs that are not here: each IEEE operation stays on its own.

In PTX every float operation names its rounding, which ptxas then may not fuse; there are no fused
ones and no approximations. In machine code a division by IEEE is a sequence of fused operations:
where there is no division, there are none.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.triton

SCRIPT = Path(__file__).parents[1] / "support" / "compiled_kernels.py"
KERNELS = {
    "_prepare",
    "_block_max",
    "_draw",
    "start_row",
    "sum_blocks",
    "start_search",
    "narrow",
    "finish_search",
    "draw_token",
    "count_levels",
    "start_race",
    "first_by_clock",
    "decide",
}
FUSED_OR_APPROXIMATE = re.compile(
    r"\b(?:fma|mad)\.[a-z0-9.]*f(?:32|64)|\.approx|div\.full|\b(?:ex2|lg2|sin|cos|tanh|rsqrt)\."
)
FREE_TO_FUSE = re.compile(r"\b(?:add|sub|mul)\.(?:ftz\.)?(?:sat\.)?f(?:32|64)\b")
DIVISION = re.compile(r"\bdiv\.rn\.f(?:32|64)\b")


def compiled(
    dtypes: str, capability: str, vocabulary: int = 151_936, top_ks: str = "50,0"
) -> list[dict[str, Any]]:
    command = [sys.executable, str(SCRIPT), dtypes, capability, str(vocabulary), top_ks]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(kernels: list[dict[str, Any]], spilled: int = 0) -> None:
    assert {kernel["name"].split()[0] for kernel in kernels} == KERNELS
    for kernel in kernels:
        name, ptx, sass = kernel["name"], kernel["ptx"], kernel["sass"]
        assert ".entry" in ptx, name
        assert FUSED_OR_APPROXIMATE.findall(ptx) == [], name
        assert FREE_TO_FUSE.findall(ptx) == [], name
        assert "EXIT" in sass, name
        if not DIVISION.search(ptx):
            assert re.findall(r"\b[FD]FMA\b", sass) == [], name
        assert kernel["stack"] <= spilled, name
        figures = (kernel[key] for key in ("capability", "registers", "stack", "shared"))
        print("sm_{}: {} registers, {} bytes spilled, {} shared, {}".format(*figures, name))


def test_nothing_is_fused_or_approximated() -> None:
    check(compiled("float32", "90"))


@pytest.mark.nightly
@pytest.mark.parametrize("capability", ["80", "90", "100"])
def test_nothing_is_fused_on_any_gpu(capability: str) -> None:
    check(compiled("float32,float16,bfloat16", capability))


@pytest.mark.nightly
def test_nothing_is_fused_where_all_sizes_are_1() -> None:
    check(compiled("float32", "90", 1))


@pytest.mark.nightly
def test_the_most_first_tokens_spill_little() -> None:
    check(compiled("float32", "90", top_ks="256,0"), spilled=96)


def test_what_is_fused_or_approximate_is_found() -> None:
    for line in (
        *("fma.rn.f32 %f1, %f2, %f3;", "fma.rn.ftz.f64 %d1;", "mad.f32 %f1;"),
        *("ex2.approx.ftz.f32 %f1;", "rcp.approx.ftz.f64 %d1;", "div.full.f32 %f1;"),
    ):
        assert FUSED_OR_APPROXIMATE.search(line), line
    for line in ("add.f32 %f1;", "mul.ftz.f32 %f1;", "sub.f64 %d1;"):
        assert FREE_TO_FUSE.search(line), line
    for line in ("add.rn.f32 %f1;", "mad.lo.s32 %r1;", "div.rn.f64 %d1;", "mul.wide.u32 %r;"):
        assert not FUSED_OR_APPROXIMATE.search(line) and not FREE_TO_FUSE.search(line), line
