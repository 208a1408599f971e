"""Mutants: a changed line of the sources each, and the test or the check that must fail with it.

Mutants of the Python engines are made in a copy of the package, those of the kernels in a copy of
the kernels. The original line must occur once in the sources: a mutant follows a line that changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support import border_checks, golden_checks, golden_distinct, golden_races
from tests.support.engines import Engine, make_output, make_plan, make_request


@dataclass(frozen=True)
class Mutant:
    """A line, what it becomes, and the test (a node id) or the check that notices the fault."""

    fault: str
    before: str
    after: str
    noticed: str | Callable[[Engine], None]

    def plant(self, folder: Path, suffixes: tuple[str, ...]) -> None:
        """Change the line in a copy of the sources."""
        found = [
            path
            for path in sorted(folder.rglob("*"))
            if path.suffix in suffixes and self.before in path.read_text()
        ]
        counts = [path.read_text().count(self.before) for path in found]
        if counts != [1]:
            pytest.fail(f"`{self.before}` must occur once, found {found} with {counts}")
        found[0].write_text(found[0].read_text().replace(self.before, self.after))


def equal_running_mass(engine: Engine) -> None:
    for size in (2, 16, 256, 4096, 10_002):
        border_checks.check_equal_running_mass(engine, size)


def rounded_up(engine: Engine) -> None:
    for case in border_checks.ROUNDED_UP:
        border_checks.check_need_is_rounded_up(engine, *case)


def every_bit_of_u(engine: Engine) -> None:
    border_checks.check_every_bit_of_u(engine, 40)


def streams(engine: Engine) -> None:
    row = (np.random.default_rng(5).standard_normal((1, 32)) * 1.2).astype(np.float32)
    border_checks.check_draws_are_streams(engine, make_request(row, make_plan(1, seed=2024)))


def steps_of_top_p(engine: Engine) -> None:
    for spread in (0.0, 0.5, 2.0, 6.0):
        border_checks.check_top_p_steps(engine, spread)


def equal_logits(engine: Engine) -> None:
    for kind in border_checks.FLAT:
        border_checks.check_equal_logits(engine, kind)


def negative_nan(engine: Engine) -> None:
    border_checks.check_one_bad_logit(engine, 131, -np.nan)


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
        'np.uint64(need), side="left")) + 1',
        'np.uint64(need), side="right")) + 1',
        "reference/test_reference.py::test_top_p_need_is_exact_and_rounded_up",
    ),
    Mutant(
        "what top_p needs is rounded down",
        "return max(1, -((-p * total) >> 31))",
        "return max(1, (p * total) >> 31)",
        "reference/test_borders.py::test_need_is_rounded_up",
    ),
    Mutant(
        "a uniform of 24 bits",
        "return int(w0 + (w1 << 32))",
        "return int(w1 >> 8 << 40)",
        "reference/test_borders.py::test_every_bit_of_u_counts",
    ),
    Mutant(
        "equal logits in descending token",
        "    keys.sort()\n",
        "    keys = keys[np.lexsort((~keys, keys >> np.uint64(32)))]\n",
        "engines/test_golden.py::test_kept_sets_and_masses",
    ),
    Mutant(
        "masses from the top of the row, which a band may have dropped",
        "how.masses(ordered[first:end], ordered[first], temperature)",
        "how.masses(ordered[first:end], ordered[0], temperature)",
        "reference/test_filters.py::test_typical_p_may_drop_the_top_token",
    ),
    Mutant(
        "after a race one word for all distinct tokens",
        "u = uniform(*place, AFTER_RACE + 256 * len(tokens))",
        "u = uniform(*place, AFTER_RACE)",
        "engines/test_golden_distinct.py::test_the_reference_gives_every_token",
    ),
]

OF_NUMBA = [
    Mutant(
        "a band without its border",
        "reached = running.searchsorted(nucleus_target(share, int(running[-1])))",
        'reached = running.searchsorted(nucleus_target(share, int(running[-1])), "right")',
        "engines/test_chains.py",
    ),
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
    Mutant(
        "a token that arrives again is drawn again",
        "if count < len(tokens) and mass_at(row, token) > height and not is_drawn[token]:",
        "if count < len(tokens) and mass_at(row, token) > height:",
        "engines/test_golden_distinct.py::test_tokens",
    ),
]


def races_of_small_rows(engine: Engine) -> None:
    golden_races.check_races(engine, most=2**12)


def distinct_tokens_of_small_rows(engine: Engine) -> None:
    golden_distinct.check_distinct(engine, most=2**12)


def draws_that_end_at_a_cut(engine: Engine) -> None:
    row = np.array([[0, 2, 2, 2, 0]], np.float32)
    for seed in range(40):
        plan = make_plan(1, top_p=0.5, draw="race", seed=seed)
        request = make_request(row, plan)._replace(replacement=False)
        drawn = engine.run(request, make_output(1, draws=5, has_count=False)).tokens[0].tolist()
        assert sorted(drawn) == [-1, -1, -1, 1, 2]


OF_THE_KERNELS = [
    Mutant(
        "a cut that answers have found is not that of the kept set",
        "} else if (kept_.cut != in_) {",
        "} else if (false) {",
        draws_that_end_at_a_cut,
    ),
    Mutant(
        "arrivals by clocks in another order",
        "return times_[one] < times_[other] ||",
        "return times_[one] > times_[other] ||",
        distinct_tokens_of_small_rows,
    ),
    Mutant(
        "a drawn token keeps its mass",
        "kept.total -= mass;",
        "kept.total -= mass / 2;",
        distinct_tokens_of_small_rows,
    ),
    Mutant(
        "after a race one word for all distinct tokens",
        "kAfterRacePurpose + 256 * static_cast<uint32_t>(tokens.count());",
        "kAfterRacePurpose;",
        distinct_tokens_of_small_rows,
    ),
    Mutant(
        "heavy tokens arrive by their clocks alone",
        "write_times(place, tokens_at, head_.masses, shape_.floor(), head_count_, times);",
        "write_times(place, tokens_at, head_.masses, 0, head_count_, times);",
        races_of_small_rows,
    ),
    Mutant(
        "a level with one heavy token too many",
        "while (count_ > most_) {",
        "while (count_ > most_ + 1) {",
        races_of_small_rows,
    ),
    Mutant(
        "a height above half of the mass does not count",
        "mass_of(scaling_, logit) > shape_.height_of(point)",
        "mass_of(scaling_, logit) / 2 > shape_.height_of(point)",
        races_of_small_rows,
    ),
    Mutant(
        "a round of Philox too few",
        "for (int round = 0; round < 10; ++round) {",
        "for (int round = 0; round < 9; ++round) {",
        golden_checks.check_tokens,
    ),
    Mutant(
        "a uniform of 24 bits",
        "return words.word[0] | uint64_t{words.word[1]} << 32;",
        "return uint64_t{words.word[1] >> 8} << 40;",
        every_bit_of_u,
    ),
    Mutant(
        "several draws of one stream",
        "const uint32_t stream = params.stream + static_cast<uint32_t>(nth);",
        "const uint32_t stream = params.stream + static_cast<uint32_t>(nth / 2);",
        streams,
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
        "return b * kBlock + first_exceeding(masses, kBlock, &r);",
        "return b * kBlock + kBlock - 1;",
        golden_checks.check_tokens,
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
        "if (exponent2(scaling, read(from_ordinal(at))) >= y) {",
        "if (exponent2(scaling, read(from_ordinal(at))) > y) {",
        border_checks.check_min_p_threshold,
    ),
    Mutant(
        "the lanes of a vector in reverse, so a tie goes to the wrong token",
        "if (found) return clamp_token(row, b * kBlock + i + __builtin_ctz(found));",
        "if (found) return clamp_token(row, b * kBlock + i + 31 - __builtin_clz(found));",
        golden_checks.check_tokens,
    ),
    Mutant(
        "denormals lie below 0",
        "return bound == 0.0f ? from_ordinal(ordinal(-kSmallestNormal) + 1) : bound;",
        "return bound;",
        equal_logits,
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
        golden_checks.check_kept_sets,
    ),
    Mutant(
        "a block whose best has mass is skipped",
        "if (work.block_max[b] < least) continue;",
        "if (work.block_max[b] <= least) continue;",
        equal_logits,
    ),
    Mutant(
        "repetition multiplies logits above 0 too",
        "x > 0.0f ? x / p.repetition.value : x * p.repetition.value",
        "x * p.repetition.value",
        golden_checks.check_request_kept_sets,
    ),
]
