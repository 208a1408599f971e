"""Every field of `SamplingParams` does something: none is read, checked and then forgotten."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams
from fastsample.params.table import STAGES
from tests.support.case_loop import each
from tests.support.engines import Engine

STEPS = (np.random.default_rng(31).normal(size=(40, 300)) * 2).astype(np.float32)
BASE = SamplingParams(
    temperature=0.9,
    top_k=40,
    top_p=0.9,
    min_p=0.02,
    seed=5,
    repetition_penalty=1.6,
    frequency_penalty=0.5,
    presence_penalty=0.7,
    draw="inverse",
)
OTHER: dict[str, Any] = {
    "temperature": 1.4,
    "top_k": 3,
    "top_p": 0.3,
    "min_p": 0.4,
    "typical_p": 0.3,
    "epsilon_cutoff": 0.2,
    "top_n_sigma": 0.5,
    "top_a": 0.9,
    "seed": 6,
    "repetition_penalty": 1.0,
    "frequency_penalty": -0.5,
    "presence_penalty": -0.7,
    "repetition_scope": "output",
    "frequency_scope": "all",
    "presence_scope": 2,
    "ignore_tokens": range(10_000),
    "min_keep": 30,
    "stages": tuple(reversed(STAGES)),
    "draw": "race",
}


def tokens_of(params: SamplingParams, engine: Engine) -> list[int]:
    prompt = np.argsort(STEPS[0])[-60:].tolist()
    sampler = Sampler(params, prompt=prompt * 2, engine=engine.name, isa=engine.isa)
    return [sampler(row) for row in STEPS]


def test_every_field_has_another_value_here() -> None:
    assert set(OTHER) == {field.name for field in fields(SamplingParams)}


@each("name", OTHER)
def test_a_field_changes_some_token(name: str, engine: Engine) -> None:
    if name in STAGES and not engine.has_stages((name,)):
        pytest.skip("the engine refuses this filter")
    if name == "draw" and not engine.has_race:
        pytest.skip("the engine refuses the race")
    assert tokens_of(replace(BASE, **{name: OTHER[name]}), engine) != tokens_of(BASE, engine)
