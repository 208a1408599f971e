"""`reduce_sum` against the reference's sums, bit for bit, whatever runs it.

test_reference_sums.py holds those to their oracles.
"""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from fastsample import reduce_sum
from fastsample.engines.reference import sums as reference_sums
from tests.support.api_rows import frozen, ml_dtypes, torch, with_ml_dtypes, with_torch
from tests.support.case_loop import each
from tests.support.engines import NATIVE, native, without_modules
from tests.support.hypothesis_rows import PROFILE
from tests.support.isa_programs import FLAGS
from tests.support.number_arrays import DTYPES, SIZES, any_bits, bits, by_fractions, kinds, spread
from tests.support.rounding_modes import KNOWN, rounding

ROOT = Path(__file__).resolve().parents[2]
ISAS = native.isa_usable() if native else (None,)
THREADS = (1, 2, 3, 8)
LOWS = (12, 17, 20, 29, 30, 50, 58, 59, 70, 71, 95, 99, 100, 111, 125, 147, 1073)
MODE_NAMES = ("exact", "fixed", "fast")
PROMISES = ("exact", "fixed")


# ---------------------------------------------------------------- every way to run


@pytest.mark.parametrize("isa", ISAS)
@each("dtype", DTYPES)
@each("size", SIZES)
def test_bits_are_the_same_everywhere(size: int, dtype: Any, isa: str | None) -> None:
    for values in kinds(size, dtype):
        for reduction in PROMISES:
            expected = bits(reference_sums.SUMS[reduction](values))
            for n_threads in THREADS:
                found = reduce_sum(values, reduction, n_threads=n_threads, isa=isa)
                assert bits(found) == expected, (reduction, n_threads)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("reduction", MODE_NAMES)
def test_any_layout_of_the_same_numbers(reduction: str, isa: str | None) -> None:
    rng = np.random.default_rng(7)
    values = spread(rng, 3 * 50 * 70, np.float32, 12).reshape(3, 50, 70)
    for dtype in DTYPES:
        cast = values.astype(dtype)
        expected = reduce_sum(cast, reduction, n_threads=1, isa=isa)
        apart = np.zeros((3, 100, 210), dtype)[:, ::2, ::3]
        apart[...] = cast
        backward = np.ascontiguousarray(cast[::-1, ::-1, ::-1])[::-1, ::-1, ::-1]
        memory = np.zeros(cast.nbytes + 1, np.uint8)[1:]
        unaligned = memory.view(dtype).reshape(cast.shape)
        unaligned[...] = cast
        layouts = [
            apart,
            backward,
            unaligned,
            np.asfortranarray(cast),
            cast.reshape(-1),
            cast[None],
        ]
        layouts += [np.moveaxis(np.ascontiguousarray(np.moveaxis(cast, 0, 1)), 1, 0)]
        for layout in layouts:
            assert np.array_equal(layout.reshape(-1), cast.reshape(-1))
            found = reduce_sum(layout, reduction, n_threads=1, isa=isa)
            if reduction in PROMISES:
                assert bits(found) == bits(expected)
            assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("isa", ISAS)
def test_repeated_numbers_are_not_copied(isa: str | None) -> None:
    values = np.broadcast_to(np.float32([0.1, 0.3])[:, None], (2, 10_000))
    for reduction in PROMISES:
        expected = bits(reference_sums.SUMS[reduction](values.reshape(-1)))
        for n_threads in THREADS:
            assert bits(reduce_sum(values, reduction, n_threads=n_threads, isa=isa)) == expected


@pytest.mark.parametrize("reduction", MODE_NAMES)
def test_small_shapes(reduction: str) -> None:
    assert bits(reduce_sum(np.float32(2.5)[...], reduction)) == bits(2.5)
    assert bits(reduce_sum(np.full((1, 1), -0.0), reduction)) == bits(0.0)
    for shape in ((0,), (3, 0), (0, 5, 2)):
        assert bits(reduce_sum(np.zeros(shape, np.float16), reduction)) == bits(0.0)


@pytest.mark.parametrize("isa", ISAS)
def test_order_does_not_matter_to_exact(isa: str | None) -> None:
    rng = np.random.default_rng(3)
    for exponents in (5, 60, 400):
        values = spread(rng, 30_000, np.float64, exponents)
        answers = {reduce_sum(rng.permutation(values), isa=isa) for _ in range(20)}
        assert answers == {math.fsum(values)}


