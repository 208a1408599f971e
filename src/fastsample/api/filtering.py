"""`kept_set` and `filter_logits`: the tokens that filters keep, and logits without the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastsample.engines.contract import KeptSets, SampleRequest
from fastsample.engines.execution import Execution
from fastsample.engines.plan import CHOICES, make_plan
from fastsample.inputs.arrays import dtype_of, in_type_of, minus_inf
from fastsample.inputs.logits import Rows, as_rows
from fastsample.inputs.logits_processors import LogitsProcessors, make_logits_processors
from fastsample.inputs.mask import is_short_allowed
from fastsample.params.foreign import is_tensor
from fastsample.params.ignored_tokens import parse_ignored
from fastsample.params.table import DRAW, STAGES

from .result import as_caller_array, check_out, require_valid_rows


@dataclass(frozen=True, slots=True, eq=False)
class KeptSet:
    """The result of `kept_set`: the kept sets of all rows, concatenated; tensors for torch logits.

    Attributes
    ----------
    tokens : int64 array of shape (N,)
        In each row by descending logit, ties by ascending token.
    masses : uint64 array of shape (N,), torch.int64 for torch logits
        Integer weights, 2**40 for the top token. The probability of a token is its mass divided by
        the sum over its row; a token of mass 0 is never drawn.
    logits : float32 array of shape (N,)
        After mask, bias and penalties, before the temperature.
    offsets : int64 array of shape (B + 1,)
        Row b has ``tokens[offsets[b] : offsets[b + 1]]``. Logits of shape (V,) are one row.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> rows = np.array([[1.0, 3.0, 2.0], [0.0, 0.0, -9.0]], dtype=np.float32)
    >>> kept = fastsample.kept_set(rows, top_k=2)
    >>> kept.tokens, kept.offsets
    (array([1, 2, 0, 1]), array([0, 2, 4]))
    >>> kept.probabilities.round(3)
    array([0.731, 0.269, 0.5  , 0.5  ])
    """

    tokens: Any
    masses: Any
    logits: Any
    offsets: Any

    @property
    def probabilities(self) -> Any:
        """The probability of each kept token: float64 of shape (N,), with the sum 1 per row."""
        masses, offsets = np.asarray(self.masses), np.asarray(self.offsets)
        # Every row keeps a token, so no two offsets are equal, as reduceat needs.
        totals = np.add.reduceat(masses, offsets[:-1]) if len(masses) else masses
        shares = masses / np.repeat(totals, np.diff(offsets))
        return as_caller_array(shares, torch=is_tensor(self.masses))


def kept_set(
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
    valid_vocab: int | None = None,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
) -> KeptSet:
    """Find the tokens that `sample` draws from, and their probabilities as integer masses.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`.
    temperature, top_k, top_p, min_p, min_keep : scalar, or one per row, shape (B,)
    typical_p, epsilon_cutoff, top_n_sigma, top_a : scalar, or one per row, shape (B,)
    repetition_penalty, frequency_penalty, presence_penalty : scalar, or one per row, shape (B,)
    repetition_scope, frequency_scope, presence_scope : str or int
    ignore_tokens : tokens, "outside", or a list of both
    stages : tuple of str
        As in `SamplingParams`. At temperature 0 only the top token is kept.
    mask, short_mask, bias, prompt, output, valid_vocab, engine, isa, n_threads
        As in `sample`.

    Returns
    -------
    KeptSet

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`; ValueError for an invalid row.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> row = np.log(np.array([0.5, 0.1, 0.4], dtype=np.float32))
    >>> fastsample.kept_set(row, top_p=0.8).tokens
    array([0, 2])
    """
    arguments = locals()
    rows = as_rows(logits, valid_vocab)
    sets = _filter(rows, arguments)
    if rows.torch:
        sets = sets._replace(masses=sets.masses.view(np.int64))
    return KeptSet(*(as_caller_array(array, torch=rows.torch) for array in sets))


def filter_logits(
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
    valid_vocab: int | None = None,
    out: Any = None,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
) -> Any:
    """Set the logits of all tokens outside the kept set to -inf.

    Parameters
    ----------
    logits : array of shape (V,) or (B, V)
        As in `sample`. Modified only if `out` shares its memory.
    temperature, top_k, top_p, min_p, min_keep, typical_p, epsilon_cutoff, top_n_sigma, top_a,
    repetition_penalty, frequency_penalty, presence_penalty, repetition_scope, frequency_scope,
    presence_scope, ignore_tokens, stages, mask, short_mask, bias, prompt, output, valid_vocab,
    engine, isa, n_threads
        As in `kept_set`. The temperature affects which tokens are kept; the returned logits are
        not divided by it. Columns past `valid_vocab` become -inf.
    out : array or tensor of the kind, dtype and shape of `logits`, optional
        Written only if every row is valid. It may be `logits` itself.

    Returns
    -------
    array or tensor of the kind, dtype and shape of `logits`
        `out` if given. Kept logits are unmodified; with a mask, a bias or a history they are those
        after the logits processors, rounded to the dtype. bfloat16 of DLPack objects is returned as
        uint16.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `sample`; ValueError for an invalid row, and for a logit that overflows the dtype.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> fastsample.filter_logits(np.array([1.0, 3.0, 2.0], dtype=np.float32), top_k=2)
    array([-inf,   3.,   2.], dtype=float32)
    """
    arguments = locals()
    rows = as_rows(logits, valid_vocab)
    dtype = dtype_of(logits, rows.values)
    shape = (*rows.shape, rows.values.shape[1])
    if out is None:
        memory = np.empty(shape, rows.values.dtype)
    else:
        memory = check_out(out, shape, torch=rows.torch, dtype=dtype)
    sets = _filter(rows, arguments)
    kept = indices_of(sets)
    values = rows.values[kept]
    if any(arguments[name] is not None for name in LogitsProcessors._fields):
        values = _rounded_to(values.dtype, sets, kept)
    memory[...] = minus_inf(memory.dtype)
    (memory if rows.shape else memory[None])[kept] = values
    return in_type_of(logits, memory) if out is None else out


def _filter(rows: Rows, arguments: dict[str, Any]) -> KeptSets:
    """Find kept sets with the arguments of `kept_set` or `filter_logits`, by name."""
    params = {name: arguments[name] for name in (*CHOICES, "stages") if name != DRAW.name}
    plan = make_plan(len(rows.values), **params)
    fields = {name: arguments[name] for name in LogitsProcessors._fields}
    allow_short = is_short_allowed(arguments["short_mask"])
    ignored = parse_ignored(arguments["ignore_tokens"])
    processors = make_logits_processors(
        rows, **fields, allow_short_mask=allow_short, ignored=ignored
    )
    options = [arguments[name] for name in ("engine", "isa", "n_threads")]
    return find_kept_sets(rows, plan, processors, *options)


def find_kept_sets(
    rows: Rows,
    plan: NDArray[np.void],
    processors: LogitsProcessors | None,
    engine: str | None,
    isa: str | None,
    n_threads: int | None,
) -> KeptSets:
    """Find the kept sets of rows, or raise for the first invalid row."""
    request = SampleRequest(rows.values, rows.vocabulary, plan, processors)
    sets, status = Execution.of(engine, isa, n_threads).kept_sets(request)
    require_valid_rows(request, status, rows.shape)
    return sets


def indices_of(sets: KeptSets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and the column of every kept token."""
    return np.repeat(np.arange(len(sets.offsets) - 1), np.diff(sets.offsets)), sets.tokens


def _rounded_to(
    dtype: np.dtype[Any], sets: KeptSets, indices: tuple[NDArray[np.int64], ...]
) -> NDArray[Any]:
    """Round processed logits to the dtype of the caller's, to nearest, ties to even."""
    logits = sets.logits
    if dtype == np.uint16:
        bits = logits.view(np.uint32)
        narrow = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        infinite = narrow & 0x7FFF == 0x7F80
    else:
        with np.errstate(over="ignore", under="ignore"):
            narrow = logits.astype(dtype)
        infinite = np.isinf(narrow)
    if np.any(infinite):
        first = int(np.flatnonzero(infinite)[0])
        raise ValueError(
            f"`logits` must have a dtype that holds them adjusted, got {logits[first]} for token "
            f"{indices[1][first]} of row {indices[0][first]} (pass them in float32)"
        )
    return narrow
