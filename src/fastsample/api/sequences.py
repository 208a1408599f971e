"""One sequence: what a `Sampler` remembers of it, what is shown of that, and its tokens' checks."""

from __future__ import annotations

from array import array
from typing import Any, TypeAlias

import numpy as np

from fastsample.engines.plan import make_plan
from fastsample.inputs.logits import MAX_VOCABULARY
from fastsample.params.parameters import SamplingParams, fresh_seed, plan_fields
from fastsample.params.validation import at, per_row

Tokens: TypeAlias = "array[int]"
Gap: TypeAlias = tuple[int, int]
"""How many tokens of the output stand before it, and how many positions it passes over."""


class State:
    """What a sampler remembers of one sequence, for it alone to change.

    Attributes
    ----------
    params, seed, stream
        As `Sequence` tells them.
    settings : array of PLAN, shape (1,)
        The plan's row at position 0.
    prompt, output : array of tokens
    skipped : int
        Positions that were passed over: no token is known of them.
    """

    __slots__ = ("_gaps", "output", "params", "prompt", "seed", "settings", "skipped", "stream")

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        stream: int = 0,
        prompt: Tokens | tuple[()] = (),
        output: Tokens | tuple[()] = (),
        gaps: tuple[Gap, ...] = (),
    ) -> None:
        self.params = params
        self.seed = seed
        self.stream = stream
        self.settings = make_plan(1, **plan_fields(params), seed=seed, stream=stream)
        self.prompt = array("q", prompt)
        self.output = array("q", output)
        self._gaps = gaps
        self.skipped = sum(length for _, length in gaps)

    @property
    def position(self) -> int:
        """How many tokens have been drawn for it or accepted, and positions passed over."""
        return self.skipped + len(self.output)

    def __reduce__(self) -> tuple[Any, ...]:
        return State, self._all()

    def _all(self) -> tuple[Any, ...]:
        return self.params, self.seed, self.stream, self.prompt, self.output, self._gaps

    def on_stream(self, stream: int, prompt: Tokens | None = None) -> State:
        """Copy it to another continuation of its seed, with a prompt of its own where given."""
        params, seed, _, own, *rest = self._all()
        return State(params, seed, stream, own if prompt is None else prompt, *rest)

    def go_to(self, position: int) -> None:
        """Forget the output from a position on, or leave a gap of unknown tokens before it."""
        gaps: list[Gap] = []
        skipped = 0
        for before, length in self._gaps:
            room = position - (before + skipped)
            if room <= 0:
                break
            gaps.append((before, min(length, room)))
            skipped += gaps[-1][1]
        del self.output[position - skipped :]
        beyond = position - skipped - len(self.output)
        if beyond:
            gaps.append((len(self.output), beyond))
        self._gaps, self.skipped = tuple(gaps), skipped + beyond


class Sequence:
    """One sequence of a `Sampler`, as it stands: to be read, while the sampler changes it.

    Attributes
    ----------
    params : SamplingParams
        As given.
    seed : int
        That of `params`, or the fresh one drawn in its place.
    stream : int
        Which continuation of the seed.
    position : int
        How many tokens have been drawn for it or accepted, the prompt not counted: the position of
        its next draw. Positions that `Sampler.reset` passed over count too.
    prompt, output : list of int
        Copies of its tokens: those that came before the first draw, and those since.

    Examples
    --------
    >>> import fastsample
    >>> sampler = fastsample.Sampler([])
    >>> number = sampler.add(temperature=0.8, seed=5, prompt=[3, 1])
    >>> sampler.accept([4, 1], sequences=number)
    >>> sequence = sampler.sequence(number)
    >>> sequence.prompt, sequence.output, sequence.position
    ([3, 1], [4, 1], 2)
    """

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def params(self) -> SamplingParams:
        """The parameters as given."""
        return self._state.params

    @property
    def seed(self) -> int:
        """That of `params`, or the fresh one drawn in its place."""
        return self._state.seed

    @property
    def stream(self) -> int:
        """Which continuation of the seed."""
        return self._state.stream

    @property
    def position(self) -> int:
        """The position of its next draw."""
        return self._state.position

    @property
    def prompt(self) -> list[int]:
        """The tokens that came before the first draw."""
        return self._state.prompt.tolist()

    @property
    def output(self) -> list[int]:
        """The tokens since: drawn, or accepted from elsewhere."""
        return self._state.output.tolist()

    def __repr__(self) -> str:
        return (
            f"Sequence({self.params}, seed={self.seed}, stream={self.stream}, "
            f"position={self.position})"
        )


def start(params: SamplingParams, prompt: Tokens, stream: int = 0) -> State:
    """Make a sequence that has been given its prompt alone, with a fresh seed where it has none."""
    seed = fresh_seed() if params.seed is None else params.seed
    return State(params, seed, stream, prompt)


def prompts_of(prompt: Any, count: int) -> list[Tokens]:
    """One list of tokens for each sequence; a list of tokens is that of all."""
    if is_per_sequence(prompt):
        return token_lists("prompt", prompt, count)
    return token_lists("prompt", () if prompt is None else prompt, 1) * count


def is_per_sequence(tokens: Any) -> bool:
    """Tell a list of lists of tokens from one list of them."""
    return per_row(tokens) and len(tokens) > 0 and per_row(tokens[0])


def token_lists(name: str, given: Any, count: int, *, skip_marks: bool = False) -> list[Tokens]:
    """Check one list of tokens for each of `count` sequences; one token stands for its list.

    For one sequence, a list of tokens need not stand in another list. With `skip_marks`, a -1,
    which a marked row has in place of a token, is left out.
    """
    if count == 1 and not is_per_sequence(given):
        return [_token_list(name, given, None, skip_marks)]
    if not per_row(given):
        raise TypeError(
            f"`{name}` must be a list with an entry for each of the {count} sequences, got "
            f"{type(given).__name__} (an entry is a token or a list of tokens)"
        )
    if len(given) != count:
        raise ValueError(
            f"`{name}` must have an entry for each of the {count} sequences, got {len(given)} "
            "(an entry is a token or a list of tokens; sequences=[...] names the ones meant)"
        )
    return [_token_list(name, one, row, skip_marks) for row, one in enumerate(given)]


def _token_list(name: str, given: Any, row: int | None, skip_marks: bool) -> Tokens:
    try:
        tokens = np.atleast_1d(np.asarray(given))
    except (TypeError, RuntimeError, ValueError) as error:
        raise TypeError(
            f"`{name}` must hold integers, got {type(given).__name__}{at(row)}: {error} "
            "(tokens are columns of `logits`)"
        ) from error
    if tokens.ndim != 1 or (tokens.dtype.kind not in "iu" and tokens.size):
        raise TypeError(
            f"`{name}` must hold integers, got {type(given).__name__} of shape {tokens.shape} and "
            f"dtype {tokens.dtype}{at(row)} (tokens are columns of `logits`)"
        )
    if skip_marks:
        tokens = tokens[tokens != -1]
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < MAX_VOCABULARY):
        token = next(t for t in tokens.tolist() if not 0 <= t < MAX_VOCABULARY)
        raise ValueError(
            f"`{name}` must hold tokens in [0, 2**22), got {token}{at(row)} "
            "(tokens are columns of `logits`)"
        )
    return array("q", tokens.astype(np.int64).tobytes())