@each("low", LOWS)
@pytest.mark.parametrize("isa", ISAS)
def test_a_block_as_wide_as_exact_sums_can_be(low: int, isa: str | None) -> None:
    """Equal numbers fill a block's sum to the last bit, and a small one needs a bit below.

    The kernels cut a block of float32 that spans up to 17 exponents into no slices, up to 58 into
    one, and so on, each for 41 more; of float64 up to 29 into one. What a slice leaves of a number
    is at most half of its last bit: here it is nearly that, of each.
    The next block takes all of it back but the small number, so that nothing hides behind it.
    """
    for exponents, dtype in itertools.product(range(low - 1, low + 3), (np.float32, np.float64)):
        epsilon = np.finfo(dtype).eps
        small = float(dtype(2.0**-exponents * (1 + epsilon)))
        half = 2.0**-40 - 2.0**-52
        for fill in (2 - epsilon, *(2.0**-e * (1 + half) for e in (0, 41, 82)), 2.0**-41 * 1.75):
            values = np.full(2 * reference_sums.BLOCK, fill, dtype)
            values[1] = 1
            values[reference_sums.BLOCK :] = -values[: reference_sums.BLOCK]
            values[77], values[reference_sums.BLOCK + 77] = small, 0
            assert reduce_sum(values, isa=isa) == small
            assert reduce_sum(-values, isa=isa) == -small


def float_arrays(dtype: Any) -> Any:
    width = 8 * np.dtype(dtype).itemsize
    return st_numpy.arrays(dtype, st.integers(0, 200), elements=st.floats(width=width))


@PROFILE
@given(values=st.one_of(*map(float_arrays, DTYPES)), repeats=st.sampled_from((1, 50, 500)))
def test_any_floats(values: np.ndarray, repeats: int) -> None:
    """Infinities, NaN and denormals among them, over several blocks."""
    values = np.tile(values, repeats)
    for reduction in PROMISES:
        expected = reference_sums.SUMS[reduction](values)
        for isa, n_threads in itertools.product(ISAS, (1, 3)):
            found = reduce_sum(values, reduction, n_threads=n_threads, isa=isa)
            assert bits(found) == bits(expected)
    if np.isfinite(values).all() and values.size < 300:
        assert bits(reduce_sum(values)) == bits(by_fractions(values))


# ---------------------------------------------------------------- what breaks sums


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [6, 5_000])
def test_cancellation_is_exact(size: int, isa: str | None) -> None:
    rng = np.random.default_rng(size)
    large = any_bits(rng, size, np.float64)
    values = rng.permutation(np.concatenate([large, -large, [2.0**-1074, 1e-300, -1e-300]]))
    assert reduce_sum(values, isa=isa) == 2.0**-1074


@pytest.mark.parametrize("isa", ISAS)
def test_only_the_answer_can_overflow(isa: str | None) -> None:
    most = np.finfo(np.float64).max
    for repeats in (1, 3_000):
        back = np.array([most, most, -most, -most, 1.0] * repeats)
        assert reduce_sum(back, isa=isa) == float(repeats)
        assert reduce_sum(np.array([most, most, 1.0] * repeats), isa=isa) == math.inf
        assert reduce_sum(np.array([-most, -most, 1.0] * repeats), isa=isa) == -math.inf
    half_step = 2.0**969
    assert reduce_sum(np.array([most, half_step]), isa=isa) == most
    assert reduce_sum(np.array([most, half_step, half_step]), isa=isa) == math.inf


# The kinds of what is not finite, by the bits of float64: NaN of either sign, with payloads.
INFINITY, PAYLOADS = 0x7FF << 52, (1 << 51, 1 << 51 | 1 << 44, 0x3FF << 42)


