"""`sample` for torch tensors that stay on their device: nothing is asked back from it.

Numbers that the host has are checked here, as everywhere. Those that come as tensors are looked at
where they lie: a row with a bad one is marked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsample.engines import resolve
from fastsample.engines.contract import LogprobRequest
from fastsample.engines.plan import make_plan
from fastsample.engines.torch.batch import Answer, Asked
from fastsample.engines.torch.from_numpy import (
    PLACE,
    REALS,
    WHOLES,
    adjustments_of,
    arrays_of,
    columns,
    require_exact,
    scopes_of,
    stages_code,
    tensor_of,
)
from fastsample.engines.torch.logprobs import FORMS
from fastsample.engines.torch.operator import call
from fastsample.engines.torch.penalties import Adjustments
from fastsample.engines.torch.tensor_args import (
    Shape,
    are_tensors,
    bias_of,
    check_numbers,
    mask_of,
    out_of_range,
    reals_of,
    shape_of,
    tokens_of,
    wholes_of,
)
from fastsample.inputs.logits import Rows
from fastsample.inputs.logits_processors import make_adjustments
from fastsample.params.parameters import check_threads, resolve_rng_position
from fastsample.params.table import BY_NAME
from fastsample.params.validation import check_reduction, per_row

from .arguments import invalid_mask, parse_draws, parse_logprobs
from .result import SampleResult

_PARAMETERS = {name: BY_NAME[name] for name in BY_NAME if BY_NAME[name].per_row}
_STANDING = {
    name: 0 if parameter.default is None else parameter.default
    for name, parameter in _PARAMETERS.items()
}
"""What stands in for a tensor where the host's numbers are checked."""


def sample(logits: Any, given: dict[str, Any]) -> SampleResult:
    """Draw a token for each row, on the device of the logits.

    Parameters
    ----------
    logits : tensor of shape (V,) or (B, V), float32, float16 or bfloat16
    given : dict
        The arguments of `fastsample.sample` by their names, all of them. Bad rows are marked
        whatever ``on_invalid`` says.

    Returns
    -------
    SampleResult
        Of tensors on that device; the seed as it was given.
    """
    shape = shape_of(logits, given["valid_vocab"])
    request = parse_logprobs(given["logprobs"], given["logprobs_mode"], shape.vocabulary)
    if given["seed"] is None:
        given = {**given, **_fresh_place(given)}
    answer = Answer(*_answer(logits, given))
    return _result(answer, shape, given, request)


def _fresh_place(given: dict[str, Any]) -> dict[str, Any]:
    """Settle where to draw with a seed of the system's, which a graph would draw once for ever."""
    if torch.compiler.is_compiling():
        raise ValueError(
            "`seed` must be given in compiled code, got None (an integer or a tensor; a fresh seed "
            "would be the same in every call)"
        )
    seed, position, stream = resolve_rng_position(0, None, given["position"], given["stream"])
    return {"seed": seed, "position": position, "stream": stream}


def _answer(logits: Tensor, given: dict[str, Any]) -> tuple[Tensor, ...]:
    if torch.compiler.is_compiling():
        given = {
            name: _settled(value, is_number=name in _PARAMETERS) for name, value in given.items()
        }
    engine = resolve(given["engine"], given["isa"]).name
    require_exact(check_reduction(given["reduction"]))
    invalid_mask(given["on_invalid"], 0)
    check_threads(given["n_threads"])
    shape = shape_of(logits, given["valid_vocab"])
    request = parse_logprobs(given["logprobs"], given["logprobs_mode"], shape.vocabulary)
    return tuple(call(_asked(logits, shape, given, request), engine))


# Numbers of the host are worked out once, when a graph is made, and need not be looked into.
torch.compiler.allow_in_graph(_answer)


