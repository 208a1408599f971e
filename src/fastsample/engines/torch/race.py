"""Section 6 of the rule: the race, in which the kept token that arrives first is drawn.

All draws of a batch run as one list. On the CPU the tail is looked at until every race is decided;
on a device all of its arrivals are, since the host reads nothing there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fastsample.engines.reference import race as reference
from fastsample.engines.reference.draw import AFTER_RACE, ARRIVAL, CLOCK

from .clocks import clock, in_steps
from .draw import Words, uniform_words, words
from .listing import Listing
from .mass import Scaling, exponent2, masses
from .ordinal import Rows, sort_keys
from .prepare_params import MAX_TOPK, copy_column
from .select import KeptSet, RowTokens
from .topk_path import TopTokens

LIMIT = reference.LIMIT
"""Arrivals of the tail that are looked at."""

_FIRST_LOOK = 512
_AT_ONCE, _AT_ONCE_ON_HOST = 2**22, 2**15
"""How many clocks are computed at once; on the CPU as many as caches hold."""

_BY_CLOCK, _OPEN = -1, -2
"""What the tail's token is where a race is the head's, or open."""


class RaceRequest(NamedTuple):
    """What is drawn from a batch by race.

    Attributes
    ----------
    vocabulary : int
    rng_position : int64 tensor of shape (B, 3)
    draws : int
        Of each row, on as many streams.
    listing : Listing
    is_listed : bool tensor of shape (B, 1)
    needs_total : bool
        Whether W is wanted.
    """

    vocabulary: int
    rng_position: Tensor
    draws: int
    listing: Listing
    is_listed: Tensor
    needs_total: bool


def draw_by_race(
    rows: Rows, tokens: RowTokens, kept: KeptSet, request: RaceRequest
) -> tuple[Tensor, Tensor]:
    """Draw from the kept sets of a batch.

    Returns tokens of shape (B, n), and W of shape (B, 1): any number where it is not wanted.
    """
    race = _prepare(rows, tokens, kept, request)
    listing, on_host = request.listing, rows.logits.is_cpu
    draws = _all_draws(race, request)
    time, first = _first_by_clock(race, draws)
    total = torch.zeros_like(kept.end)
    if not listing.all:
        draws = draws._replace(bound=time)
        by_tail = _first_of_tail(race, draws, request.is_listed)
        shape = (len(kept.end), request.draws)
        first, by_tail = first.view(shape), by_tail.view(shape)
        first = torch.where(by_tail >= 0, by_tail, first)
        is_open = by_tail == _OPEN
        if not on_host or bool(is_open.any()):
            u = uniform_words(request.rng_position, request.draws, kept.end.device, AFTER_RACE)
            drawn, total = tokens.draw(kept, u)
            return torch.where(is_open, drawn, first), total
    if request.needs_total:
        total = tokens.masses(kept).sum(1, keepdim=True)
    return first.view(-1, request.draws), total


# ---------------------------------------------------------------- what all draws of a row share


class _Clocked(NamedTuple):
    """The tokens that may have a clock, ascending or not, and their rates: of shape (B, N).

    A rate is 0 where a token has no clock. Tokens may have one row for all.
    """

    tokens: Tensor
    rates: Tensor


class _Race(NamedTuple):
    """Rows that are ready for draws; columns have shape (B, 1).

    Attributes
    ----------
    logits : float32 tensor of shape (B, N)
        Of all tokens.
    vocabulary, v : int
    scaling : Scaling
    last_key : int64 column, or None
        The sort key of the last kept token. None keeps all.
    q : int64 column
    clocked : _Clocked
    """

    logits: Tensor
    vocabulary: int
    v: int
    scaling: Scaling
    last_key: Tensor | None
    q: Tensor
    clocked: _Clocked


def _prepare(rows: Rows, tokens: RowTokens, kept: KeptSet, request: RaceRequest) -> _Race:
    listing, size = request.listing, rows.logits.shape[1]
    v = reference.vocabulary_bits(request.vocabulary)
    most = math.isqrt(2**v >> 5)
    enough = _enough(tokens, kept, size)
    n_clocked = enough
    if not listing.some:
        all_are_c = kept.least_y is tokens.all.least_y
        n_clocked = min(enough, max(1, most, 1 if all_are_c else listing.min_keep))
    # The last kept token is at hand where a list has them all.
    lengths = [n for n in (n_clocked, enough if enough < size else 0) if n <= MAX_TOPK]
    top = tokens.first(min(size, max([most + 1, *lengths])))
    q = torch.zeros_like(kept.end) if listing.all else _level(top[1], kept, v, most)
    last_key = None
    if not listing.all and kept.end is not tokens.all.end:
        last_key = _key_of_last(top, kept) if enough <= top[1].shape[1] else tokens.last_key(kept)
    floor = (torch.ones_like(q) << q).masked_fill_(request.is_listed, 0)
    clocked = _clocked(tokens, kept, top, n_clocked, floor)
    return _Race(rows.logits, request.vocabulary, v, kept.scaling, last_key, q, clocked)


def _enough(tokens: RowTokens, kept: KeptSet, size: int) -> int:
    """How many top tokens hold the kept sets, as far as values on the host bound them."""
    if isinstance(tokens, TopTokens):
        return int(tokens.count)
    if kept.end is tokens.all.end or not kept.end.is_cpu or not len(kept.end):
        return size
    return max(1, int(kept.end.max()))


def _clocked(
    tokens: RowTokens, kept: KeptSet, top: tuple[Tensor, Tensor], count: int, floor: Tensor
) -> _Clocked:
    """The first tokens of each row, or all where they are not in a list, and their rates."""
    listed, logits = (one[:, :count] for one in top)
    if count <= listed.shape[1]:
        place = torch.arange(count, device=floor.device)
        is_kept = (place >= kept.begin) & (place < kept.end)
        mass = masses(exponent2(logits, kept.scaling)).masked_fill_(~is_kept, 0)
    else:
        mass = tokens.masses(kept)
        listed = torch.arange(mass.shape[1], device=floor.device).unsqueeze(0)
    return _Clocked(listed, (mass - floor).clamp_min_(0).to(torch.float64))


def _key_of_last(listed: tuple[Tensor, Tensor], kept: KeptSet) -> Tensor:
    at = (kept.end - 1).clamp_min_(0)
    tokens, logits = (one.gather(1, at) for one in listed)
    return sort_keys(logits, tokens)


def _level(logits: Tensor, kept: KeptSet, v: int, most: int) -> Tensor:
    """q of each row, from the mass that `most` tokens of C precede.

    Masses are not monotone in the logits, but their lengths in bits are.
    """
    logits = logits[:, most : most + 1]
    y = exponent2(logits, kept.scaling)
    is_in_c = (y >= kept.least_y) & (logits > -torch.inf)
    mass = masses(y).masked_fill_(~is_in_c, 0)
    # The exponent of a float64, which has the bits of an integer below 2**53, counts them.
    bits = (mass.to(torch.float64).view(torch.int64) >> 52) - 1022
    return bits.clamp_min_(max(0, reference.LEVEL_BITS - v))


# ---------------------------------------------------------------- the draws


class _Draws(NamedTuple):
    """Some draws of a batch, in columns of shape (P, 1).

    Attributes
    ----------
    row, seed, position, stream : int64
    bound : float64
        The time of the head's first arrival.
    elapsed : float64
        The clocks of the tail so far, added up.
    """

    row: Tensor
    seed: Tensor
    position: Tensor
    stream: Tensor
    bound: Tensor
    elapsed: Tensor

    def words(self, purpose: int, index: Tensor) -> Words:
        """Random words of shape (P, N), for indices that broadcast to it."""
        return words(self.seed, self.position, self.stream, index * 256 + purpose)

    def at(self, places: Tensor) -> _Draws:
        """Some of the draws."""
        return _Draws._make(column.index_select(0, places) for column in self)

    def parts(self, width: int) -> Iterator[_Draws]:
        """All draws in turn, as many at once as have so many clocks each."""
        step = max(1, (_AT_ONCE_ON_HOST if self.row.is_cpu else _AT_ONCE) // width)
        columns = (column.split(step) for column in self)
        return (_Draws._make(part) for part in zip(*columns, strict=True))


def _all_draws(race: _Race, request: RaceRequest) -> _Draws:
    device = race.q.device
    columns = (copy_column(one, device) for one in request.rng_position.split(1, 1))
    seed, position, stream = (one.expand(-1, request.draws) for one in columns)
    stream = stream + torch.arange(request.draws, device=device)
    row = torch.arange(len(seed), device=device).unsqueeze(1).expand_as(stream)
    row, seed, position, stream = (one.reshape(-1, 1) for one in (row, seed, position, stream))
    zero = torch.zeros_like(row, dtype=torch.float64)
    return _Draws(row, seed, position, stream, zero, zero)


# ---------------------------------------------------------------- the head, and listed tokens


def _first_by_clock(race: _Race, draws: _Draws) -> tuple[Tensor, Tensor]:
    """The least time of the tokens with a clock, and its token, of shape (P, 1)."""
    found = [_first_of_part(race, part) for part in draws.parts(race.clocked.rates.shape[1])]
    time, token = (torch.cat(column) for column in zip(*found, strict=True))
    return time, token


def _first_of_part(race: _Race, draws: _Draws) -> tuple[Tensor, Tensor]:
    row = draws.row.squeeze(1)
    tokens, rates = race.clocked
    if len(tokens) > 1:
        tokens = tokens.index_select(0, row)
    times = clock(draws.words(CLOCK, tokens)) / rates.index_select(0, row)
    time = times.amin(1, keepdim=True)
    token = tokens.expand_as(times).masked_fill(times != time, 2**31).amin(1, keepdim=True)
    # In a row that is not valid no time may be equal to the least.
    return time, token.clamp_max_(race.vocabulary - 1)


# ---------------------------------------------------------------- the tail


def _first_of_tail(race: _Race, draws: _Draws, is_listed: Tensor) -> Tensor:
    """The token of the tail that decides each draw, `_BY_CLOCK` or `_OPEN`: shape (P, 1)."""
    if not race.logits.is_cpu:
        found = [_look(race, part, 0, LIMIT)[0] for part in draws.parts(LIMIT)]
        is_by_clock = is_listed.index_select(0, draws.row.squeeze(1))
        return torch.cat(found).masked_fill_(is_by_clock, _BY_CLOCK)
    result = torch.full_like(draws.row, _BY_CLOCK)
    waiting = (~is_listed.index_select(0, draws.row.squeeze(1)).squeeze(1)).nonzero().squeeze(1)
    start = 0
    while start < LIMIT and len(waiting):
        count = min(max(_FIRST_LOOK, start), LIMIT - start)
        now = draws.at(waiting)
        looks = [_look(race, part, start, count) for part in now.parts(count)]
        found, elapsed = (torch.cat(column) for column in zip(*looks, strict=True))
        result[waiting] = found
        draws.elapsed[waiting] = elapsed
        waiting = waiting[(found == _OPEN).squeeze(1)]
        start += count
    return result


def _look(race: _Race, draws: _Draws, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Look at some arrivals: what decides each draw, and the clocks so far, added up."""
    at = torch.arange(count, device=race.q.device)
    found = draws.words(ARRIVAL, at + start)
    running = in_steps(clock(found)).cumsum(1).add_(draws.elapsed)
    q = race.q.index_select(0, draws.row.squeeze(1))
    times = running * _power_of_two(-race.v - q)
    tokens = found[3] >> (32 - race.v)
    below = ((found[3] & (2 ** (32 - race.v) - 1)) << 32).bitwise_or_(found[2])
    counts = _mass_at(race, draws.row, tokens) > (below >> (64 - race.v - q))
    first = at.expand_as(counts).masked_fill(~counts, count).amin(1, keepdim=True)
    is_there = first < count
    first = first.clamp_max_(count - 1)
    is_first = is_there & (times.gather(1, first) <= draws.bound)
    is_late = is_there | (draws.bound < times[:, -1:])
    decision = torch.full_like(first, _OPEN).masked_fill_(is_late, _BY_CLOCK)
    return torch.where(is_first, tokens.gather(1, first), decision), running[:, -1:]


def _power_of_two(exponent: Tensor) -> Tensor:
    return ((exponent + 1023) << 52).view(torch.float64)


def _mass_at(race: _Race, row: Tensor, tokens: Tensor) -> Tensor:
    """Masses of some tokens of each draw, 0 for those that are not kept: of shape (P, N)."""
    rows = row.squeeze(1)
    at = tokens.clamp_max(race.vocabulary - 1)
    logits = race.logits.take(at + row * race.logits.shape[1])
    scaling = Scaling(*(one.index_select(0, rows) for one in race.scaling))
    is_out = tokens >= race.vocabulary
    if race.last_key is not None:
        is_out |= sort_keys(logits, tokens) < race.last_key.index_select(0, rows)
    return masses(exponent2(logits, scaling)).masked_fill_(is_out, 0)