def not_finite(dtype: Any, size: int) -> Iterator[tuple[np.ndarray, float]]:
    """Numbers some of which are not finite, far apart and close, and what they add up to."""
    signs = (0, 1 << 63)
    wide = np.array([sign | INFINITY | p for sign in signs for p in PAYLOADS], np.uint64)
    with np.errstate(invalid="ignore"):
        nans = [*wide.view(np.float64).astype(dtype)]
    inf, nan = np.inf, np.nan
    sums = [((inf, 1), inf), ((-inf, 1), -inf), ((inf, inf), inf), ((-inf, -inf), -inf)]
    sums += [(pair, nan) for pair in ((inf, -inf), (-inf, inf), (inf, nans[0]), (nans[4], -inf))]
    sums += [((1, one), nan) for one in nans]
    sums += [(pair, nan) for pair in itertools.permutations(nans[1:5], 2)]
    for pair, expected in sums:
        for places in ((0, 1), (0, 16), (0, size // 2), (size - 3, 70), (size - 1, size - 2)):
            values = np.ones(size, dtype)
            values[list(places)] = pair
            yield values, expected


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [100, 20_483])
def test_infinities_and_the_one_nan(size: int, dtype: Any, isa: str | None) -> None:
    """Whichever NaN meets whichever: the answer is that of `math.nan`, to the last bit."""
    for values, expected in not_finite(dtype, size):
        for reduction in MODE_NAMES:
            found = {reduce_sum(values, reduction, n_threads=n, isa=isa) for n in (1, 3)}
            assert {*map(bits, found)} == {bits(expected)}, reduction


# ---------------------------------------------------------------- fast


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_fast_is_close(dtype: Any, isa: str | None) -> None:
    """No sum of n numbers is further off than n roundings of the sum of their sizes."""
    epsilon = np.finfo(np.float64 if dtype == np.float64 else np.float32).eps
    for size in SIZES:
        values = spread(np.random.default_rng(size), size, dtype, 8)
        true, sizes = reference_sums.exact(values), reference_sums.exact(np.abs(values))
        for n_threads in THREADS:
            found = reduce_sum(values, "fast", n_threads=n_threads, isa=isa)
            assert abs(found - true) <= size * epsilon * sizes


@pytest.mark.skipif(len(ISAS) < 2, reason="one instruction set alone has one order")
def test_the_order_changes_fast_sums_alone() -> None:
    values = np.random.default_rng(0).random(1_000_003, np.float32)
    ways = list(itertools.product(ISAS, THREADS))
    answers = {
        reduction: {reduce_sum(values, reduction, n_threads=n, isa=isa) for isa, n in ways}
        for reduction in MODE_NAMES
    }
    assert len(answers["fast"]) > 1
    assert len(answers["exact"]) == len(answers["fixed"]) == 1
    assert answers["exact"] == {math.fsum(values.tolist())}


# ---------------------------------------------------------------- forms, modes, memory


@with_ml_dtypes
@pytest.mark.parametrize("isa", ISAS)
def test_bfloat16_is_read_as_what_it_is(isa: str | None) -> None:
    for size in SIZES:
        rng = np.random.default_rng(size)
        for wide in (any_bits(rng, size, np.float32), spread(rng, size, np.float32, 30)):
            values = (wide / 2).astype(ml_dtypes.bfloat16)
            for reduction in MODE_NAMES:
                found = reduce_sum(values, reduction, n_threads=1, isa=isa)
                same = reduce_sum(values.astype(np.float32), reduction, n_threads=1, isa=isa)
                if reduction in PROMISES:
                    assert bits(found) == bits(same)
                    expected = reference_sums.SUMS[reduction](values.view(np.uint16))
                    assert bits(found) == bits(expected)
                elif math.isfinite(same):
                    sizes = reference_sums.exact(np.abs(values.astype(np.float32)))
                    assert abs(found - same) <= size * 2.0**-22 * sizes


@with_torch
@pytest.mark.torch
def test_tensors() -> None:
    values = spread(np.random.default_rng(1), 6_000, np.float64, 10).reshape(2, 3_000)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        tensor = torch.from_numpy(values).to(dtype)
        for reduction in PROMISES:
            wide = tensor.double() if dtype is torch.float64 else tensor.float()
            expected = reference_sums.SUMS[reduction](wide.numpy().reshape(-1))
            assert bits(reduce_sum(tensor, reduction)) == bits(expected)
            across = reference_sums.SUMS[reduction](wide.numpy().T.reshape(-1))
            assert bits(reduce_sum(tensor.T, reduction)) == bits(across)
    with pytest.raises(TypeError, match=r"got torch.int64 \(pass `x.double\(\)`\)"):
        reduce_sum(torch.ones(3, dtype=torch.int64))


def test_the_array_does_not_change() -> None:
    values = frozen(np.ones(9_000, dtype=np.float32))
    for reduction in MODE_NAMES:
        assert reduce_sum(values, reduction) == 9_000


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.skipif(not KNOWN, reason="fesetround's constants are not known")
@pytest.mark.parametrize("mode", ["down", "up", "zero"])
def test_a_rounding_mode_changes_nothing(mode: str) -> None:
    values = spread(np.random.default_rng(2), 50_000, np.float32, 30)
    for isa, reduction, n_threads in itertools.product(ISAS, PROMISES, (1, 2)):
        expected = reduce_sum(values, reduction, n_threads=n_threads, isa=isa)
        with rounding(mode):
            found = reduce_sum(values, reduction, n_threads=n_threads, isa=isa)
        assert bits(found) == bits(expected)


@with_torch
@pytest.mark.torch
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_denormals_count_where_others_flush_them(dtype: Any) -> None:
    values = np.full(5_000, np.finfo(dtype).smallest_subnormal, dtype)
    expected = {r: bits(reference_sums.SUMS[r](values)) for r in PROMISES}
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        found = {(r, isa): bits(reduce_sum(values, r, isa=isa)) for r in PROMISES for isa in ISAS}
        in_numpy = bits(reference_sums.exact(values))
    finally:
        torch.set_flush_denormal(False)
    assert all(one == expected[r] for (r, _), one in found.items())
    assert in_numpy == expected["exact"]


@pytest.mark.parametrize("reduction", PROMISES)
def test_without_the_extension(reduction: str) -> None:
    values = spread(np.random.default_rng(2), 30_000, np.float32, 30).reshape(100, 300).T
    expected = bits(reduce_sum(values, reduction))
    with without_modules(NATIVE):
        assert bits(reduce_sum(values, reduction, n_threads=2)) == expected
        assert reduce_sum(values, "fast") == pytest.approx(reduce_sum(values), rel=1e-4)


MEASURE = """
import resource
import numpy as np
import fastsample

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

values = np.ones((4096, 4096), np.float32)
for reduction in ("exact", "fixed", "fast"):
    fastsample.reduce_sum(values[:8, ::2], reduction, n_threads=2)
before = most()
for x in (values, values.T, values[:, ::2], values.view(np.float16)):
    for reduction in ("exact", "fixed", "fast"):
        fastsample.reduce_sum(x, reduction, n_threads=2)
print(most() - before)
"""


@pytest.mark.skipif(native is None, reason="fastsample._native is not built")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="getrusage differs elsewhere")
def test_no_array_is_copied() -> None:
    result = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(result.stdout) < 2_000_000


