"""From logits to tokens: `sample`, which keeps nothing, and `Sampler`, which counts for a loop."""

from __future__ import annotations

import copy
import os
import threading
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .engines import Run, resolve
from .logits import Rows, as_rows
from .params import (
    MAX_POSITION,
    SamplingParams,
    check_position,
    check_threads,
    fresh_seed,
    make_plan,
    place_draw,
    replace_fields,
)
from .result import SampleResult, as_given, bad_row, check_out


def sample(
    logits: Any,
    *,
    temperature: ArrayLike = 1.0,
    top_k: ArrayLike | None = 0,
    top_p: ArrayLike = 1.0,
    min_p: ArrayLike = 0.0,
    seed: ArrayLike | None = None,
    position: ArrayLike | None = None,
    stream: ArrayLike | None = None,
    engine: str | None = None,
    isa: str | None = None,
    n_threads: int | None = None,
    out: Any = None,
) -> SampleResult:
    """Draw one token for each row of logits. Pure: the same arguments give the same tokens.

    Parameters
    ----------
    logits : float32 NumPy array or torch CPU tensor of shape (V,) or (B, V)
        Read where it lies and never changed; any row stride and alignment.
    temperature, top_k, top_p, min_p : scalar, or one per row, shape (B,)
        As in `SamplingParams`.
    seed : int or one per row, optional
        In [0, 2**64); int64 from NumPy and torch is read as 64 bits. None draws a fresh one, which
        the result tells.
    position : int or one per row
        In [0, 2**64): how many tokens have been drawn for this sequence, the prompt not counted; 0
        for the first. Any number that is never used twice with one (seed, stream) will do.
        Required when `seed` is given; 0 otherwise.
    stream : int, one per row, or "row"
        In [0, 2**32): which continuation of the seed. "row" puts row b on stream b. Required with
        one seed for more than one row; "row" when the seed is fresh; 0 otherwise.
    engine : {None, "auto", "native", "reference"}
        None and "auto" take the native engine where it is installed. All give the same tokens.
    isa : str, optional
        An instruction set of `info`'s ``isa_usable``; None takes the best one.
    n_threads : int, optional
        At least 1; None lets fastsample choose.
    out : int64 array or torch.int64 CPU tensor of shape ``logits.shape[:-1]``, optional
        Written only when every row has its token; it becomes the result's `tokens`.

    Returns
    -------
    SampleResult
        `tokens`, int64 of shape ``logits.shape[:-1]``, a tensor for torch logits; and `seed`.

    Raises
    ------
    TypeError
        An argument of the wrong kind or dtype.
    ValueError
        A value out of range, a shape that does not fit, a row that holds NaN or +inf, or nothing
        but -inf.
    RuntimeError
        An engine or instruction set that this machine lacks.

    Notes
    -----
    A token is drawn with integer masses and a counter-based generator, Philox4x32-10 under the key
    `seed` and the counter (position, stream). Nothing else enters: not the other rows, the number
    of threads, the instruction set or the engine. `info`'s ``rule_version`` names the rule.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([4.0, 2.0, 1.0], dtype=np.float32)
    >>> [int(fastsample.sample(logits, seed=7, position=i).tokens) for i in range(8)]
    [0, 0, 0, 0, 2, 0, 0, 0]
    >>> fastsample.sample(np.stack([logits, -logits]), temperature=0).tokens
    array([0, 2])
    """
    rows = as_rows(logits)
    n_rows = len(rows.values)
    destination = None if out is None else check_out(out, rows.shape, torch=rows.torch)
    seed, position, stream = place_draw(n_rows, seed, position, stream)
    plan = make_plan(
        n_rows,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        position=position,
        stream=stream,
    )
    tokens = _draw(rows, plan, resolve(engine, isa), isa, check_threads(n_threads))
    if destination is None:
        return SampleResult(as_given(tokens, rows.shape, torch=rows.torch), seed)
    destination[...] = tokens.reshape(rows.shape)
    return SampleResult(out, seed)


def _draw(
    rows: Rows, plan: NDArray[np.void], run: Run, isa: str | None, n_threads: int | None
) -> NDArray[np.int64]:
    """Draw a token per row, or raise for the first bad row."""
    tokens = np.empty(len(plan), np.int64)
    status = np.empty(len(plan), np.uint8)
    run(rows.values, plan, tokens, status, isa=isa, n_threads=n_threads)
    if np.count_nonzero(status):
        raise bad_row(rows.values, rows.shape, status)
    return tokens


class _Turn:
    """One user of a sampler at a time: a second is refused, not kept waiting."""

    __slots__ = ("__weakref__", "_lock", "_owner")

    def __init__(self) -> None:
        self.renew()
        _TURNS.add(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        # A turn of this very thread was cut short, by Ctrl-C or a signal, before it could end.
        if not self._lock.acquire(False) and self._owner != me:
            raise RuntimeError(
                "this Sampler is being used by another thread, and a sampler serves one sequence "
                "(give each thread its own, or call `sample`, which keeps no state)"
            )
        self._owner = me

    def __exit__(self, *_: object) -> None:
        # A child that was forked inside its own turn finds the lock renewed.
        if self._lock.locked():
            self._lock.release()


_TURNS: weakref.WeakSet[_Turn] = weakref.WeakSet()


def _free_turns() -> None:
    """In a forked child: the threads that had a turn in the parent are not here to end it."""
    for turn in _TURNS:
        turn.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_turns)


