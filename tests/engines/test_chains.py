"""Every engine runs or refuses every chain: random chains of any length and order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample import engines
from fastsample.engines.plan import make_plan
from fastsample.params.ops import Op
from fastsample.params.table import BY_NAME, STAGES
from tests.support.case_loop import CaseLoop
from tests.support.engines import TESTED_ENGINES, Engine, differing, make_output, make_request
from tests.support.random_rows import KINDS, Rng, pick, random_value
from tests.support.row_kinds import BAD

REFERENCE = Engine("reference")
MODES = ("raw", "tempered", "processed")


def random_chain(rng: Rng, size: int) -> dict[str, Any]:
    """Stages in any order, all of them on."""
    stages = tuple(rng.permutation(STAGES)[: rng.integers(0, len(STAGES) + 1)].tolist())
    values = {name: random_value(rng, BY_NAME[name], size) for name in stages}
    return {**values, "stages": stages, "min_keep": int(pick(rng, (1, 1, 2, 9)))}


@pytest.mark.parametrize("engine", TESTED_ENGINES, ids=str)
def test_an_engine_runs_or_refuses_a_chain(engine: Engine) -> None:
    """What it runs has the reference's bits; what it refuses is not in its record."""
    rng = np.random.default_rng(12)
    kinds = [make for kind, make in KINDS.items() if kind not in BAD]
    with CaseLoop() as cases:
        for _ in range(40):
            size = int(pick(rng, (1, 7, 130, 700)))
            chain = random_chain(rng, size)
            rows = np.stack([pick(rng, kinds)(rng, size) for _ in range(5)])
            rows[:, rng.integers(size)] = 1
            reduction = pick(rng, engine.reductions)
            draw = pick(rng, ("race", "inverse")) if reduction == "exact" else "inverse"
            plan = make_plan(5, **chain, seed=3, position=[*range(5)], draw=draw)
            request = make_request(rows, plan, reduction=reduction)
            with cases.case(str(chain)):
                ops = {Op(op) for op in plan["ops"][0]}
                if not ops <= engines.ENGINES[engine.name].ops:
                    with pytest.raises(ValueError, match="has no stage"):
                        engine.run(request, make_output(5))
                    continue
                expected, found = (
                    one.run(request, make_output(5, modes=MODES, top_count=size))
                    for one in (REFERENCE, engine)
                )
                assert request.reduction == "fast" or differing(expected, found) == []
                assert differing(REFERENCE.kept_sets(request), engine.kept_sets(request)) == []


@pytest.mark.parametrize(
    "engine", [one for one in TESTED_ENGINES if one.has_stages(["typical_p"])], ids=str
)
def test_a_band_ends_at_the_token_that_reaches_its_share(engine: Engine) -> None:
    """Masses 2^40, 2^39, 2^38, 2^38: the entropy's token is 1, and holds exactly a quarter."""
    row = np.float32([0, -np.log(2), -2 * np.log(2), -2 * np.log(2)])
    plan = make_plan(2, typical_p=[0.25 + 2.0**-21, 0.25 + 2.0**-20], stages=("typical_p",))
    kept = engine.kept_sets(make_request(np.stack([row, row]), plan))
    assert kept.tokens.tolist() == [1, 0, 1]
