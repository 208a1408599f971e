"""`sample` for torch tensors that stay on their device: nothing is asked back from it.

Numbers that the host has are checked here, as everywhere. Those that come as tensors are looked at
where they lie: a row with a bad one is marked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import checks
from .adjustments import make_adjustments
from .checks import Parameter, check_reduction
from .drawing import Told, as_told, check_n, marks
from .engines import resolve
from .logits import LOGITS, MAX_VOCABULARY, Rows, check_valid, shape_message, wrong_dtype
from .params import check_threads, make_plan, place_draw
from .result import SampleResult
from .torch_rule.adjust import Adjustments, exact
from .torch_rule.batch import Answer, Asked
from .torch_rule.lay import (
    PLACE,
    REALS,
    WHOLES,
    adjustments_of,
    columns,
    require_exact,
    scopes_of,
    tensor_of,
)
from .torch_rule.op import call
from .torch_rule.tell import FORMS

_WITHOUT_FLOAT64 = ("mps",)
_PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        *(checks.TEMPERATURE, checks.TOP_P, checks.MIN_P, checks.REPETITION_PENALTY),
        *(checks.FREQUENCY_PENALTY, checks.PRESENCE_PENALTY, checks.TOP_K, checks.MIN_KEEP),
        *(checks.SEED, checks.POSITION, checks.STREAM),
    )
}
_OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""The value of a parameter that needs no stage."""

