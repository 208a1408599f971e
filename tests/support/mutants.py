"""Faults that somebody could make, each a changed line, and for each a test that must turn red.

Those of the Python engines are planted in a copy of the package, those of the kernels in a copy of
the kernels. A line that is changed must stand in one file alone: where the code has moved on, the
mutant has to follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.engines import test_edge_rows, test_golden
from tests.reference import test_borders, test_statistics
from tests.support.engines import Engine


@dataclass(frozen=True)
class Mutant:
    """A line, what it becomes, and how the fault is noticed."""

    fault: str
    before: str
    after: str
    noticed: str | Callable[[Engine], None]

    def plant(self, folder: Path, suffixes: tuple[str, ...]) -> None:
        """Change the one place that has the line."""
        found = [
            path
            for path in sorted(folder.rglob("*"))
            if path.suffix in suffixes and self.before in path.read_text()
        ]
        counts = [path.read_text().count(self.before) for path in found]
        if counts != [1]:
            pytest.fail(f"`{self.before}` must stand in one place, found {found} with {counts}")
        found[0].write_text(found[0].read_text().replace(self.before, self.after))


def equal_running_mass(engine: Engine) -> None:
    for size in (2, 16, 256, 4096, 10_002):
        test_borders.test_a_running_mass_that_only_equals_r_is_passed_over(engine, size)


def rounded_up(engine: Engine) -> None:
    for case in test_borders.ROUNDED_UP:
        test_borders.test_need_is_rounded_up(engine, *case)


def every_bit_of_u(engine: Engine) -> None:
    test_borders.test_every_bit_of_u_counts(engine, 40)


def steps_of_top_p(engine: Engine) -> None:
    for spread in (0.0, 0.5, 2.0, 6.0):
        test_borders.test_top_p_at_each_step_of_the_running_mass(engine, spread)


def ties_of_zeros(engine: Engine) -> None:
    for kind in test_edge_rows.FLAT:
        test_edge_rows.test_all_equal(engine, kind)


def negative_nan(engine: Engine) -> None:
    test_edge_rows.test_one_bad_logit_anywhere(engine, 131, -np.nan, {})


BORDERS = "reference/test_borders.py::test_a_running_mass_that_only_equals_r_is_passed_over"

OF_THE_REFERENCE = [
    Mutant(
        "the draw stops where the running mass only equals r",
        'int(tokens[np.searchsorted(running, np.uint64(r), side="right")])',
        'int(tokens[np.searchsorted(running, np.uint64(r), side="left")])',
        BORDERS,
    ),
    Mutant(
        "top_p goes on where the running mass equals what is needed",
        'np.uint64(need), side="left")) + 1 if need',
        'np.uint64(need), side="right")) + 1 if need',
        "reference/test_reference.py::test_top_p_need_is_exact_and_rounded_up",
    ),
    Mutant(
        "what top_p needs is rounded down",
        "need = -((-share * int(running[-1])) >> 31)",
        "need = (share * int(running[-1])) >> 31",
        "reference/test_borders.py::test_need_is_rounded_up",
    ),
    Mutant(
        "a uniform of 24 bits",
        "return words[0] + (words[1] << 32)",
        "return words[1] >> 8 << 40",
        "reference/test_borders.py::test_every_bit_of_u_counts",
    ),
    Mutant(
        "equal logits in descending token",
        'return np.argsort(keys, kind="stable").astype(np.int64)',
        "return np.lexsort((-np.arange(len(keys)), keys)).astype(np.int64)",
        "engines/test_golden.py::test_kept_sets_and_masses",
    ),
]

OF_NUMBA = [
    Mutant(
        "the draw stops where the running mass only equals r",
        "            if r < mass:",
        "            if r <= mass:",
        BORDERS,
    ),
    Mutant(
        "a block too early where its running mass equals r",
        'block = np.searchsorted(running, r, side="right")',
        'block = np.searchsorted(running, r, side="left")',
        BORDERS,
    ),
    Mutant(
        "denormals lie below 0",
        "if -_DENORMALS < bound <= 0:",
        "if -_DENORMALS < bound < 0:",
        "engines/test_edge_rows.py::test_all_equal",
    ),
]

OF_THE_KERNELS = [
    Mutant(
        "a round of Philox too few",
        "for (int round = 0; round < 10; ++round) {",
        "for (int round = 0; round < 9; ++round) {",
        test_golden.test_tokens,
    ),
    Mutant(
        "a uniform of 24 bits",
        "return words.word[0] | uint64_t{words.word[1]} << 32;",
        "return uint64_t{words.word[1] >> 8} << 40;",
        every_bit_of_u,
    ),
    Mutant(
        "several draws of one stream",
        "const uint32_t stream = settings.stream + static_cast<uint32_t>(nth);",
        "const uint32_t stream = settings.stream + static_cast<uint32_t>(nth / 2);",
        test_statistics.test_n_draws_are_those_of_n_streams,
    ),
    Mutant(
        "the draw stops where the running mass only equals r",
        "for (; i < count - 1 && *r >= masses[i]; ++i) *r -= masses[i];",
        "for (; i < count - 1 && *r > masses[i]; ++i) *r -= masses[i];",
        equal_running_mass,
    ),
    Mutant(
        "a block too early where its running mass equals r",
        "if (r < total || b == last || b + 1 == kept.row.blocks()) break;",
        "if (r <= total || b == last || b + 1 == kept.row.blocks()) break;",
        equal_running_mass,
    ),
    Mutant(
        "the last token of the block, whatever r is",
        "return b * kBlock + first_above(masses, kBlock, &r);",
        "return b * kBlock + kBlock - 1;",
        test_golden.test_tokens,
    ),
    Mutant(
        "what top_p needs is rounded down",
        "return static_cast<uint64_t>((product + 0x7FFFFFFF) >> 31);",
        "return static_cast<uint64_t>(product >> 31);",
        rounded_up,
    ),
    Mutant(
        "top_p without its slack",
        "static_cast<int64_t>(static_cast<double>(top_p) * 0x1p31) - 1024;",
        "static_cast<int64_t>(static_cast<double>(top_p) * 0x1p31);",
        steps_of_top_p,
    ),
    Mutant(
        "min_p drops its threshold",
        "if (exponent(law, read(from_ordered(middle))) >= y) {",
        "if (exponent(law, read(from_ordered(middle))) > y) {",
        test_borders.test_min_p_cuts_at_its_threshold_to_the_ulp,
    ),
    Mutant(
        "the lanes of a vector in reverse, so a tie goes to the wrong token",
        "if (found) return inside(row, b * kBlock + i + __builtin_ctz(found));",
        "if (found) return inside(row, b * kBlock + i + 31 - __builtin_clz(found));",
        test_golden.test_tokens,
    ),
    Mutant(
        "denormals lie below 0",
        "return bound == 0.0f ? from_ordered(ordered(-kSmallestNormal) + 1) : bound;",
        "return bound;",
        ties_of_zeros,
    ),
    Mutant(
        "NaN of negative sign passes",
        "(bits & 0x7FFFFFFFu) > 0x7F800000u) return true;",
        "(bits > 0x7F800000u && bits < 0x80000000u)) return true;",
        negative_nan,
    ),
    Mutant(
        "a coefficient off by an ulp",
        "p = p * f + 0x1.62e42ap-1f;",
        "p = p * f + 0x1.62e42cp-1f;",
        test_golden.test_kept_sets_and_masses,
    ),
    Mutant(
        "a block whose best has mass is skipped",
        "if (work.best[b] < opened) continue;",
        "if (work.best[b] <= opened) continue;",
        ties_of_zeros,
    ),
    Mutant(
        "repetition multiplies logits above 0 too",
        "x > 0 ? x / a.repetition_penalty : x * a.repetition_penalty",
        "x * a.repetition_penalty",
        test_golden.test_kept_sets_of_jobs,
    ),
]
