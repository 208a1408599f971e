"""From rows of logits to tokens and log-probabilities: the order of the steps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.engines.reference.rows import EMPTY, INVALID, OK, require_rounding_to_nearest
from fastsample.params.ops import DrawMethod

from .draw import uniform_words
from .full_vocab_path import AllTokens
from .listing import Listing, is_listed, listing_of
from .logprobs import NO_LOGPROBS, Drawn, LogprobTokens, logprobs
from .ordinal import Rows, read, rows_of
from .penalties import TensorProcessors, process
from .prepare_params import Chain, RowParams, chain_of, copy_column, prepare_params
from .race import RaceRequest, draw_by_race
from .select import KeptSet, RowTokens, select
from .topk_path import TopTokens

_BAD_PARAM = 3


class TensorRequest(NamedTuple):
    """Rows to draw from, and how.

    Attributes
    ----------
    values : float32, float16 or bfloat16 tensor of shape (B, columns)
    vocabulary : int
        How many columns are tokens.
    numbers : float64 tensor of shape (B, C)
        The columns of `prepare_params.FIXED`, then one for each stage; in range. On the CPU, or on
        the device of the values.
    host_numbers : float64 tensor of shape (B or 1, C), or None
        The same on the CPU where `numbers` are not: NaN for what only the device has.
    rng_position : int64 tensor of shape (B, 3)
        The bits of seed and position, and the stream; on the CPU or on the device of the values.
    bad : bool tensor of shape (B,), or None
        Rows that are not drawn from: a parameter is out of range.
    processors : TensorProcessors
        On the device of the values.
    ops : tuple of int
        What each stage does, by `Op`.
    draws : int
        Tokens of each row, on as many streams.
    method : DrawMethod
        How they are drawn.
    wanted : LogprobTokens
        Whose log-probabilities are computed.
    """

    values: Tensor
    vocabulary: int
    numbers: Tensor
    host_numbers: Tensor | None
    rng_position: Tensor
    bad: Tensor | None
    processors: TensorProcessors
    ops: tuple[int, ...]
    draws: int
    method: DrawMethod
    wanted: LogprobTokens = NO_LOGPROBS

    @property
    def known_numbers(self) -> Tensor | None:
        """The numbers that the host has; None without any."""
        return self.numbers if self.numbers.is_cpu else self.host_numbers

    @property
    def chain(self) -> Chain:
        """The stages that may act, from the numbers that the host has."""
        return chain_of(self.ops, self.known_numbers)

    @property
    def listing(self) -> Listing:
        """Which rows are listed in a race, from the numbers that the host has."""
        return listing_of(self.known_numbers, self.ops, self.vocabulary)

    @property
    def params(self) -> RowParams:
        """The parameters on the device of the values."""
        return prepare_params(self.numbers, self.ops).to(self.values.device)


class TensorOutput(NamedTuple):
    """The fields of an engine's output, as tensors on the device of the values."""

    tokens: Tensor
    status: Tensor
    kept_count: Tensor
    logprobs: Tensor
    ranks: Tensor
    top_tokens: Tensor
    top_logprobs: Tensor
    token_logprobs: Tensor
    token_ranks: Tensor


def process_rows(request: TensorRequest, params: RowParams) -> tuple[Rows, Rows]:
    """Read the rows; return them before and after the logits processors."""
    logits = read(request.values, request.vocabulary)
    raw = rows_of(logits)
    if request.processors.are_none:
        return raw, raw
    processed = logits.clone()
    process(processed, request.processors, params.penalties)
    return raw, rows_of(processed)


def status_of(rows: Rows, bad: Tensor | None) -> Tensor:
    """The status of each row, uint8 of shape (B, 1)."""
    status = torch.full_like(rows.top, OK, dtype=torch.uint8)
    status.masked_fill_(~(rows.top < torch.inf), INVALID)
    status.masked_fill_(rows.top == -torch.inf, EMPTY)
    if bad is None:
        return status
    return status.masked_fill_(copy_column(bad, status.device).unsqueeze(1), _BAD_PARAM)


def row_tokens(rows: Rows, chain: Chain) -> RowTokens:
    """The tokens of the rows that the stages read."""
    return TopTokens(rows, chain.topk) if chain.topk else AllTokens(rows)


def kept_sets(request: TensorRequest) -> tuple[Rows, KeptSet, Tensor]:
    """Find the kept sets: the processed rows, their kept sets, their status of shape (B, 1)."""
    params, chain = request.params, request.chain
    _, rows = process_rows(request, params)
    return rows, select(row_tokens(rows, chain), chain, params), status_of(rows, request.bad)


def _draw(
    request: TensorRequest, rows: Rows, tokens: RowTokens, kept: KeptSet
) -> tuple[Tensor, Tensor]:
    """Draw from kept sets: tokens of shape (B, n), and W of shape (B, 1)."""
    if isinstance(tokens, TopTokens) and tokens.count == 1:
        return tokens.only(request.draws)
    device = rows.top.device
    if request.method == DrawMethod.INVERSE:
        words = uniform_words(request.rng_position, request.draws, device)
        return tokens.draw(kept, words)
    listed = is_listed(request.numbers, request.ops, request.vocabulary)
    how = RaceRequest(
        request.vocabulary,
        request.rng_position,
        request.draws,
        request.listing,
        copy_column(listed, device),
        "processed" in request.wanted.modes,
    )
    return draw_by_race(rows, tokens, kept, how)


def sample(request: TensorRequest) -> TensorOutput:
    """Draw for every row.

    Raises
    ------
    RuntimeError
        When the processor does not round to nearest; threads of torch begin with its mode.
    """
    require_rounding_to_nearest()
    params, chain = request.params, request.chain
    raw, rows = process_rows(request, params)
    status = status_of(rows, request.bad)
    is_bad = status != OK
    tokens = row_tokens(rows, chain)
    kept = select(tokens, chain, params)
    drawn, total = _draw(request, rows, tokens, kept)
    found = Drawn(drawn, kept, total, is_bad)
    result = logprobs(raw, rows, found, params, request.wanted)
    return TensorOutput(
        drawn.masked_fill(is_bad, -1),
        status[:, 0],
        kept.count.masked_fill(is_bad, 0)[:, 0],
        *result,
    )
