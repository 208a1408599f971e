"""Results of public functions, in the array type of the caller, and errors for invalid rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import LogprobRequest, SampleOutput, SampleRequest
from fastsample.engines.reference import rows as reference_rows
from fastsample.engines.reference.logits_processors import adjusted_row
from fastsample.inputs.arrays import memory_of
from fastsample.inputs.logits import Rows


class Status(IntEnum):
    """The status of a row: the values of `SampleResult.status`.

    Attributes
    ----------
    OK
        0: a token was drawn.
    INVALID
        1: a logit is NaN or +inf after mask, bias and penalties.
    EMPTY
        2: every logit is -inf after mask, bias and penalties.
    BAD_PARAM
        3: a parameter of the row, a token of its history or of its own `logprob_tokens`, or its own
        bias is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> rows = np.array([[1.0, 2.0], [np.nan, 0.0]], dtype=np.float32)
    >>> result = fastsample.sample(rows, temperature=0, on_invalid="mark")
    >>> result.tokens, result.status == fastsample.Status.INVALID
    (array([ 1, -1]), array([False,  True]))
    """

    OK = reference_rows.OK
    INVALID = reference_rows.INVALID
    EMPTY = reference_rows.EMPTY
    BAD_PARAM = 3


@dataclass(slots=True, eq=False)
class SampleResult:
    """The result of `sample`: arrays, or tensors for torch logits.

    S is ``logits.shape[:-1]``: () for logits of shape (V,), or (B,). D is S for one draw of each
    row, and S + (n,) for n draws. With ``logprobs_mode`` a tuple of F modes, the six arrays of
    log-probabilities have a leading axis F, in that order.

    Attributes
    ----------
    tokens : int64 of shape D
        -1 in a row whose status is not OK, and with ``replacement=False`` and invalid rows marked
        after the last token that a row has.
    logprobs : float64 of shape D, or None
        The natural log-probability of the token; nan in an invalid row. In the mode "raw" it is nan
        too, with rank 0 and top tokens -1, if the row is invalid before the mask. None, as the
        three next, without ``logprobs``.
    ranks : int64 of shape D, or None
        The rank of the token, from 1: by descending logit, ties by ascending token. 0 in an invalid
        row.
    top_tokens : int64 of shape S + (N,), or None
        The first N = ``logprobs`` tokens by rank; -1 in an invalid row.
    top_logprobs : float64 of shape S + (N,), or None
        Their log-probabilities; nan in an invalid row.
    token_logprobs : float64 of shape S + (K,), or None
        The log-probabilities of the K tokens of ``logprob_tokens``, in their order: the same as
        ``logprobs`` and ``top_logprobs`` have for these tokens, -inf where a token cannot be drawn.
        nan where it is -1, and in an invalid row. None without ``logprob_tokens``.
    token_ranks : int64 of shape S + (K,), or None
        Their ranks; 0 where the log-probability is nan.
    kept_count : int64 of shape S, or None
        With ``kept_count=True`` the number of tokens that mask and filters keep; 0 in an invalid
        row.
    margin : float64 of shape D, or None
        With ``margin=True`` how far the natural logarithm of one token's mass may move at least
        before another token is drawn: section 6 of the rule. inf where one token is kept, nan in an
        invalid row and where the inverse method drew. At temperature 0 it is the difference of the
        two largest logits.
    status : uint8 of shape S
        A `Status` per row; all 0 unless invalid rows are marked.
    seed : int or uint64 array of shape (B,)
        The seed in use, also if it was fresh. Seeds per row are a copy, meaningless in a row of
        status BAD_PARAM; for tensors on a device they are those of the call. After a call without a
        seed, ``sample(logits, seed=result.seed, position=0, stream="row", ...)`` with the same
        parameters draws the same tokens.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([4.0, 2.0, 1.0], dtype=np.float32)
    >>> first = fastsample.sample(logits)
    >>> again = fastsample.sample(logits, seed=first.seed, position=0, stream="row")
    >>> bool(again.tokens == first.tokens)
    True
    """

    tokens: Any
    logprobs: Any
    ranks: Any
    top_tokens: Any
    top_logprobs: Any
    token_logprobs: Any
    token_ranks: Any
    kept_count: Any
    margin: Any
    status: Any
    seed: Any

    def to_openai(self, decode: Callable[[int], str | bytes], *, mode: int | None = None) -> Any:
        """Return the log-probabilities as OpenAI's API for chat completions has them.

        Parameters
        ----------
        decode : callable
            Returns the str or the bytes of a token: of a tokenizer whose tokens can be parts of
            characters, bytes.
        mode : int, optional
            Required with ``logprobs_mode`` a tuple: which of its modes, from 0.

        Returns
        -------
        dict, or list of dict
            In lists for each axis of `tokens`, an object for each draw: the ``logprobs`` of a
            choice of one token, or of a chunk of a stream. The ``content`` of a longer text is that
            of its tokens, in one list. All is plain Python, which
            ``json.dumps(..., allow_nan=False)`` takes. A log-probability below -9999.0, such as
            -inf, is -9999.0, which in this API means very unlikely. A lone surrogate in
            a str becomes the replacement character (U+FFFD), as UTF-8 has none; with that character
            ``bytes`` is None. None instead of an object
            where there are no log-probabilities: for a row that is marked, and in the mode "raw"
            for one that is invalid before the mask.

        Raises
        ------
        TypeError, ValueError
            A result without `logprobs`, a `decode` that returns something else, no such mode.

        Examples
        --------
        >>> import numpy as np
        >>> import fastsample
        >>> logits = np.array([1.0, -np.inf], dtype=np.float32)
        >>> result = fastsample.sample(logits, temperature=0, logprobs=2)
        >>> (entry,) = result.to_openai([b"yes", b"no"].__getitem__)["content"]
        >>> entry["token"], entry["logprob"], entry["bytes"]
        ('yes', 0.0, [121, 101, 115])
        >>> entry["top_logprobs"][1]
        {'token': 'no', 'logprob': -9999.0, 'bytes': [110, 111]}
        """
        from .openai_logprobs import openai_logprobs  # not loaded before it is needed

        return openai_logprobs(self, decode, mode)


def require_valid_rows(
    request: SampleRequest, status: NDArray[np.uint8], shape: tuple[int, ...]
) -> None:
    """Raise for the first row of a request whose status is not OK; `shape` as of `Rows`."""
    if not np.count_nonzero(status):
        return
    row = int(np.flatnonzero(status)[0])
    name = _name_of_row(row, shape)
    after = "" if request.processors is None else " after mask, bias and penalties"
    if status[row] == Status.EMPTY:
        raise ValueError(f"{name} is -inf at every token{after} (leave at least one token to draw)")
    logits = adjusted_row(request, row)
    tokens = np.flatnonzero(np.isnan(logits) | (logits == np.inf))
    if not len(tokens):
        raise written_during_call(name)
    token = int(tokens[0])
    raise ValueError(
        f"{name} holds {logits[token]} at token {token}{after} (a logit must be finite, or -inf to "
        "ban its token; look for an overflow in what made the row)"
    )


def require_enough_tokens(tokens: NDArray[np.int64], shape: tuple[int, ...]) -> None:
    """Raise for the first row that has fewer tokens than draws without replacement."""
    short = np.flatnonzero(tokens[:, -1] < 0)
    if not len(short):
        return
    row, n = int(short[0]), tokens.shape[1]
    raise ValueError(
        f"{_name_of_row(row, shape)} must have n = {n} tokens to draw without replacement, got "
        f"{np.count_nonzero(tokens[row] >= 0)} (a smaller n, wider filters, or at temperature 0 a "
        'larger one; on_invalid="mark" puts -1 in the place of the others)'
    )


def _name_of_row(row: int, shape: tuple[int, ...]) -> str:
    return f"`logits` row {row}" if shape else "`logits`"


def find_margins(
    request: SampleRequest, status: NDArray[np.uint8], draws: int = 1
) -> NDArray[np.float64]:
    """Compute the margins of each row's draws by the reference, whatever engine has drawn."""
    from fastsample.engines.reference.engine import margins  # not loaded before it is needed

    return margins(request, status, draws)