class Sampler:
    """Draw the tokens of one sequence, or of B continuations of one prompt, step by step.

    A sampler holds its parameters, which are fixed, a seed and a position. Each call draws at the
    position and moves it on by one; after an error it stands where it stood.

    Parameters
    ----------
    params : SamplingParams, optional
        Defaults where left out.
    engine, isa, n_threads
        As in `sample`.
    **keywords
        Fields of `SamplingParams`; they win over those of `params`.

    Raises
    ------
    TypeError
        Another `params`, a keyword that is not a field, a value of the wrong kind.
    ValueError
        A value out of range.
    RuntimeError
        The native engine asked for where it is not installed.

    Notes
    -----
    ``sampler(logits)`` with float32 logits of shape (V,) returns an int. With shape (B, V) it
    returns int64 tokens of shape (B,), a torch.int64 tensor for a torch tensor; row b draws on
    stream b. Calls of one sequence must keep B: rows that come and go have their own seeds and
    positions, which `sample` takes. One thread at a time may use a sampler; another is refused.

    Guarantees: step i gives the token of ``sample(logits, seed=sampler.seed, position=i,
    stream="row", ...)``, whatever the machine; also in a clone, after pickling, in a forked child.

    Examples
    --------
    >>> import numpy as np
    >>> import fastsample
    >>> logits = np.array([1.0, 1.5, 1.2, 0.3], dtype=np.float32)
    >>> sampler = fastsample.Sampler(temperature=0.8, top_k=3, seed=7)
    >>> tokens = [sampler(logits) for _ in range(5)]
    >>> sampler.reset()
    >>> tokens == [sampler(logits) for _ in range(5)]
    True
    >>> sampler.position
    5
    """

    _params: SamplingParams
    _engine: str | None
    _isa: str | None
    _n_threads: int | None
    _seed: int
    _position: int
    _n_rows: int | None
    _run: Run
    _plan: NDArray[np.void]
    _turn: _Turn

    def __init__(
        self,
        params: SamplingParams | None = None,
        /,
        *,
        engine: str | None = None,
        isa: str | None = None,
        n_threads: int | None = None,
        **keywords: Any,
    ) -> None:
        params = replace_fields(params, keywords)
        seed = fresh_seed() if params.seed is None else params.seed
        self.__setstate__(
            {
                "params": params,
                "engine": engine,
                "isa": isa,
                "n_threads": check_threads(n_threads),
                "seed": seed,
                "position": 0,
                "n_rows": None,
            }
        )

    @property
    def params(self) -> SamplingParams:
        """The parameters, as given."""
        return self._params

    @property
    def seed(self) -> int:
        """The seed in use: that of `params`, or the fresh one drawn in its place."""
        return self._seed

    @property
    def position(self) -> int:
        """How many tokens have been drawn for this sequence, the prompt not counted."""
        return self._position

    def __setattr__(self, name: str, value: Any) -> None:
        if name[0] != "_":
            way_out = "call reset(position)" if name == "position" else "make a new Sampler"
            raise AttributeError(
                f"`{name}` cannot be set: the parameters of a Sampler are fixed ({way_out})"
            )
        super().__setattr__(name, value)

    def __call__(self, logits: Any) -> Any:
        """Draw the next token of each row, and move the position on by one.

        Parameters
        ----------
        logits : float32 NumPy array or torch CPU tensor of shape (V,) or (B, V)

        Returns
        -------
        int, or int64 array or torch.int64 tensor of shape (B,)

        Raises
        ------
        TypeError, ValueError
            As `sample`; also ValueError for another B than in the last call, or at position 2**64.
        RuntimeError
            Another thread is using this sampler.
        """
        with self._turn:
            rows = as_rows(logits)
            plan = self._next_plan(len(rows.values))
            tokens = _draw(rows, plan, self._run, self._isa, self._n_threads)
            if self._n_rows is None:
                self._n_rows = len(tokens)
            self._position += 1
        return as_given(tokens, rows.shape, torch=rows.torch) if rows.shape else int(tokens[0])

    def reset(self, position: int = 0) -> None:
        """Go to a position, and forget how many rows the last call had. The seed stays."""
        position = check_position(position)
        with self._turn:
            self._position = position
            self._n_rows = None

    def clone(self) -> Sampler:
        """Copy the sampler: from here on both draw the same, neither moves the other."""
        return copy.copy(self)

    def _next_plan(self, n_rows: int) -> NDArray[np.void]:
        """The plan of this step, in the memory of the last one where that fits."""
        if self._n_rows not in (None, n_rows):
            raise ValueError(
                f"`logits` must have {self._n_rows} rows as in the last call, got {n_rows} (call "
                "reset() to start anew, or sample() with per-row seeds for rows that come and go)"
            )
        if self._position > MAX_POSITION:
            raise ValueError(
                f"`position` must be in [0, 2**64), got {self._position} (every position of this "
                "seed has been drawn; make a Sampler with another)"
            )
        if len(self._plan) != n_rows:
            chosen = self._params
            self._plan = make_plan(
                n_rows,
                temperature=chosen.temperature,
                top_k=chosen.top_k,
                top_p=chosen.top_p,
                min_p=chosen.min_p,
                seed=self._seed,
                stream="row",
            )
        self._plan["position"] = self._position
        return self._plan

    def __getstate__(self) -> dict[str, Any]:
        with self._turn:
            return {
                "params": self._params,
                "engine": self._engine,
                "isa": self._isa,
                "n_threads": self._n_threads,
                "seed": self._seed,
                "position": self._position,
                "n_rows": self._n_rows,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._params = state["params"]
        self._engine = state["engine"]
        self._isa = state["isa"]
        self._n_threads = state["n_threads"]
        self._seed = state["seed"]
        self._position = state["position"]
        self._n_rows = state["n_rows"]
        self._run = resolve(self._engine, self._isa)
        self._plan = make_plan(0)
        self._turn = _Turn()

    def __repr__(self) -> str:
        params = replace(self._params, seed=self._seed)
        return f"Sampler({params}, position={self._position})"