def _settled(value: Any, *, is_number: bool = False) -> Any:
    """Take the symbols of a graph that is being made for what they stand for.

    A number of its own becomes a tensor, so that the graph serves others too; what has numbers in
    it makes a graph for these alone.
    """
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        kind, dtype = (
            (int, torch.int64) if isinstance(value, torch.SymInt) else (float, torch.float64)
        )
        return torch.full((), value, dtype=dtype, device="cpu") if is_number else kind(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_settled, value))
    if isinstance(value, dict):
        return {key: _settled(one) for key, one in value.items()}
    return value


# ---------------------------------------------------------------- numbers


def _asked(
    logits: Tensor, shape: Shape, given: dict[str, Any], logprobs: LogprobRequest | None
) -> Asked:
    draws = parse_draws(given["n"], logprobs)
    tensors = {name: given[name] for name in _PARAMETERS if isinstance(given[name], Tensor)}
    for name, value in tensors.items():
        check_numbers(_PARAMETERS[name], value, shape.n_rows)
    plan, marked = _plan_of_host(shape.n_rows, given, tensors, draws)
    bad = tensor_of(marked) if marked.any() else None
    tables = {}
    for part, names in _PARTS.items():
        mine = {name: tensors[name] for name in names if name in tensors}
        there = any(not value.is_cpu for value in mine.values())
        device = logits.device if there else torch.device("cpu")
        if isinstance(given["stream"], str) and "stream" in names:
            mine["stream"] = torch.arange(shape.n_rows, device=device) * draws
        tables[part] = _table(plan, names, mine, shape.n_rows, device)
        for name, value in mine.items():
            found = out_of_range(_PARAMETERS[name], value, given["stages"], draws)
            bad = _either(bad, found, logits.device)
    adjustments, misfits = _adjustments(logits, shape, given, scopes_of(plan))
    bad = _either(bad, misfits, logits.device)
    bad = None if bad is None else bad.expand(shape.n_rows)
    return Asked(
        logits if logits.ndim == 2 else logits[None],
        shape.vocabulary,
        tables["reals"],
        tables["wholes"],
        tables["place"],
        bad,
        adjustments,
        stages_code(given["stages"]),
        draws,
        tuple(FORMS.index(mode) for mode in logprobs.modes) if logprobs else (),
        logprobs.top_count if logprobs else 0,
    )


_PARTS = {"reals": REALS, "wholes": WHOLES, "place": PLACE}


