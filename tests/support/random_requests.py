"""Random requests: batches whose rows differ in every input and parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastsample.engines.plan import write_stages
from fastsample.engines.reference.engine import filters
from fastsample.params.table import STAGES
from fastsample.verification.memory import laid_out
from tests.support.engines import (
    BAD_PARAM,
    FILTERS_OFF,
    SHARED_STAGES,
    SampleRequest,
    csr,
    make_plan,
    make_request,
)
from tests.support.random_rows import KINDS, Rng, pick, random_draws, random_filters
from tests.support.row_kinds import MAX

F32 = np.float32
MODES = ("raw", "tempered", "processed")

# ---------------------------------------------------------------- logits of every dtype


def float32_rows(rng: Rng, n_rows: int, columns: int) -> np.ndarray:
    return np.stack([pick(rng, list(KINDS.values()))(rng, columns) for _ in range(n_rows)])


def float16_bits(rng: Rng, size: int) -> np.ndarray:
    """Any finite float16, denormals among them; in some rows infinities and nan too."""
    bits = rng.integers(0, 2**16, size, dtype=np.uint16)
    if rng.random() < 0.5:
        bits &= np.uint16(0x83FF if rng.random() < 0.5 else 0xBFFF)
    special = (bits & 0x7C00) == 0x7C00
    bits[special] = np.uint16(0xFC00) if rng.random() < 0.8 else bits[special]
    return bits.view(np.float16)


def float16_rows(rng: Rng, n_rows: int, columns: int) -> np.ndarray:
    rows = float32_rows(rng, n_rows, columns)
    with np.errstate(over="ignore", under="ignore"):
        halves = rows.astype(np.float16)
    for row in halves:
        if rng.random() < 0.2:
            row[:] = float16_bits(rng, columns)
    return halves


def bfloat16_rows(rng: Rng, n_rows: int, columns: int) -> np.ndarray:
    """The upper halves of float32 logits: ties abound, denormals and nan stay what they are."""
    rows = float32_rows(rng, n_rows, columns)
    return (rows.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


DTYPES: dict[str, Callable[[Rng, int, int], np.ndarray]] = {
    "float32": float32_rows,
    "float16": float16_rows,
    "bfloat16": bfloat16_rows,
}

# ---------------------------------------------------------------- memory layouts


def in_random_layout(rng: Rng, rows: np.ndarray) -> np.ndarray:
    """The same rows in a random layout: reversed, transposed, padded, unaligned or contiguous."""
    n_rows, columns = rows.shape
    item = rows.dtype.itemsize
    lead = int(rng.integers(0, 4))
    step = int(rng.choice([item, item, item, -item, 2 * item, 3 * item, 2 * item + 1]))
    gap = int(rng.choice([0, item, 1, 64]))
    layout = rng.integers(4)
    if layout == 0:
        return rows
    if layout == 1 and columns > 1:
        return laid_out(rows, item, n_rows * item + gap, lead)
    sign = int(rng.choice([1, -1]))
    return laid_out(rows, sign * (columns * abs(step) + gap), step, lead)


# ---------------------------------------------------------------- processors


def random_mask(rng: Rng, n_rows: int, vocabulary: int, columns: int) -> np.ndarray:
    """Bools or bits, for all rows or one each; short ones, few or many tokens allowed."""
    n_masks = int(rng.choice([1, n_rows]))
    share = rng.choice([0.02, 0.3, 0.9, 1.0])
    allowed = rng.random((n_masks, columns)) < share
    for row in allowed:
        row[rng.integers(vocabulary)] = True
    if rng.random() < 0.5:
        width = columns if rng.random() < 0.7 else int(rng.integers(1, columns + 1))
        return np.ascontiguousarray(allowed[:, :width])
    full = -(-columns // 32)
    width = full if rng.random() < 0.7 else int(rng.integers(1, full + 1))
    # The bits past the last column can be anything.
    padded = np.ones((n_masks, full * 32), dtype=bool)
    padded[:, :columns] = allowed
    words = np.packbits(padded, axis=1, bitorder="little").view("<u4").astype(np.uint32)
    return np.ascontiguousarray(words[:, :width])


BIASES = (0.0, -0.0, 1.0, -1.0, 0.5, 100.0, -100.0, MAX, -MAX, -np.inf, 1e-40, -1e-45, 2.0**-126)


def random_bias(rng: Rng, n_rows: int, vocabulary: int) -> Any:
    tokens, values = [], []
    for _ in range(n_rows):
        most = int(rng.choice([0, 1, 4, min(300, vocabulary), vocabulary]))
        some = rng.permutation(vocabulary)[: rng.integers(0, most + 1)]
        calm = rng.normal(0, 3, len(some))
        wild = rng.choice(np.array(BIASES), len(some))
        tokens.append(some)
        values.append(np.where(rng.random(len(some)) < 0.7, calm, wild).astype(F32))
    return csr(tokens, values)


def random_history(rng: Rng, n_rows: int, vocabulary: int) -> Any:
    """Lists of tokens: empty ones, long ones, many tokens more than once."""
    lists = []
    for _ in range(n_rows):
        length = int(rng.choice([0, 1, 5, 40, 300]))
        among = int(rng.choice([1, 3, vocabulary]))
        lists.append(rng.integers(0, min(among, vocabulary), length))
    return csr(lists)


def random_lists(rng: Rng, n_rows: int, vocabulary: int, columns: int) -> dict[str, Any]:
    lists: dict[str, Any] = {}
    if rng.random() < 0.5:
        lists["mask"] = random_mask(rng, n_rows, vocabulary, columns)
    if rng.random() < 0.5:
        lists["bias"] = random_bias(rng, n_rows, vocabulary)
    for name in ("prompt", "output"):
        if rng.random() < 0.6:
            lists[name] = random_history(rng, n_rows, vocabulary)
    return lists


REPETITIONS = (1.0, 1.1, 1.5, 2.0, 0.5, 1e-30, 1e30, 3e38, 1e-40)
ADDITIVES = (0.0, 0.5, -0.5, 1.0, 2.0, 1e-40, -1e-30, 1e30, 3e38, -3e38, 1e-50)
SCOPES = ("all", "prompt", "output", 0, 1, 2, 7, 100, 10**12)


def random_penalties(rng: Rng) -> dict[str, Any]:
    if rng.random() < 0.3:
        return {}
    calm = rng.random() < 0.6
    return {
        "repetition_penalty": float(rng.uniform(0.5, 2)) if calm else pick(rng, REPETITIONS),
        "frequency_penalty": float(rng.uniform(-1, 1)) if calm else pick(rng, ADDITIVES),
        "presence_penalty": float(rng.uniform(-1, 1)) if calm else pick(rng, ADDITIVES),
        "repetition_scope": pick(rng, SCOPES),
        "frequency_scope": pick(rng, SCOPES),
        "presence_scope": pick(rng, SCOPES),
    }


# ---------------------------------------------------------------- settings


def random_stages(rng: Rng) -> tuple[str, ...]:
    if rng.random() < 0.4:
        return STAGES
    count = rng.integers(0, len(SHARED_STAGES) + 1)
    return tuple(rng.permutation(SHARED_STAGES)[:count].tolist())


def random_min_keep(rng: Rng, size: int) -> int:
    if rng.random() < 0.5:
        return 1
    return int(pick(rng, (2, 3, 20, 64, 65, size, size + 1, 2**40, rng.integers(1, size + 1))))


def random_settings(rng: Rng, size: int) -> dict[str, Any]:
    """Valid settings of one row: a filter in use has its stage."""
    stages = random_stages(rng)
    filters = random_filters(rng, size)
    return {
        **{name: value if name in stages else FILTERS_OFF[name] for name, value in filters.items()},
        "stages": stages,
        "min_keep": random_min_keep(rng, size),
        **random_penalties(rng),
    }


def random_plan(rng: Rng, n_rows: int, size: int) -> np.ndarray:
    """A record for each row; 63 more streams can follow each."""
    plan = np.concatenate([make_plan(1, **random_settings(rng, size)) for _ in range(n_rows)])
    for name, values in random_draws(rng, n_rows).items():
        plan[name] = values
    plan["stream"] = np.minimum(plan["stream"], 2**32 - 64)
    return plan


def random_request(rng: Rng, n_rows: int, columns: int, reduction: str = "exact") -> SampleRequest:
    vocabulary = columns if rng.random() < 0.7 else int(rng.integers(1, columns + 1))
    rows = pick(rng, list(DTYPES.values()))(rng, n_rows, columns)
    values = in_random_layout(rng, rows)
    values.flags.writeable = False
    lists = random_lists(rng, n_rows, vocabulary, columns) if rng.random() < 0.7 else {}
    plan = random_plan(rng, n_rows, vocabulary)
    given = random_given(rng, n_rows, vocabulary)
    return make_request(values, plan, vocabulary, reduction, given, **lists)


def random_given(rng: Rng, n_rows: int, vocabulary: int) -> np.ndarray | None:
    """Tokens whose log-probabilities are wanted: -1 and the same ones more than once among them."""
    if rng.random() < 0.5:
        return None
    count = int(pick(rng, (0, 1, 3, 20)))
    return rng.integers(-1 if rng.random() < 0.5 else 0, vocabulary, (n_rows, count))


def random_forms(rng: Rng) -> tuple[str, ...]:
    return tuple(MODES[form] for form in rng.permutation(3)[: rng.integers(0, 4)])


def random_top_count(rng: Rng, vocabulary: int) -> int:
    return int(min(vocabulary, pick(rng, (0, 0, 1, 5, 20, 129, vocabulary))))


def random_status(rng: Rng, n_rows: int) -> np.ndarray:
    """Statuses on input: OK, or BAD_PARAM."""
    return np.where(rng.random(n_rows) < 0.05, BAD_PARAM, 0).astype(np.uint8)


def alike(request: SampleRequest) -> SampleRequest:
    """The request with the stages and scopes of its first row in all rows, as in `sample`."""
    plan = request.plan.copy()
    for name in ("repetition_scope", "frequency_scope", "presence_scope"):
        plan[name] = plan[name][0]
    restage(plan, filters(plan[0])["stages"])
    return request._replace(plan=plan)


def restage(plan: np.ndarray, first: tuple[str, ...], **columns: Any) -> None:
    """Write all rows' stages in one order, these first; `columns` replace values of theirs."""
    rows = [{**FILTERS_OFF, **filters(row)} for row in plan]
    values = {name: np.array([row[name] for row in rows]) for name in FILTERS_OFF}
    write_stages(plan, tuple(dict.fromkeys([*first, *FILTERS_OFF])), {**values, **columns})
