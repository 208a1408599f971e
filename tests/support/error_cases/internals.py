"""Errors of internal functions: the reference, the extension, the proof's children."""

from __future__ import annotations

import multiprocessing
import os
import time
from array import array
from typing import Any
from unittest import mock

import numpy as np

from fastsample import Latency, Sampler, engines
from fastsample.engines import plan, reference
from fastsample.engines.contract import (
    LogitsProcessors,
    LogprobResult,
    SampleOutput,
    SampleRequest,
)
from fastsample.engines.reference import softmax as reference_softmax
from fastsample.verification import worker
from fastsample.verification.worker import NoForkError, run_forked
from tests.support.engines import csr, make_plan, native
from tests.support.error_cases import ROW, ROWS, ErrorCase
from tests.support.rounding_modes import KNOWN, rounding


def trace_while_rounding_up() -> None:
    with rounding("up"):
        reference.trace(ROW)


EMPTY = np.full(3, -np.inf, np.float32)
HOLD = "`row` must hold a logit above -inf, and neither NaN nor +inf"
REFERENCE = [
    ErrorCase(lambda: reference.trace(EMPTY), ValueError, HOLD),
    ErrorCase(lambda: reference_softmax.softmax(EMPTY, 1.0), ValueError, HOLD),
    ErrorCase(lambda: reference.trace(ROW, top_q=0.5), TypeError, "`trace` has no stage 'top_q'"),
]


def plan_with_room_for_one() -> None:
    plan._record.cache_clear()  # a plan that another test has made is not checked again
    with mock.patch.object(plan, "MAX_STAGES", 1):
        plan.make_plan(1, top_k=[5], top_p=0.5)


def plan_with_a_band() -> None:
    engines.require_stages("triton", make_plan(2, temperature=0.5, typical_p=[1.0, 0.5]))


PLANS = [
    ErrorCase(
        plan_with_a_band,
        ValueError,
        "engine 'triton' has no stage 'typical_p' (use engine=\"torch\", or leave `typical_p` out)",
    ),
    ErrorCase(
        plan_with_room_for_one,
        ValueError,
        "`stages` must hold at most 1 stages that are on, got 2 (leave some at their off values)",
    ),
]
ROUNDING = [
    ErrorCase(
        trace_while_rounding_up,
        RuntimeError,
        "the processor must round to nearest, ties to even, and was set to round otherwise (undo",
    )
]

LISTS = csr([[0], [1], [], [2]], [[1.0], [1.0], [], [1.0]])


def lists_with(**parts: Any) -> Any:
    return LISTS._replace(**parts)


def native_sample(changed: dict[str, Any]) -> None:
    """A call of the kernels on four rows of three tokens, with some arguments changed."""
    request = {
        "values": ROWS,
        "vocabulary": 3,
        "plan": make_plan(4),
        "processors": None,
        "reduction": "exact",
        "logprob_tokens": None,
    }
    output = {"tokens": np.empty((4, 1), np.int64), "status": np.zeros(4, np.uint8)}
    processors = {name: changed[name] for name in LogitsProcessors._fields if name in changed}
    if processors:
        request["processors"] = LogitsProcessors(None, None, None, None)._replace(**processors)
    request |= {name: value for name, value in changed.items() if name in request}
    output |= {name: changed[name] for name in SampleOutput._fields if name in changed}
    native.sample(SampleRequest(**request), SampleOutput(**output), None, 1)


def logprob_buffers(n_top: int, **changed: Any) -> dict[str, Any]:
    """Buffers for log-probabilities, with some top tokens."""
    buffers = LogprobResult.empty(("raw",), 4, 1, n_top)
    return {"logprobs": buffers._replace(**changed)}


BAD_CALLS: list[tuple[dict[str, Any], str]] = [
    ({"values": ROWS.astype(np.float64)}, "values must be float32, float16 or uint16, got float64"),
    ({"values": ROW}, "values must be rows of at least `vocabulary` tokens"),
    ({"vocabulary": 4}, "values must be rows of at least `vocabulary` tokens"),
    ({"vocabulary": 0}, "values must be rows of at least `vocabulary` tokens"),
    ({"plan": make_plan(3)}, "plan must have 4 items"),
    (
        {"plan": make_plan(4)["seed"].copy()},
        "plan must have items of 248 bytes",
    ),
    ({"tokens": np.empty(4, np.int64)}, "tokens must have shape (rows, draws)"),
    ({"tokens": np.empty((3, 1), np.int64)}, "tokens must have shape (rows, draws)"),
    ({"tokens": np.empty((4, 1), np.int32)}, "tokens must have items of 8 bytes, got 4"),
    ({"status": np.zeros(5, np.uint8)}, "status must have 4 items"),
    ({"kept_count": np.zeros(3, np.int64)}, "kept_count must have 4 items"),
    ({"mask": np.ones((2, 3), bool)}, "mask must have one row, or one for each row of values"),
    ({"mask": np.ones(3, bool)}, "mask must have one row, or one for each row of values"),
    ({"mask": np.ones((4, 3), np.uint8)}, "mask must have items of 4 bytes, got 1"),
    ({"output": lists_with(offsets=LISTS.offsets[:4])}, "offsets must have 5 items"),
    ({"output": lists_with(tokens=LISTS.tokens[:2])}, "tokens must have 3 items"),
    ({"bias": lists_with(values=np.ones(2, np.float32))}, "values must have 3 items"),
    ({"bias": lists_with(values=np.ones(3))}, "values must have items of 4 bytes, got 8"),
    ({"mask": np.ones((3, 1), np.uint32)}, "mask must have one row, or one for each row of"),
    (logprob_buffers(4), "top_tokens cannot hold more tokens than the vocabulary"),
    (logprob_buffers(2, logprobs=np.empty((1, 3, 1))), "logprobs must have 4 items"),
    (logprob_buffers(2, logprobs=np.empty((1, 4, 2))), "logprobs must be of all 1 draws, or of"),
    (logprob_buffers(2, ranks=np.empty((2, 4, 1), np.int64)), "ranks must have 4 items"),
    (logprob_buffers(2, token_logprobs=np.empty((1, 4, 1))), "token_logprobs must have 0 items"),
    (
        {"logprob_tokens": np.zeros((3, 2), np.int64), **logprob_buffers(2)},
        "logprob_tokens must have 8 items",
    ),
    (logprob_buffers(2, top_logprobs=np.empty((1, 4, 3))), "top_logprobs must have 8 items"),
]


