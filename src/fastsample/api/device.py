"""`sample` for tensors of torch that stay on their device: no value is read back from it.

Values that the host has are checked as in other calls. Values of tensors are checked on their
device: a row with a bad one is marked.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsample.engines import require_stages, resolve, settle_draws
from fastsample.engines.contract import (
    LogitsProcessors,
    LogprobRequest,
    LogprobResult,
    SampleOutput,
)
from fastsample.engines.plan import CHOICES, make_plan
from fastsample.engines.torch.batch import TensorOutput, TensorRequest
from fastsample.engines.torch.engine import require_exact
from fastsample.engines.torch.from_numpy import (
    method_of,
    numbers_of,
    ops_of,
    processors_of,
    rng_position_of,
    scopes_of,
    tensor_of,
)
from fastsample.engines.torch.logprobs import NO_LOGPROBS, LogprobTokens
from fastsample.engines.torch.operator import call
from fastsample.engines.torch.penalties import TensorProcessors
from fastsample.engines.torch.prepare_params import FIXED
from fastsample.inputs.logits import Rows
from fastsample.inputs.logits_processors import make_logits_processors
from fastsample.inputs.logprob_tokens import NAME, parse_logprob_tokens
from fastsample.inputs.mask import is_short_allowed
from fastsample.inputs.torch import (
    as_tensor_rows,
    check_bias,
    check_mask,
    check_numbers,
    check_range,
    check_tokens,
    has_tensors,
)
from fastsample.params.ignored_tokens import IgnoredTokens, parse_ignored
from fastsample.params.parameters import resolve_rng_position
from fastsample.params.stages import on_value
from fastsample.params.table import BY_NAME, RNG_POSITION, STAGES, THREADS
from fastsample.params.validation import Parameter, check_reduction, per_row

from .arguments import invalid_mask, parse_draws, parse_flag, parse_logprobs, parse_replacement
from .result import SampleResult, make_result

_PARAMETERS = {name: BY_NAME[name] for name in BY_NAME if BY_NAME[name].per_row}
_RNG_POSITION = tuple(parameter.name for parameter in RNG_POSITION)
_CPU = torch.device("cpu")


def sample(logits: Tensor, engine: str, arguments: dict[str, Any], out: Any) -> SampleResult:
    """Draw a token for each row, on the device of the logits.

    Parameters
    ----------
    logits : tensor of shape (V,) or (B, V), float32, float16 or bfloat16
    engine : str
    arguments : dict
        Those of `sample` but for the engine and `out`. Bad rows are marked whatever ``on_invalid``
        is.
    out : tensor or None

    Returns
    -------
    SampleResult
        Of tensors on that device; the seed as it was given.
    """
    rows = as_tensor_rows(logits, arguments["valid_vocab"])
    wanted = parse_logprobs(
        arguments["logprobs"], arguments["logprobs_mode"], rows.vocabulary, arguments[NAME]
    )
    if parse_flag("margin", arguments["margin"]):
        way_out = "leave `engine` out" if logits.is_cpu else "pass `logits.cpu()`"
        raise ValueError(f"`margin` must be False for a tensor on its device, got True ({way_out})")
    counts = parse_flag("kept_count", arguments["kept_count"])
    if arguments["seed"] is None:
        if torch.compiler.is_compiling():
            raise ValueError(
                "`seed` must be given in compiled code, got None (an integer or a tensor; a fresh "
                "seed would be the same in every call)"
            )
        fresh = resolve_rng_position(0, *(arguments[name] for name in _RNG_POSITION))
        arguments = {**arguments, **dict(zip(_RNG_POSITION, fresh, strict=True))}
    found = TensorOutput(*_output(logits, engine, arguments))
    n = arguments["n"]
    tokens = found.tokens.reshape(rows.shape if n is None else (*rows.shape, n))
    if out is not None:
        tokens = _written(out, tokens)
    logprobs = LogprobResult(wanted.modes, *found[3:]) if wanted else None
    kept_count = found.kept_count if counts else None
    output = SampleOutput(found.tokens, found.status, kept_count, logprobs)
    return make_result(output, rows, arguments["seed"], tokens, wanted)


def _output(logits: Tensor, engine: str, arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    if torch.compiler.is_compiling():
        arguments = _without_symbols(arguments)
    resolve(engine, arguments["isa"])
    require_exact(check_reduction(arguments["reduction"]))
    invalid_mask(arguments["on_invalid"], 0)
    THREADS.optional(arguments["n_threads"])
    return tuple(call(_request(logits, engine, arguments), engine))


# Values of the host are read once, when a graph is made; dynamo need not trace how.
torch.compiler.allow_in_graph(_output)


def _without_symbols(value: Any, name: str = "") -> Any:
    """Replace the symbols of a graph that is being made.

    A parameter becomes a tensor, so that the graph serves other values too; symbols inside of other
    values become constants of this graph.
    """
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        is_int = isinstance(value, torch.SymInt)
        if name in _PARAMETERS:
            dtype = torch.int64 if is_int else torch.float64
            return torch.full((), value, dtype=dtype, device="cpu")
        return int(value) if is_int else float(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_without_symbols, value))
    if isinstance(value, dict):
        return {key: _without_symbols(one, key) for key, one in value.items()}
    return value


# ---------------------------------------------------------------- the request


def _request(logits: Tensor, engine: str, arguments: dict[str, Any]) -> TensorRequest:
    rows = as_tensor_rows(logits, arguments["valid_vocab"])
    n_rows, device = rows.values.shape[0], rows.values.device
    draws, stages = parse_draws(arguments["n"]), arguments["stages"]
    values = {name: arguments[name] for name in (*CHOICES, *_RNG_POSITION)}
    tensors = {name: values[name] for name in _PARAMETERS if isinstance(values[name], Tensor)}
    for name, value in tensors.items():
        check_numbers(_PARAMETERS[name], value, n_rows, device)
    plan, marked = _host_plan(n_rows, values, tensors, stages, draws)
    require_stages(engine, plan)
    replacement = parse_replacement(
        arguments["replacement"], arguments["n"], rows.vocabulary, margin=False
    )
    settle_draws(engine, plan, arguments["reduction"], replacement)
    bad = [tensor_of(marked)] if marked.any() else []
    for name, value in tensors.items():
        tensors[name], found = check_range(_PARAMETERS[name], value, stages, draws)
        bad += [] if found is None else [found]
    fields = {name: arguments[name] for name in LogitsProcessors._fields}
    allow_short = is_short_allowed(arguments["short_mask"])
    ignored = parse_ignored(arguments["ignore_tokens"])
    processors, found = _processors(rows, fields, scopes_of(plan), allow_short, ignored)
    bad += found
    given, found = _given(rows, arguments[NAME])
    bad += found
    wanted = parse_logprobs(
        arguments["logprobs"], arguments["logprobs_mode"], rows.vocabulary, given
    )
    chain = tuple(STAGES[code - 1] for codes in plan["stages"][:1].tolist() for code in codes)
    names, host = (*FIXED, *chain), numbers_of(plan)
    numbers = _columns(names, host, tensors, n_rows, device)
    host_numbers = None
    if not numbers.is_cpu:
        known = {name: value for name, value in tensors.items() if value.is_cpu}
        host[:, [name in tensors and name not in known for name in names]] = np.nan
        host_numbers = _columns(names, host, known, n_rows, _CPU)
    if isinstance(values["stream"], str):
        placed = [tensors[name] for name in _RNG_POSITION if name in tensors]
        tensors["stream"] = torch.arange(n_rows, device=_device_of(placed, device)) * draws
    marks = None
    if bad:
        place = _device_of(bad, device)
        marks = reduce(or_, (one.to(place, non_blocking=True) for one in bad)).expand(n_rows)
    return TensorRequest(
        rows.values,
        rows.vocabulary,
        numbers,
        host_numbers,
        _columns(_RNG_POSITION, rng_position_of(plan), tensors, n_rows, device),
        marks,
        processors,
        ops_of(plan),
        draws,
        method_of(plan),
        _logprob_tokens(wanted, draws),
    )


def _given(rows: Rows, tokens: Any) -> tuple[Tensor | None, list[Tensor]]:
    """The `logprob_tokens` on the device of the logits, and marks of rows that they are bad for."""
    if isinstance(tokens, Tensor):
        given, found = check_tokens(NAME, tokens, rows)
        return given, [found]
    if tokens is None:
        return None, []
    marked = np.zeros(int(rows.values.shape[0]), np.bool_)
    array = parse_logprob_tokens(tokens, rows, marked)
    given = tensor_of(array).to(rows.values.device, non_blocking=True)
    return given, [tensor_of(marked)] if marked.any() else []


def _logprob_tokens(wanted: LogprobRequest | None, draws: int) -> LogprobTokens:
    if wanted is None:
        return NO_LOGPROBS
    is_of_draws = wanted.top_count is not None
    return LogprobTokens(
        wanted.modes, draws if is_of_draws else 0, wanted.top_count or 0, wanted.tokens
    )


def _host_plan(
    n_rows: int,
    values: dict[str, Any],
    tensors: dict[str, Tensor],
    stages: tuple[str, ...],
    draws: int,
) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
    """Check what the host has: a plan, and the rows with a number out of range.

    The plan has one row where the host's numbers are the same in all. In the place of a tensor it
    has a number that is on, so that its stage is in the chain.
    """
    host = {**values, **{name: _stand_in(_PARAMETERS[name], stages) for name in tensors}}
    many = any(per_row(host[name]) for name in _PARAMETERS)
    n_planned = int(n_rows) if many else 1
    if "seed" in tensors and tensors["seed"].ndim:
        host["seed"] = [0] * n_planned
    marked = np.zeros(n_planned, np.bool_)
    seed, position, stream = (host.pop(name) for name in _RNG_POSITION)
    n_seeds = n_planned if per_row(seed) else n_rows
    seed, position, stream = resolve_rng_position(n_seeds, seed, position, stream, marked)
    plan = make_plan(
        n_planned,
        **host,
        stages=stages,
        seed=seed,
        position=position,
        stream=stream,
        draws=draws,
        bad=marked,
    )
    return plan, marked


def _stand_in(parameter: Parameter, stages: tuple[str, ...]) -> Any:
    if parameter.name in stages:
        return on_value(parameter)
    return 0 if parameter.default is None else parameter.default


def _device_of(tensors: Collection[Tensor], there: torch.device) -> torch.device:
    """The CPU if all of them are on it, else the device of the logits."""
    return _CPU if all(one.is_cpu for one in tensors) else there


def _columns(
    names: tuple[str, ...],
    host: NDArray[Any],
    tensors: dict[str, Tensor],
    n_rows: int,
    there: torch.device,
) -> Tensor:
    """Stack columns of numbers: those of the host, of shape (B or 1, C), replaced by tensors."""
    used = {name: tensors[name] for name in names if name in tensors}
    if not used:
        return tensor_of(host).expand(n_rows, -1)
    device = _device_of(used.values(), there)
    dtype = torch.float64 if host.dtype == np.float64 else torch.int64
    columns = []
    for place, name in enumerate(names):
        if name in used:
            column = used[name].to(device, dtype, non_blocking=True)
        elif len(host) == 1:
            # No copy, which a graph of a device would not take.
            column = torch.full((), host[0, place].item(), dtype=dtype, device=device)
        else:
            column = tensor_of(host[:, place]).to(device, non_blocking=True)
        columns.append(column.expand(n_rows))
    return torch.stack(columns, 1)


def _processors(
    rows: Rows,
    values: dict[str, Any],
    scopes: tuple[int, ...],
    allow_short_mask: bool,
    ignored: IgnoredTokens,
) -> tuple[TensorProcessors, list[Tensor]]:
    """The logits processors on the device of the logits, and marks of rows they are bad for."""
    device = rows.values.device
    tensors = {name: value for name, value in values.items() if has_tensors(name, value)}
    host = {name: value for name, value in values.items() if name not in tensors}
    n_rows = 0 if all(value is None for value in host.values()) else int(rows.values.shape[0])
    marked = np.zeros(n_rows, np.bool_)
    of_host = make_logits_processors(
        rows, **host, allow_short_mask=allow_short_mask, ignored=ignored, bad=marked
    )
    processors = processors_of(of_host, np.arange(n_rows), scopes)
    fields: dict[str, Any] = {
        name: part if part is None or name == "scopes" else part.to(device, non_blocking=True)
        for name, part in processors._asdict().items()
    }
    bad = [tensor_of(marked)] if marked.any() else []
    for name, value in tensors.items():
        if name == "mask":
            fields[name] = check_mask(value, rows, allow_short=allow_short_mask).to(
                device, non_blocking=True
            )
            continue
        if name == "bias":
            fields["bias_tokens"], fields["bias"], found = check_bias(value, rows)
        else:
            fields[name], found = check_tokens(name, value, rows, ignored)
        bad.append(found)
    return TensorProcessors(**fields), bad


# ---------------------------------------------------------------- the result


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
            f"`out` must have the shape of the result, {tuple(tokens.shape)}, got "
            f"{tuple(out.shape)} (leave it out to get a new one)"
        )
    return out.copy_(tokens)
