"""`fastsample table`: the top tokens of a row, and which filter cut each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from fastsample import Arrival, Candidate, DrawTrace, SamplingParams, candidates, sample

from .files import read_row, read_texts
from .options import LogitsFile, sampling_options, stage_values
from .tables import label, make_table, number


class Draw(NamedTuple):
    """A drawn token, its rank in the row, what reproduces it, and how a race drew it."""

    token: int
    rank: int
    seed: int
    position: int
    stream: int
    trace: DrawTrace | None


@sampling_options
def table(
    file: LogitsFile,
    params: SamplingParams,
    row: Annotated[int, typer.Option(help="The row of the file.")] = 0,
    texts: Annotated[
        Path | None, typer.Option(help="A JSON list of V strings: the text of each token.")
    ] = None,
    n: Annotated[int, typer.Option("-n", help="How many tokens to list.")] = 10,
    seed: Annotated[int | None, typer.Option(help="Draw a token with this seed.")] = None,
    position: Annotated[
        int | None,
        typer.Option(
            help="With --seed: how many tokens have been drawn for this sequence, not counting "
            "the prompt; 0 by default."
        ),
    ] = None,
    stream: Annotated[
        int | None,
        typer.Option(help="With --seed: the continuation of the seed; 0 by default."),
    ] = None,
) -> None:
    """List the top tokens of a row with their probabilities, and the filter that cut each.

    "raw" is at temperature 1, "tempered" at that given, both without filters; "top_p total" sums
    what top_p compares with its value: the tempered probabilities of tokens that earlier filters
    keep. "final" is after all filters.

    With --seed, also draw a token, and show the arrivals that decided a race.
    """
    if seed is None and (params.draw, position, stream) != (None, None, None):
        raise ValueError("--draw, --position and --stream need --seed (give --seed too)")
    logits = read_row(file, row)
    words = None if texts is None else read_texts(texts, logits.size)
    drawn = None if seed is None else draw(logits, params, seed, position or 0, stream or 0)
    print_candidates(Console(), logits, params, n, words, drawn)


def draw(
    logits: NDArray[Any], params: SamplingParams, seed: int, position: int, stream: int = 0
) -> Draw:
    """Draw one token from one row. A margin shows that it was drawn by race."""
    filters = stage_values(params)
    place: dict[str, Any] = {"seed": seed, "position": position, "stream": stream}
    result = sample(logits, **filters, **place, draw=params.draw, logprobs=0, margin=True)
    _, trace = candidates(logits, 1, **filters, **place, draw=True)
    is_race = trace.winner is not None and not np.isnan(result.margin)
    return Draw(int(result.tokens), int(result.ranks), **place, trace=trace if is_race else None)


def print_candidates(
    console: Console,
    logits: NDArray[Any],
    params: SamplingParams,
    n: int,
    texts: list[str] | None,
    drawn: Draw | None,
) -> None:
    """Print the top n tokens of a row, and the drawn token if there is one."""
    listed = candidates(logits, n, **stage_values(params))
    if drawn is not None and drawn.rank > len(listed):
        listed.append(candidates(logits, drawn.rank, **stage_values(params))[-1])
    console.print(candidate_table(listed, params, texts, None if drawn is None else drawn.token))
    if drawn is not None:
        text = "" if texts is None else f" {visible(texts[drawn.token])}"
        how = f"seed {drawn.seed}, position {drawn.position}, stream {drawn.stream}"
        console.print(Text(f"drawn: {drawn.token}{text}   ({how})"))
        if drawn.trace is not None:
            console.print(Text(describe_race(drawn.trace)))


def describe_race(trace: DrawTrace) -> str:
    """Describe the arrivals that decided a race, and the margin."""

    def describe(one: Arrival | None, role: str) -> str:
        if one is None:
            return f"{role}: none"
        how = "by its clock" if one.height is None else f"at height {one.height}"
        return f"{role}: {one.token}, time {one.time:.4g}, {how}"

    runner_up = describe(trace.runner_up, "runner-up")
    return f"{describe(trace.winner, 'winner')}\n{runner_up}\nmargin: {trace.margin:.4g}"


PROBABILITIES = {
    "raw\nprob.": "raw_probability",
    "raw\ntotal": "running_total",
    "tempered\nprob.": "tempered_probability",
    "tempered\ntotal": "tempered_total",
    "top_p\ntotal": "top_p_total",
    "final\nprob.": "probability",
}
"""Columns of a table, and the attributes of a `Candidate`."""


def probability_columns(listed: list[Candidate], params: SamplingParams) -> dict[str, str]:
    """Return the probabilities to show: those of a temperature, and the total of top_p, if on."""
    unused = ["tempered"] if params.temperature in (0.0, 1.0) else []
    unused.append("top_p" if listed[0].top_p_total is None else "tempered_total")
    return {h: name for h, name in PROBABILITIES.items() if not name.startswith(tuple(unused))}


def candidate_table(
    listed: list[Candidate],
    params: SamplingParams,
    texts: list[str] | None,
    drawn: int | None,
) -> Table:
    """Format candidates: the drawn one in bold, those that cannot be drawn dimmed."""
    digits = max(len(str(c.token)) for c in listed)
    texts_column = [] if texts is None else [Column("text", overflow="ellipsis")]
    columns = probability_columns(listed, params)
    grid = make_table(
        number("rank"),
        number("token", min_width=max(digits, 5)),
        *texts_column,
        *map(number, ("logit", *columns)),
        label("cut by"),
    )
    for c in listed:
        text = [] if texts is None else [Text(visible(texts[c.token]))]
        grid.add_row(
            str(c.rank),
            str(c.token),
            *text,
            f"{c.logit:.3f}",
            *(share(getattr(c, name)) for name in columns.values()),
            c.cut_by or "",
            style="bold" if c.token == drawn else "dim" if c.cut_by else "",
        )
    return grid


def share(probability: float | None) -> str:
    """Format a probability, or a sum of some."""
    return "" if probability is None else f"{probability:.4f}"


def visible(text: str, space: str = "␣") -> str:
    """Make every character of a text visible: spaces, line ends and control characters."""
    return "".join(
        space
        if c == " "
        else c
        if c.isprintable() and c != "\\"
        else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
