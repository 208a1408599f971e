"""`Sampler` in random use equals `sample` of the reference, call by call."""

from __future__ import annotations

import pytest

from tests.support.case_loop import CaseLoop
from tests.support.engines import Engine, usable_engines
from tests.support.sampler_schedules import Schedule

STEPS = 50


def run_schedules(engine: Engine, first: int, end: int) -> None:
    with CaseLoop() as cases:
        for seed in range(first, end):
            with cases.case(f"schedule {seed}"):
                schedule = Schedule(engine, seed)
                for _ in range(STEPS):
                    schedule.step()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("seeds", [(0, 2), pytest.param((2, 60), marks=pytest.mark.nightly)])
def test_random_schedules(seeds: tuple[int, int], engine: Engine) -> None:
    run_schedules(engine, *seeds)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize(
    "seeds", [(60, 110), pytest.param((110, 2_060), marks=pytest.mark.nightly)]
)
def test_random_schedules_of_the_default_engine(seeds: tuple[int, int]) -> None:
    run_schedules(usable_engines()[-1], *seeds)
