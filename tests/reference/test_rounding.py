"""Another rounding mode, which a library of the process may set: no engine gives another token."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from fastsample import log_softmax, logsumexp, sample, softmax
from fastsample.engines import reference
from fastsample.engines.reference import logprobs
from fastsample.engines.reference import softmax as reference_softmax
from tests.support import reference_rows
from tests.support.engines import Engine, make_plan
from tests.support.rounding_modes import KNOWN, rounding

pytestmark = pytest.mark.skipif(not KNOWN, reason="fesetround's constants are not known here")

ROW = (np.random.default_rng(4).standard_normal(5000) * 3).astype(np.float32)
FUNCTIONS = (
    reference_softmax.softmax,
    reference_softmax.log_softmax,
    reference_softmax.logsumexp,
    logprobs.tempered,
)
FILTERS = {"temperature": 0.7, "top_k": 900, "top_p": 0.9, "min_p": 0.001}


def answers(engine: Engine) -> tuple[list[Any], ...]:
    rows = np.broadcast_to(ROW, (50, len(ROW)))
    tokens, _ = engine.sample(rows, make_plan(50, **FILTERS, seed=3, position=range(50)))
    kept, masses = engine.kept_set(ROW, **FILTERS)
    how = {"temperature": 0.7, "engine": engine.name, "isa": engine.isa}
    found = [function(ROW, **how).tolist() for function in (softmax, log_softmax, logsumexp)]
    return tokens.tolist(), kept.tolist(), masses.tolist(), found


@pytest.mark.parametrize("mode", ["down", "up", "zero"])
def test_no_mode_gives_another_token(engine: Engine, mode: str) -> None:
    """Compiled code sets the mode for its own time; the reference and torch cannot, and refuse."""
    if engine.name == "torch":
        with pytest.raises(RuntimeError, match="must round to nearest"), rounding(mode):
            answers(engine)
        return
    if engine.name != "reference":
        expected = answers(engine)
        with rounding(mode):
            got = answers(engine)
        assert got == expected
        return
    arguments = {**FILTERS, "seed": 3, "position": 0, "stream": 0}
    for call in (
        lambda: reference_rows.sample_row(ROW, **arguments),
        lambda: reference_rows.kept_set(ROW, **FILTERS),
        lambda: reference.trace(ROW),
        lambda: reference.adjust(ROW, output=[3], presence_penalty=0.1),
        *(partial(function, ROW, 0.7) for function in FUNCTIONS),
        lambda: logprobs.raw(ROW),
    ):
        with pytest.raises(RuntimeError, match="must round to nearest"), rounding(mode):
            call()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("triton", marks=pytest.mark.triton),
    ],
)
@pytest.mark.parametrize("mode", ["down", "up", "zero"])
def test_a_tensor_that_stays_is_refused(mode: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip(name)
    how = {"seed": 3, "position": 0, "engine": name, "on_invalid": "mark"}
    sample(torch.from_numpy(ROW), **how)
    with pytest.raises(RuntimeError, match="must round to nearest"), rounding(mode):
        sample(torch.from_numpy(ROW), **how)


def test_the_default_mode_passes() -> None:
    with rounding("nearest"):
        assert reference.trace(ROW).kept == len(ROW)