def written_during_call(name: str) -> ValueError:
    """Make the error for logits that have changed between two reads of one call."""
    return ValueError(
        f"{name} changed while the call was reading it (keep other threads from writing the logits "
        "until the call returns)"
    )


def check_out(
    out: Any, shape: tuple[int, ...], *, torch: bool, dtype: str = "int64"
) -> NDArray[Any]:
    """Check `out`, and return its memory as an array.

    It must be of the type of the logits, a NumPy array or a torch CPU tensor, have the dtype and
    the shape of the result, be writable, and not overlap itself.
    """
    kind: type[Any] = sys.modules["torch"].Tensor if torch else np.ndarray
    if not isinstance(out, kind):
        raise TypeError(
            f"`out` must be a {kind.__module__}.{kind.__qualname__} as `logits` is, got "
            f"{type(out).__name__} (leave it out to get a new one)"
        )
    device = str(out.device) if torch else "cpu"
    # str() of a NumPy dtype takes microseconds.
    fits = str(out.dtype) == f"torch.{dtype}" if torch else out.dtype == np.dtype(dtype)
    if device != "cpu" or not fits:
        raise TypeError(
            f"`out` must be {dtype} on the CPU, got {out.dtype} on {device} "
            "(leave it out to get a new one)"
        )
    memory = memory_of(out)
    if memory.shape != shape:
        raise ValueError(
            f"`out` must have the shape of the result, {shape}, got {memory.shape} "
            "(leave it out to get a new one)"
        )
    if not memory.flags.writeable:
        raise ValueError("`out` must be writable, got a read-only array (pass a copy)")
    if _overlaps_itself(memory):
        raise ValueError(
            "`out` must have memory of its own for each element, got strides of "
            f"{memory.strides} bytes for the shape {shape} (leave it out to get a new one)"
        )
    return memory


