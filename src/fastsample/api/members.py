"""Who is in a `Sampler`: its sequences, as its caller sees them, brings them and lets them go."""

from __future__ import annotations

from typing import Any

from fastsample.params.parameters import SamplingParams, check_position, replace_fields
from fastsample.params.table import STREAM

from .roster import Roster, as_ids, as_number
from .sequences import Sequence, start, token_lists
from .turn import Turn


class Members:
    """The part of a `Sampler` that looks at no logits."""

    _roster: Roster
    _turn: Turn

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers of the sequences, ascending: the rows of a call that names none."""
        return self._roster.ids

    @property
    def params(self) -> SamplingParams:
        """The parameters as given, where all sequences share them."""
        params: SamplingParams = self._roster.shared("params")
        return params

    @property
    def seed(self) -> int:
        """The seed in use, that of `params` or a fresh one, where all sequences share it."""
        seed: int = self._roster.shared("seed")
        return seed

    @property
    def position(self) -> int:
        """How many tokens have been drawn for each sequence, the prompt not counted.

        Those that it took over with `accept` count too. Where it is the same number for all.
        """
        position: int = self._roster.shared("position")
        return position

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_":
            way_out = "call reset(position)" if name == "position" else "make a new Sampler"
            raise AttributeError(
                f"`{name}` cannot be set: the parameters of a Sampler are fixed ({way_out})"
            )
        super().__setattr__(name, value)

    def sequence(self, number: int) -> Sequence:
        """Look at one sequence: its parameters, seed, stream, position, prompt and output."""
        return Sequence(self._roster.chosen((as_number(number),))[0])

    def accept(self, tokens: Any, *, sequences: Any = None) -> None:
        """Append tokens that came from elsewhere, such as those that a grammar forces.

        The position moves on by one for each, as if they had been drawn. Before the first call of
        a sampler made from one `SamplingParams`, its continuations all get them.

        Parameters
        ----------
        tokens : int, list of int, or a list of these
            For one sequence a token or a list of tokens; for several a list with one of these for
            each, so that the tokens of a call may be handed to another sampler's `accept`. A -1,
            which a marked row has in place of a token, is skipped.
        sequences : int or list of int, optional
            Whose they are. None: one entry for each of `ids`.

        Raises
        ------
        TypeError, ValueError
            Something else than tokens, an unknown or repeated number, another number of entries,
            tokens at position 2**64 or beyond; then nobody's are appended.
        RuntimeError
            Another thread is using this sampler.

        Examples
        --------
        >>> import fastsample
        >>> sampler = fastsample.Sampler(seed=1, presence_penalty=0.5)
        >>> sampler.accept([5, 9])
        >>> sampler.position, sampler.sequence(0).output
        (2, [5, 9])
        """
        with self._turn:
            chosen = self._roster.chosen(as_ids(sequences))
            lists = token_lists("tokens", tokens, len(chosen), skip_marks=True)
            self._roster.accept(chosen, lists)

    def add(
        self,
        params: SamplingParams | None = None,
        *,
        prompt: Any = (),
        stream: int = 0,
        **keywords: Any,
    ) -> int:
        """Let a sequence come, in a sampler made from a list.

        Parameters
        ----------
        params : SamplingParams, optional
            The defaults where left out; without a seed it gets a fresh one.
        prompt : list of tokens
            Its tokens before the first draw.
        stream : int
            In [0, 2**32). Sequences of equal seed draw with equal numbers unless their streams
            differ.
        **keywords
            Fields of `SamplingParams`; they win over those of `params`.

        Returns
        -------
        int
            Its number, which no other sequence of this sampler has had or will have.

        Raises
        ------
        TypeError
            As the sampler's own making; also where it was not made from a list.
        ValueError
            A value out of range.
        RuntimeError
            Another thread is using this sampler.
        """
        chosen = replace_fields(params, keywords)
        (tokens,) = token_lists("prompt", prompt, 1)
        sequence = start(chosen, tokens, STREAM.one(stream))
        with self._turn:
            return self._roster.add(sequence)

    def remove(self, number: int) -> Sequence:
        """Let a sequence go, and return it; no other moves.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As `add`; also ValueError for an unknown number.
        """
        with self._turn:
            return Sequence(self._roster.remove(as_number(number)))

    def reset(self, position: int = 0, *, sequences: Any = None) -> None:
        """Go to a position. Parameters, seed and prompt stay, output from there on is forgotten.

        At 0, a sampler made from one `SamplingParams` starts anew: the next call decides how many
        continuations there are. A position beyond the output leaves a gap of unknown tokens after
        those that stand; going back into the gap, or to its start, forgets none of these.

        Parameters
        ----------
        position : int
            In [0, 2**64).
        sequences : int or list of int, optional
            Which of them go there; None: all.
        """
        position = check_position(position)
        with self._turn:
            self._roster.reset(position, as_ids(sequences))
