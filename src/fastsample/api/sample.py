"""`sample`: draw tokens from logits, without state."""

from __future__ import annotations

from functools import lru_cache
from operator import is_
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastsample.engines import TENSOR_ENGINES, require_name
from fastsample.engines.contract import Draw, SampleOutput, SampleRequest
from fastsample.engines.execution import Execution
from fastsample.engines.plan import CHOICES, make_plan, uniform_plan
from fastsample.inputs.logits import MAX_VOCABULARY, as_rows, memory_of_logits, take_steps
from fastsample.inputs.logits_processors import make_logits_processors
from fastsample.inputs.logprob_tokens import parse_logprob_tokens
from fastsample.inputs.mask import is_short_allowed
from fastsample.params.foreign import is_tensor
from fastsample.params.ignored_tokens import parse_ignored
from fastsample.params.parameters import resolve_rng_position
from fastsample.params.table import STAGES
from fastsample.params.validation import check_reduction

from .arguments import (
    invalid_mask,
    parse_draws,
    parse_flag,
    parse_logprobs,
    parse_replacement,
)
from .result import (
    SampleResult,
    Status,
    as_caller_array,
    check_out,
    find_margins,
    make_result,
    require_enough_tokens,
    require_valid_rows,
)


def sample(
    logits: Any,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike | None = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    typical_p: ArrayLike = 1.0,
    epsilon_cutoff: ArrayLike = 0.0,
    top_n_sigma: ArrayLike = 0.0,
    top_a: ArrayLike = 0.0,
    seed: ArrayLike | None = None,
    position: ArrayLike | None = None,
    stream: ArrayLike | None = None,
    n: int | None = None,
    replacement: bool = True,
    at: Any = None,
    mask: Any = None,
    short_mask: str = "raise",
    bias: Any = None,
    prompt: Any = None,
    output: Any = None,
    repetition_penalty: ArrayLike = 1.0,
    frequency_penalty: ArrayLike = 0.0,
    presence_penalty: ArrayLike = 0.0,
    repetition_scope: str | int = "all",
    frequency_scope: str | int = "output",
    presence_scope: str | int = "output",
    ignore_tokens: Any = (),
    min_keep: ArrayLike = 1,
    stages: tuple[str, ...] = STAGES,
    draw: str | None = None,
    valid_vocab: int | None = None,
    logprobs: int | None = None,
    logprobs_mode: str | tuple[str, ...] = "raw",
    logprob_tokens: Any = None,
    kept_count: bool = False,
    margin: bool = False,
    on_invalid: str = "raise",
    reduction: str = "exact",
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
    out: Any = None,
) -> SampleResult:
    """Draw a token for each row of logits. The same arguments give the same tokens.

    Parameters
    ----------
    logits : array of shape (V,), (B, V), or with `at` (B, T, V), float32, float16 or bfloat16
        A NumPy array (bfloat16 of the package ml_dtypes), a torch tensor, or an object with
        ``__dlpack__``, with any strides and alignment. Read in place and never modified. Logits are
        on the CPU; torch tensors may be on another device, where the tokens then are: see
        docs/gpu.md.
    temperature, top_k, top_p, min_p : scalar, or one per row, shape (B,)
    typical_p, epsilon_cutoff, top_n_sigma, top_a : scalar, or one per row, shape (B,)
        As in `SamplingParams`.
    seed : int or one per row, optional
        In [0, 2**64); int64 of NumPy and torch is read as 64 bits. None draws a fresh seed from the
        system; it is in the result.
    position : int or one per row
        In [0, 2**64): the number of tokens drawn for this sequence so far, without the prompt; 0
        for the first. Any number works that is used once for each (seed, stream). Required with a
        `seed`; 0 by default without one.
    stream : int, one per row, or "row"
        In [0, 2**32): the continuation of the seed. "row" gives row b the stream b. Required with
        one seed for more than one row. The default is "row" without a seed, else 0.
    n : int, optional
        Draw n tokens from each row, on the streams ``stream`` to ``stream + n - 1``; with "row",
        row b starts at stream ``b * n``. Tokens, their log-probabilities, ranks and margins get a
        last axis of length n.
    replacement : bool
        False draws n distinct tokens from each row, on one stream: those that arrive first in the
        race, in their order. Each is drawn in proportion to the probabilities of those that are
        left. The first is that of ``n=1``. A row with fewer tokens to draw is an error, or where
        invalid rows are marked has -1 for the others. Needs `n`, and draws by race in "exact".
    at : int, or one per row, optional
        Which of T steps to take of logits of shape (B, T, V): row b is ``logits[b, at[b]]``.
        Negative ones count from the end. ``at=-1`` is the last step; where sequences are padded on
        the right, one per row is the last token of each.
    mask : bool array of shape (B, V), or int32 or uint32 array of shape (B, ceil(V / 32)), optional
        The allowed tokens: True, or bit ``t % 32`` of word ``t // 32`` as in xgrammar and
        llguidance. Tokens past the last word are banned. Without the axis B, or with B = 1, the
        mask applies to all rows. Or a list with a mask without that axis, or None, for each row.
    short_mask : {"raise", "ban"}
        What a bool mask with fewer columns than tokens is: an error, or a mask that bans the tokens
        past its end.
    bias : dict, list of pairs, list of B dicts (or None), or tuple (tokens, values), optional
        Added to logits: ``{token: value}``, pairs ``(token, value)`` or two arrays for all rows, or
        a dict per row. Values are rounded to float32, and must be finite or -inf. Keys may be
        strings of digits, as in JSON.
    prompt, output : list of tokens, or list of B such lists, or integer array (B, T), optional
        The history that the penalties count. Without one, penalties do nothing.
    repetition_penalty, frequency_penalty, presence_penalty : scalar, or one per row, shape (B,)
        As in `SamplingParams`.
    repetition_scope, frequency_scope, presence_scope : {"all", "prompt", "output"} or int
    ignore_tokens : tokens, "outside", or a list of both
        As in `SamplingParams`; the same for all rows.
    min_keep : int, or one per row, shape (B,)
        As in `SamplingParams`.
    stages : tuple of str
        As in `SamplingParams`; the same for all rows.
    draw : {None, "race", "inverse"}
        As in `SamplingParams`; the same for all rows.
    valid_vocab : int, optional
        The number of columns that are tokens. Columns from this one on are padding and not read.
    logprobs : int, optional
        Return log-probabilities of the drawn token and of this many top tokens, which may be 0.
    logprobs_mode : {"raw", "tempered", "processed"} or tuple of these
        The distribution of the log-probabilities: the softmax of the unmodified logits; that of the
        logits after mask, bias and penalties, at the temperature; or the one that the token is
        drawn from, after the filters. With a tuple, results have an axis of its length.
    logprob_tokens : list of K tokens, list of B such lists (or None), or integer array, optional
        Return log-probabilities and ranks of these tokens, with or without `logprobs`: the same K
        for all rows, or those of each row. Of an array the shape is (K,) or (B, K). -1 is no token;
        lists that are shorter than others are filled with it.
    kept_count : bool
        Whether to return how many tokens are kept. A draw often need not know it: counting them
        takes another pass over the row.
    margin : bool
        Whether to return how far logits may move before another token is drawn: see `SampleResult`.
        Each is found in NumPy, in 7 to 31 ms for V = 151,936: docs/api.md has the command. Excludes
        tensors on another device.
    on_invalid : {"raise", "mark"}
        How to report an invalid row: one that after mask, bias and penalties contains NaN or +inf,
        or only -inf, or that has a parameter, a token of its history or one of `logprob_tokens`, or
        its own bias out of range.
        "raise": ValueError for the first. "mark": the row gets token -1 and a `Status`, and the
        other rows are drawn. Rows of a tensor on another device are always marked.
    reduction : {"exact", "fixed", "fast"}
        How masses are summed. "exact": as integers. "fixed": as float32 in one order, the same on
        every machine; its tokens can differ from those of "exact". "fast": as float32 in the order
        that is fastest here; its tokens may depend on the machine and on `n_threads`.
    engine : {None, "auto", "native", "numba", "reference", "torch", "triton"}
        None and "auto" use the first of native, numba and reference that is installed, and "torch"
        for tensors on another device. "triton" draws from tensors on a CUDA device: see
        docs/gpu.md. All engines return the same tokens, unless `reduction` is "fast".
    isa : str, optional
        An instruction set of ``info()["isa_usable"]``. None uses that of the environment variable
        FASTSAMPLE_ISA, or the best one.
    n_threads : int, optional
        At least 1, and at most ``info()["threads"]`` are used; None chooses by the size of the
        batch.
    out : int64 array, or torch.int64 tensor on the device of the logits, optional
        Of the shape of the tokens. Written only if the call succeeds; it is then the result's
        `tokens`.

    Returns
    -------
    SampleResult
        Arrays, or tensors for a tensor, on its device. `tokens` is int64 of shape
        ``logits.shape[:-1]``; with `at` (B,).

    Raises
    ------
    TypeError
        An argument of the wrong type or dtype.
    ValueError
        A value out of range, a shape that does not fit, a token outside of the vocabulary, or an
        invalid row with ``on_invalid="raise"``. Nothing is written then.
    RuntimeError
        An engine or instruction set that this machine lacks.

    Notes
    -----
    docs/rule.md specifies every step. A token depends on its row, its parameters, and random
    numbers of Philox4x32-10 with the key `seed` and counters that begin with (position, stream);
    not on the other rows, the engine, the instruction set or the number of threads.
    ``info()["rule_version"]`` is the version of the specification. Masses are integers, so that the
    order of their sums does not matter; the reduction "fixed" defines an order of float32 sums
    instead.

    Logits processors act in float32 in the order mask, bias, repetition, frequency, presence; a
    logit of -inf stays -inf. No row is copied for them.

    Raw log-probabilities depend on the unmodified row alone. They are nan if that row is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([4.0, 2.0, 1.0], dtype=np.float32)
    >>> [int(fastsample.sample(logits, seed=1, position=i).tokens) for i in range(8)]
    [0, 0, 0, 0, 1, 0, 0, 0]
    >>> fastsample.sample(np.stack([logits, -logits]), temperature=0).tokens
    array([0, 2])
    >>> result = fastsample.sample(logits, temperature=0, bias={0: -4.0}, logprobs=2)
    >>> int(result.tokens), round(float(result.logprobs), 3), int(result.ranks), result.top_tokens
    (1, -2.17, 2, array([0, 1]))
    >>> result = fastsample.sample(logits, temperature=0, logprob_tokens=[2, 0])
    >>> result.token_logprobs.round(3), result.token_ranks
    (array([-3.17, -0.17]), array([3, 1]))
    """
    values: tuple[Any, ...] = (  # in the order of CHOICES
        top_n_sigma,
        temperature,
        top_k,
        top_p,
        top_a,
        min_p,
        typical_p,
        epsilon_cutoff,
        repetition_penalty,
        frequency_penalty,
        presence_penalty,
        min_keep,
        repetition_scope,
        frequency_scope,
        presence_scope,
        draw,
    )
    device_engine = None
    # Straight after a model's step, looking up torch.Tensor takes microseconds.
    on_cpu = type(logits) is np.ndarray or (engine is None and getattr(logits, "is_cpu", False))
    if not on_cpu and is_tensor(logits):
        device_engine = _device_engine(logits, engine, on_invalid)
    if device_engine is None and seed is None:
        seed, position, stream = resolve_rng_position(0, seed, position, stream)
    if (
        device_engine is None
        and n is out is None
        and type(ignore_tokens) is tuple
        and not ignore_tokens
        and margin is False
        and replacement is True
    ):
        options = (engine, isa, n_threads, reduction, on_invalid, short_mask, stages)
        place = (seed, position, stream, at)
        read = (mask, bias, prompt, output, valid_vocab)
        returned = (logprobs, logprobs_mode, kept_count, logprob_tokens)
        result = _draw_prepared(logits, (*place, *read, *returned), (*options, *values))
        if result is not None:
            return result
    params = dict(zip(CHOICES, values, strict=True))
    if device_engine is not None:
        from . import device

        if at is not None:
            logits = take_steps(logits, at)
        arguments = {
            **params,
            "stages": stages,
            "seed": seed,
            "position": position,
            "stream": stream,
            "n": n,
            "replacement": replacement,
            "mask": mask,
            "short_mask": short_mask,
            "bias": bias,
            "prompt": prompt,
            "output": output,
            "ignore_tokens": ignore_tokens,
            "valid_vocab": valid_vocab,
            "logprobs": logprobs,
            "logprobs_mode": logprobs_mode,
            "logprob_tokens": logprob_tokens,
            "kept_count": kept_count,
            "margin": margin,
            "on_invalid": on_invalid,
            "reduction": reduction,
            "isa": isa,
            "n_threads": n_threads,
        }
        return device.sample(logits, device_engine, arguments, out)
    rows = as_rows(logits, valid_vocab, at)
    n_rows = len(rows.values)
    invalid = invalid_mask(on_invalid, n_rows)
    given = None
    if logprob_tokens is not None:
        given = parse_logprob_tokens(logprob_tokens, rows, invalid)
    logprob_request = parse_logprobs(logprobs, logprobs_mode, rows.vocabulary, given)
    wants_margin = parse_flag("margin", margin)
    draws = parse_draws(n)
    replacement = parse_replacement(replacement, n, rows.vocabulary, wants_margin)
    shape = rows.shape if n is None else (*rows.shape, draws)
    out_memory = None if out is None else check_out(out, shape, torch=rows.torch)
    mode = check_reduction(reduction)
    seed, position, stream = resolve_rng_position(n_rows, seed, position, stream, invalid)
    plan = make_plan(
        n_rows,
        **params,
        stages=stages,
        seed=seed,
        position=position,
        stream=stream,
        draws=draws if replacement else 1,
        bad=invalid,
    )
    processors = make_logits_processors(
        rows,
        mask=mask,
        bias=bias,
        prompt=prompt,
        output=output,
        allow_short_mask=is_short_allowed(short_mask),
        ignored=parse_ignored(ignore_tokens),
        bad=invalid,
    )
    request = SampleRequest(
        rows.values, rows.vocabulary, plan, processors, mode, given, replacement
    )
    counts = parse_flag("kept_count", kept_count)
    buffers = SampleOutput.empty(n_rows, draws=draws, kept_count=counts, logprobs=logprob_request)
    if invalid is not None:
        buffers.status[invalid] = Status.BAD_PARAM
        if isinstance(seed, np.ndarray):
            seed[invalid] = 0
    Execution.of(engine, isa, n_threads).sample(request, buffers)
    if invalid is None:
        require_valid_rows(request, buffers.status, rows.shape)
        if not replacement:
            require_enough_tokens(buffers.tokens, rows.shape)
    if out_memory is None:
        tokens = as_caller_array(buffers.tokens.reshape(shape), torch=rows.torch)
    else:
        out_memory[...] = buffers.tokens.reshape(shape)
        tokens = out
    margins = find_margins(request, buffers.status, draws) if wants_margin else None
    return make_result(buffers, rows, seed, tokens, logprob_request, margins)