_STANDING = {
    **_OFF,
    **{"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    **{"min_keep": 1, "seed": 0, "position": 0, "stream": 0},
}
"""What stands in for a tensor where the host's numbers are checked."""


class _Shape(NamedTuple):
    """The shape of the batch."""

    n_rows: int
    columns: int
    vocabulary: int
    tokens: tuple[int, ...]


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
    shape = _shape_of(logits, given["valid_vocab"])
    told = as_told(given["logprobs"], given["form"], shape.vocabulary)
    if given["seed"] is None:
        given = {**given, **_fresh_place(given)}
    answer = Answer(*_answer(logits, given))
    return _result(answer, shape, given, told)


def _fresh_place(given: dict[str, Any]) -> dict[str, Any]:
    """Settle where to draw with a seed of the system's, which a graph would draw once for ever."""
    if torch.compiler.is_compiling():
        raise ValueError(
            "`seed` must be given in compiled code, got None (an integer or a tensor; a fresh seed "
            "would be the same in every call)"
        )
    seed, position, stream = place_draw(0, None, given["position"], given["stream"])
    return {"seed": seed, "position": position, "stream": stream}


def _answer(logits: Tensor, given: dict[str, Any]) -> tuple[Tensor, ...]:
    resolve("torch", given["isa"])
    require_exact(check_reduction(given["reduction"]))
    marks(given["on_invalid"], 0)
    check_threads(given["n_threads"])
    shape = _shape_of(logits, given["valid_vocab"])
    told = as_told(given["logprobs"], given["form"], shape.vocabulary)
    return tuple(call(_asked(logits, shape, given, told)))


# Numbers of the host are worked out once, when a graph is made, and need not be looked into.
torch.compiler.allow_in_graph(_answer)


# ---------------------------------------------------------------- logits


def _shape_of(logits: Any, valid_vocab: Any) -> _Shape:
    if logits.device.type in _WITHOUT_FLOAT64:
        raise TypeError(
            f"`logits` must be on a device with float64 and int64, got a tensor on {logits.device} "
            "(pass `logits.cpu()`)"
        )
    if logits.requires_grad:
        raise TypeError(
            "`logits` must not require grad, got a tensor that does (pass `logits.detach()`)"
        )
    if logits.layout is not torch.strided:
        raise TypeError(f"`logits` must be dense, got {logits.layout} (pass `logits.to_dense()`)")
    if logits.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise wrong_dtype(logits.dtype, LOGITS, "pass `logits.float()`")
    shape = tuple(logits.shape)
    if len(shape) not in (1, 2):
        raise ValueError(shape_message(shape))
    vocabulary = shape[-1] if valid_vocab is None else check_valid(valid_vocab, shape[-1])
    if not 1 <= vocabulary <= MAX_VOCABULARY:
        raise ValueError(
            f"`logits` must have 1 to 2**22 tokens per row, got shape {shape} "
            "(the last axis is the vocabulary)"
        )
    return _Shape(1 if len(shape) == 1 else shape[0], shape[-1], vocabulary, shape[:-1])


# ---------------------------------------------------------------- parameters


def _asked(logits: Tensor, shape: _Shape, given: dict[str, Any], told: Told) -> Asked:
    draws = check_n(given["n"], told)
    tensors = {name: given[name] for name in _PARAMETERS if isinstance(given[name], Tensor)}
    for name, value in tensors.items():
        _check(_PARAMETERS[name], value, shape.n_rows)
    plan, marked = _plan_of_host(shape, given, tensors, draws)
    bad = tensor_of(marked) if marked.any() else None
    places = {name: columns(plan, names) for name, names in _PARTS.items()}
    for part, names in _PARTS.items():
        mine = {name: tensors[name] for name in names if name in tensors}
        if mine:
            there = places[part].to(logits.device, non_blocking=True)
            places[part] = _with_tensors(there, names, mine)
            bad = _either(bad, _out_of_range(mine, given["stages"], draws), logits.device)
    adjustments, misfits = _adjustments(logits, shape, given, plan)
    bad = _either(bad, misfits, logits.device)
    bad = None if bad is None else bad.expand(shape.n_rows)
    return Asked(
        logits if logits.ndim == 2 else logits[None],
        shape.vocabulary,
        places["reals"],
        places["wholes"],
        places["place"],
        bad,
        adjustments,
        int(plan["stages"][0]) if shape.n_rows else 0,
        draws,
        tuple(FORMS.index(form) for form in told.forms),
        told.logprobs or 0,
    )


_PARTS = {"reals": REALS, "wholes": WHOLES, "place": PLACE}


def _check(parameter: Parameter, value: Tensor, n_rows: int) -> None:
    """Check what can be seen of a tensor of numbers without looking at them."""
    real = isinstance(parameter, checks.Real)
    if value.dtype == torch.bool or value.is_complex() or (value.is_floating_point() and not real):
        raise parameter.wrong_kind(f"a tensor of {value.dtype}")
    if value.shape not in ((), (n_rows,)):
        raise ValueError(
            f"`{parameter.name}` must be a scalar or have shape (B,) = ({n_rows},), got "
            f"{tuple(value.shape)} (one value per row of `logits`)"
        )


def _plan_of_host(
    shape: _Shape, given: dict[str, Any], tensors: dict[str, Tensor], draws: int
) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Check what the host has: a plan, and the rows with a number out of range."""
    marked = np.zeros(shape.n_rows, np.bool_)
    standing: dict[str, Any] = {name: _STANDING[name] for name in tensors}
    if "seed" in tensors and tensors["seed"].ndim:
        standing["seed"] = np.zeros(shape.n_rows, np.uint64)
    values = {**{name: given[name] for name in _OF_PLAN}, **standing}
    seed, position, stream = (values.pop(name) for name in PLACE)
    seed, position, stream = place_draw(shape.n_rows, seed, position, stream, marked)
    plan = make_plan(
        shape.n_rows,
        **values,
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


def _with_tensors(table: Tensor, names: tuple[str, ...], given: dict[str, Tensor]) -> Tensor:
    """Lay tensors over some columns of a table."""
    parts = list(table.unbind(1))
    for name, value in given.items():
        if value.dtype == torch.float32:
            value = exact(value)
        elif value.dtype == torch.uint64:
            value = value.view(torch.int64)
        value = value.to(table.device, non_blocking=True).to(table.dtype)
        parts[names.index(name)] = value.expand(len(table))
    return torch.stack(parts, 1)


def _out_of_range(given: dict[str, Tensor], stages: tuple[str, ...], draws: int) -> Tensor | None:
    """Find what the operator cannot: places past their ends, and filters without a stage."""
    bad = None
    for name, value in given.items():
        if name == "stream":
            found = (value < 0) | (value > 2**32 - draws)
        elif name == "position" and value.dtype != torch.uint64:
            found = value < 0
        elif name in _OFF and name not in stages:
            found = value.to(torch.float32) != _OFF[name]
            if name == "top_k":
                found = found & (value != -1)
        else:
            continue
        bad = found if bad is None else bad | found
    return bad


def _either(bad: Tensor | None, more: Tensor | None, device: torch.device) -> Tensor | None:
    if more is None:
        return bad
    more = more.to(device, non_blocking=True)
    return more if bad is None else bad.to(device, non_blocking=True) | more


# ---------------------------------------------------------------- adjustments


def _adjustments(
    logits: Tensor, shape: _Shape, given: dict[str, Any], plan: NDArray[np.void]
) -> tuple[Adjustments, Tensor | None]:
    """Lay out what adjusts the rows beside them, and find the rows that it cannot be done for."""
    device = logits.device
    parts = {name: given[name] for name in ("mask", "bias", "prompt", "output")}
    tensors = {name: value for name, value in parts.items() if _is_of_tensors(value)}
    host = {name: None if name in tensors else value for name, value in parts.items()}
    # Only the shape of the rows is looked at.
    rows = Rows(
        np.broadcast_to(np.float32(0), (shape.n_rows, shape.columns)),
        shape.tokens,
        True,
        shape.vocabulary,
    )
    some = np.arange(shape.n_rows)
    checked = adjustments_of(make_adjustments(rows, **host), some, scopes_of(plan))
    fields: dict[str, Any] = {
        name: part if part is None or name == "scopes" else part.to(device, non_blocking=True)
        for name, part in checked._asdict().items()
    }
    bad = None
    for name, value in tensors.items():
        if name == "mask":
            fields[name] = _mask(value, shape).to(device, non_blocking=True)
            continue
        if name == "bias":
            fields["bias_tokens"], fields["bias"], found = _bias(value, shape, device)
        else:
            fields[name], found = _tokens(name, value, shape, device)
        bad = found if bad is None else bad | found
    return Adjustments(**fields), bad


def _is_of_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or (
        isinstance(value, tuple) and any(isinstance(one, Tensor) for one in value)
    )


def _mask(mask: Tensor, shape: _Shape) -> Tensor:
    if mask.dtype == torch.uint32:
        mask = mask.view(torch.int32)
    if mask.dtype not in (torch.bool, torch.int32):
        raise TypeError(
            f"`mask` must be bool, or int32 with a bit per token, got {mask.dtype} "
            "(pass `mask.bool()`)"
        )
    width = shape.columns if mask.dtype == torch.bool else -(-shape.columns // 32)
    shaped = mask[None] if mask.ndim == 1 else mask
    fits = shaped.ndim == 2 and shaped.shape[0] in (1, shape.n_rows)
    if not fits or not 1 <= shaped.shape[1] <= width:
        raise ValueError(
            f"`mask` must have shape ({width},) or ({shape.n_rows}, {width}) for {mask.dtype}, got "
            f"{tuple(mask.shape)} (columns may be missing at the end, and are banned)"
        )
    return shaped


def _tokens(name: str, given: Any, shape: _Shape, device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens, one list per row or one for all, -1 for none; and the rows with one out of range."""
    whole = isinstance(given, Tensor) and not (given.is_floating_point() or given.is_complex())
    if not whole or given.dtype == torch.bool:
        raise TypeError(
            f"`{name}` must hold integers, got {getattr(given, 'dtype', type(given).__name__)} "
            "(tokens are columns of `logits`)"
        )
    shaped = given[None] if given.ndim == 1 else given
    if shaped.ndim != 2 or shaped.shape[0] not in (1, shape.n_rows):
        raise ValueError(
            f"`{name}` must have shape (B, T), B = {shape.n_rows}, where it is a tensor, got "
            f"{tuple(given.shape)} (-1 fills lists that are short)"
        )
    tokens = shaped.to(device, non_blocking=True).to(torch.int64)
    outside = (tokens < -1) | (tokens >= shape.vocabulary)
    tokens = tokens.masked_fill(outside, -1).expand(shape.n_rows, -1)
    return tokens, outside.any(1)


def _bias(bias: Any, shape: _Shape, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens and values of a bias, and the rows that it is bad for."""
    if not isinstance(bias, tuple) or len(bias) != 2:
        raise TypeError(
            f"`bias` must be a tuple of two tensors (tokens, values), got {type(bias).__name__} "
            "(the values of each token beside it)"
        )
    tokens, bad = _tokens("bias", bias[0], shape, device)
    values = bias[1]
    if not isinstance(values, Tensor) or values.shape != bias[0].shape:
        raise ValueError(
            "`bias` must have a value for each token, got "
            f"{tuple(getattr(values, 'shape', ()))} values for {tuple(bias[0].shape)} tokens (two "
            "tensors of one shape)"
        )
    values = values.to(device, non_blocking=True).to(torch.float32).expand(tokens.shape)
    there = tokens >= 0
    bad = bad | (there & ~(values < torch.inf)).any(1)
    ascending = tokens.sort(1).values
    twice = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
    return tokens, values, bad | twice.any(1)


# ---------------------------------------------------------------- what comes back


def _result(answer: Answer, shape: _Shape, given: dict[str, Any], told: Told) -> SampleResult:
    n, out, seed = given["n"], given["out"], given["seed"]
    tokens = answer.tokens.reshape(shape.tokens if n is None else (*shape.tokens, n))
    if out is not None:
        tokens = _written(out, tokens)
    kept_count, status = (part.reshape(shape.tokens) for part in (answer.kept_count, answer.status))
    if told.logprobs is None:
        return SampleResult(tokens, None, None, None, None, kept_count, status, seed)
    some = (len(told.forms), *shape.tokens) if told.by_form else shape.tokens
    many = (*some, told.logprobs)
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