# ---------------------------------------------------------------- a processor that we lack


def compiled_sums(folder: Path) -> Path:
    """The sums for NEON, as a program."""
    for tool in ("aarch64-linux-gnu-g++", "qemu-aarch64"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    program, source = folder / "sums", str(ROOT / "tests" / "support" / "sums_of_isa.cpp")
    names = ["-DFASTSAMPLE_ISA=neon", f"-I{ROOT / 'kernels'}"]
    command = ["aarch64-linux-gnu-g++", *FLAGS, *names, source, "-o", str(program)]
    subprocess.run(command, check=True)
    return program


@pytest.mark.nightly
def test_neon_under_emulation(tmp_path: Path) -> None:
    program = compiled_sums(tmp_path)
    for size, dtype in itertools.product((1, 17, 4097, 20_483), DTYPES):
        code = {2: 1, 4: 0, 8: 3}[np.dtype(dtype).itemsize]
        for values in kinds(size, dtype):
            command = ["qemu-aarch64", str(program), str(code)]
            done = subprocess.run(command, input=values.tobytes(), check=True, capture_output=True)
            lines = [int(line) for line in done.stdout.split()]
            blocks = -(-size // reference_sums.BLOCK)
            totals = np.array(lines[:blocks], np.uint64).view(np.float64)
            starts = range(0, size, reference_sums.BLOCK)
            parts = [values[first : first + reference_sums.BLOCK] for first in starts]
            expected = [reference_sums.fixed(part) for part in parts]
            assert list(map(bits, totals.tolist())) == list(map(bits, expected))
            total = sum(digit << (32 * place) for place, digit in enumerate(lines[blocks:]))
            assert bits(reference_sums.rounded(total)) == bits(reference_sums.exact(values))