_last: tuple[tuple[Any, ...], Draw | None] = (object(),), None
"""The settings of the last call that a prepared one did, and the latter."""


def _draw_prepared(
    logits: Any, arguments: tuple[Any, ...], settings: tuple[Any, ...]
) -> SampleResult | None:
    """Do a call by a prepared one; None where there is none that serves it."""
    global _last
    last, draw = _last
    # The same objects are the same settings, which need no hash: it would fetch each of them.
    if not all(map(is_, settings, last)):
        try:
            draw = _prepare(*settings)
        except (TypeError, ValueError, RuntimeError):
            return None  # the general path reports the error
        _last = settings, draw
    if draw is None:
        return None
    result: SampleResult | None = draw(logits, *arguments)
    if result is None:
        memory, torch = memory_of_logits(logits)
        if memory is not logits:
            result = draw(*(memory, *arguments, True, torch))
    return result


def _device_engine(tensor: Any, engine: Any, on_invalid: Any) -> str | None:
    """Return the engine that samples a tensor on its device; None if it is read on the CPU.

    On its device an invalid row is never an error, so for a tensor on the CPU it must be marked.
    """
    require_name("engine", engine)
    if engine in TENSOR_ENGINES:
        is_marked = isinstance(on_invalid, str) and on_invalid == "mark"
        return str(engine) if is_marked or not tensor.is_cpu else None
    return "torch" if engine in (None, "auto") and not tensor.is_cpu else None


@lru_cache(maxsize=256, typed=True)
def _prepare(
    engine: Any,
    isa: Any,
    n_threads: Any,
    reduction: Any,
    on_invalid: Any,
    short_mask: Any,
    stages: Any,
    *values: Any,
) -> Draw | None:
    """Check the parameters and let the engine prepare calls with them; None if it cannot."""
    execution = Execution.of(engine, isa, n_threads)
    make_draw = execution.engine.make_draw
    invalid = invalid_mask(on_invalid, 0)
    is_short_allowed(short_mask)
    plan = uniform_plan(stages, dict(zip(CHOICES, values, strict=True)))
    if make_draw is None or plan is None or invalid is not None:
        return None
    mode = check_reduction(reduction)
    execution.settle(plan, mode)
    return make_draw(plan, MAX_VOCABULARY, SampleResult, isa, execution.n_threads or 0, mode)