def _plan_of_host(
    n_rows: int, given: dict[str, Any], tensors: dict[str, Tensor], draws: int
) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Check what the host has: a plan, and the rows with a number out of range.

    The plan has one row where the host's numbers are the same in all.
    """
    host = {name: given[name] for name in _OF_PLAN}
    host |= {name: _STANDING[name] for name in tensors}
    many = any(per_row(host[name]) for name in _PARAMETERS)
    n_planned = int(n_rows) if many else 1
    if "seed" in tensors and tensors["seed"].ndim:
        host["seed"] = [0] * n_planned
    marked = np.zeros(n_planned, np.bool_)
    seed, position, stream = (host.pop(name) for name in PLACE)
    n_seeds = n_planned if per_row(seed) else n_rows
    seed, position, stream = resolve_rng_position(n_seeds, seed, position, stream, marked)
    plan = make_plan(
        n_planned,
        **host,
        seed=seed,
        position=position,
        stream=stream,
        draws=draws,
        bad=marked,
    )
    return plan, marked


_OF_PLAN = (
    *_PARAMETERS,
    *("repetition_scope", "frequency_scope", "presence_scope", "stages"),
)


def _table(
    plan: NDArray[np.void],
    names: tuple[str, ...],
    given: dict[str, Tensor],
    n_rows: int,
    device: torch.device,
) -> Tensor:
    """Some columns of a plan beside each other, and tensors in the place of some."""
    if not given:
        return columns(plan, names).expand(n_rows, -1)
    parts = []
    for name, column in zip(names, arrays_of(plan, names), strict=True):
        if name in given:
            part = given[name].to(device, non_blocking=True)
            part = reals_of(part) if names is REALS else wholes_of(part)
        elif len(plan) == 1:
            # No copy, which a graph of a device would not take.
            dtype = torch.float64 if names is REALS else torch.int64
            part = torch.full((), column.item(), dtype=dtype, device=device)
        else:
            part = tensor_of(column).to(device, non_blocking=True)
        parts.append(part.expand(n_rows))
    return torch.stack(parts, 1)


def _either(bad: Tensor | None, more: Tensor | None, device: torch.device) -> Tensor | None:
    if more is None:
        return bad
    more = more.to(device, non_blocking=True)
    return more if bad is None else bad.to(device, non_blocking=True) | more


# ---------------------------------------------------------------- adjustments


def _adjustments(
    logits: Tensor, shape: Shape, given: dict[str, Any], scopes: tuple[int, int, int]
) -> tuple[Adjustments, Tensor | None]:
    """Lay out what adjusts the rows beside them, and find the rows that it cannot be done for."""
    device = logits.device
    parts = {name: given[name] for name in ("mask", "bias", "prompt", "output")}
    tensors = {name: value for name, value in parts.items() if are_tensors(name, value)}
    host = {name: None if name in tensors else value for name, value in parts.items()}
    fields: dict[str, Any] = {
        name: part if part is None or name == "scopes" else part.to(device, non_blocking=True)
        for name, part in _adjustments_of_host(shape, host, scopes)._asdict().items()
    }
    bad = None
    for name, value in tensors.items():
        if name == "mask":
            fields[name] = mask_of(value, shape).to(device, non_blocking=True)
            continue
        if name == "bias":
            fields["bias_tokens"], fields["bias"], found = bias_of(value, shape, device)
        else:
            fields[name], found = tokens_of(name, value, shape, device)
        bad = found if bad is None else bad | found
    return Adjustments(**fields), bad


def _adjustments_of_host(
    shape: Shape, given: dict[str, Any], scopes: tuple[int, int, int]
) -> Adjustments:
    if all(value is None for value in given.values()):
        return Adjustments(None, None, None, None, None, scopes)
    n_rows = int(shape.n_rows)
    # Only the shape of the rows is looked at.
    values = np.broadcast_to(np.float32(0), (n_rows, shape.columns))
    rows = Rows(values, shape.tokens, True, shape.vocabulary)
    return adjustments_of(make_adjustments(rows, **given), np.arange(n_rows), scopes)


# ---------------------------------------------------------------- what comes back


def _result(
    answer: Answer, shape: Shape, given: dict[str, Any], logprobs: LogprobRequest | None
) -> SampleResult:
    n, out, seed = given["n"], given["out"], given["seed"]
    tokens = answer.tokens.reshape(shape.tokens if n is None else (*shape.tokens, n))
    if out is not None:
        tokens = _written(out, tokens)
    kept_count, status = (part.reshape(shape.tokens) for part in (answer.kept_count, answer.status))
    if logprobs is None:
        return SampleResult(tokens, None, None, None, None, kept_count, status, seed)
    some = (len(logprobs.modes), *shape.tokens) if logprobs.has_mode_axis else shape.tokens
    many = (*some, logprobs.top_count)
    return SampleResult(
        tokens,
        answer.logprobs.reshape(some),
        answer.ranks.reshape(some),
        answer.top_tokens.reshape(many),
        answer.top_logprobs.reshape(many),
        kept_count,
        status,
        seed,
    )


def _written(out: Any, tokens: Tensor) -> Tensor:
    """Write the tokens where the caller wants them."""
    if not isinstance(out, Tensor) or out.dtype != torch.int64 or out.device != tokens.device:
        got = f"{out.dtype} on {out.device}" if isinstance(out, Tensor) else type(out).__name__
        raise TypeError(
            f"`out` must be torch.int64 on {tokens.device}, as the tokens are, got {got} "
            "(leave it out to get a new one)"
        )
    if out.shape != tokens.shape:
        raise ValueError(
            f"`out` must have the shape of the answer, {tuple(tokens.shape)}, got "
            f"{tuple(out.shape)} (leave it out to get a new one)"
        )
    return out.copy_(tokens)