def native_step(changed: dict[str, Any]) -> None:
    """Calls that are prepared for rows of three tokens, likewise."""
    arguments = {
        "owner": Sampler,
        "valid_vocab": 0,
        "max_vocabulary": 3,
        "is_dynamic": False,
        "result_type": tuple,
        "params_type": tuple,
        "sequence_type": tuple,
        "prepare": None,
        "latency": None,
        "isa": None,
        "n_threads": 1,
        "reduction": "exact",
    }
    native.Step(**{**arguments, **changed})


BAD_STEPS: list[tuple[dict[str, Any], str]] = [
    ({"latency": (array("q"), array("q", [0] * 4))}, "counts must have 3712 items"),
    ({"latency": (Latency().memory[0], array("q"))}, "sums must have 4 items"),
]


def native_state(record: bytes) -> Any:
    return native.SequenceState(record, False, array("q"), array("q"), array("q"), False)


def native_softmax(out: np.ndarray, plan: np.ndarray) -> None:
    request = SampleRequest(ROWS, 3, plan, None)
    native.softmax("softmax", request, out, np.zeros(4, np.uint8), None, 1)


BAD_LIMITS = ["two", "0", "-1", "2.5", " 2", str(2**31)]

NATIVE = [
    *(
        ErrorCase(
            lambda text=text: native._limit_in(text),
            ValueError,
            f"`FASTSAMPLE_NUM_THREADS` must be in [1, 2**31), got '{text}'",
        )
        for text in BAD_LIMITS
    ),
    ErrorCase(
        lambda: native.set_reading("backwards", "the environment's `FASTSAMPLE_READING`"),
        ValueError,
        "`FASTSAMPLE_READING` must be one of streams, ahead, got 'backwards'",
    ),
    *(
        ErrorCase(lambda changed=changed: native_sample(changed), ValueError, part)
        for changed, part in BAD_CALLS
    ),
    *(
        ErrorCase(lambda changed=changed: native_step(changed), ValueError, part)
        for changed, part in BAD_STEPS
    ),
    ErrorCase(
        lambda: native_step({"owner": type("Owner", (), {"_step": None})}),
        TypeError,
        "Owner must have a slot `_step`",
    ),
    ErrorCase(
        lambda: native_softmax(np.empty((4, 2), np.float32), make_plan(4)),
        ValueError,
        "out must have 12 items",
    ),
    ErrorCase(
        lambda: native_softmax(np.empty((4, 3), np.float32), make_plan(3)),
        ValueError,
        "plan must have 4 items",
    ),
    ErrorCase(
        lambda: native.SequenceState.truncate_all([native_state(make_plan(1).tobytes())], [1]),
        ValueError,
        "an output of 0 tokens has none at 1",
    ),
    ErrorCase(
        lambda: native_state(b"short"),
        ValueError,
        f"record must have {make_plan(1).nbytes} bytes, got 5",
    ),
]


def without_fork() -> None:
    unknown = ValueError("cannot find context for 'fork'")
    with mock.patch.object(multiprocessing, "get_context", side_effect=unknown):
        run_forked(int)


def refused_fork() -> None:
    with mock.patch.object(os, "fork", side_effect=BlockingIOError("no more"), create=True):
        run_forked(int)


def slow_fork() -> None:
    with mock.patch.object(worker, "PATIENCE", 0.1):
        run_forked(lambda: time.sleep(60))


FORKED = [
    ErrorCase(slow_fork, RuntimeError, "a forked process sent no result for"),
    ErrorCase(lambda: run_forked(lambda: os._exit(0)), RuntimeError, "a forked process ended"),
    ErrorCase(
        lambda: run_forked(lambda: 1 // 0), RuntimeError, "a forked process raised ZeroDivision"
    ),
]

NOT_FORKED = [
    ErrorCase(without_fork, NoForkError, "the system cannot fork: cannot find context"),
    ErrorCase(refused_fork, NoForkError, "the system cannot fork: no more"),
]

ERROR_CASES = [
    *REFERENCE,
    *NOT_FORKED,
    *(FORKED if hasattr(os, "fork") else []),
    *PLANS,
    *(ROUNDING if KNOWN else []),
    *(NATIVE if native else []),
]