def _overlaps_itself(memory: NDArray[Any]) -> bool:
    """Return whether elements share memory, as in a broadcast array or an expanded tensor."""
    extent = memory.itemsize
    for stride, size in sorted(zip(map(abs, memory.strides), memory.shape, strict=True)):
        if size > 1 and stride < extent:
            return memory.size > 0
        extent += stride * (size - 1)
    return False


def as_caller_array(array: Any, *, torch: bool) -> Any:
    """Return an array as a tensor for the caller of torch logits; tensors stay as they are."""
    is_array = torch and isinstance(array, np.ndarray)
    return sys.modules["torch"].from_numpy(array) if is_array else array


def make_result(
    output: SampleOutput,
    rows: Rows,
    seed: Any,
    tokens: Any,
    logprob_request: LogprobRequest | None = None,
    margin: NDArray[np.float64] | None = None,
) -> SampleResult:
    """Return what an engine has written in the shapes and the array type of the caller.

    `tokens` are as the caller gets them. `margin` is of shape (B, draws).
    """
    of_draws: list[Any] = [None] * 2
    of_top, of_tokens = [*of_draws], [*of_draws]
    draws = tuple(tokens.shape[len(rows.shape) :])
    if logprob_request is not None and output.logprobs is not None:
        modes, *arrays = output.logprobs
        leading = (len(modes), *rows.shape) if logprob_request.has_mode_axis else rows.shape
        shaped = [array.reshape((*leading, *array.shape[2:])) for array in arrays]
        if logprob_request.top_count is not None:
            of_draws = [array.reshape((*leading, *draws)) for array in shaped[:2]]
            of_top = shaped[2:4]
        if logprob_request.tokens is not None:
            of_tokens = shaped[4:]
    margin = None if margin is None else margin.reshape((*rows.shape, *draws))
    kept_count, status = output.kept_count, output.status.reshape(rows.shape)
    kept_count = None if kept_count is None else kept_count.reshape(rows.shape)
    results = [*of_draws, *of_top, *of_tokens, kept_count, margin, status]
    return SampleResult(*[tokens, *(as_caller_array(x, torch=rows.torch) for x in results), seed])
