"""The command line: `table`, `bench` and `verify` for your logits, `demo` for rows that ship."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastsample import Candidate, SamplingParams, __version__, candidates, sample
from fastsample import info as machine_info

from . import demo as material
from .bench import bench, described, figures, filters
from .files import read_row, read_texts
from .verify_page import prove

app = typer.Typer(
    name="fastsample",
    help="Next-token sampling: see what a row of logits offers, and what is drawn from it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)

DEMO_ROWS = (0, 1, 5)
COLUMNS = (
    "rank",
    "token",
    "text",
    "logit",
    "raw\nprobability",
    "running\ntotal",
    "probability\nafter filters",
    "cut by",
)


def tell_version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        typer.echo(f"fastsample {__version__}")
        raise typer.Exit


def refuse(error: Exception) -> NoReturn:
    """Print why in one line, and leave with status 2."""
    line = " ".join(str(error).split())
    if isinstance(error, OSError) and error.filename is not None:
        line = f"cannot open or write {error.filename}: {error.strerror}"
    typer.echo(f"fastsample: {line}", err=True)
    raise typer.Exit(2)


def told(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command end with one line where it raises."""

    @wraps(command)
    def telling(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except typer.Exit:
            raise
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            refuse(error)

    return telling


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=tell_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take what is asked of the command as a whole."""


@app.command()
@told
def table(
    file: Annotated[Path, typer.Argument(help="An .npy file of float32 logits, (V,) or (B, V).")],
    row: Annotated[int, typer.Option(help="Which row of the file.")] = 0,
    texts: Annotated[
        Path | None, typer.Option(help="A JSON list of V strings: the text of each token.")
    ] = None,
    n: Annotated[int, typer.Option("-n", help="How many tokens to list.")] = 10,
    temperature: Annotated[float, typer.Option(help="0 takes the top token.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Keep this many tokens; 0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="Keep this share of the mass; 1 is off.")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Least share of the top token's probability; 0 is off.")
    ] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Draw a token with this seed.")] = None,
    position: Annotated[
        int | None,
        typer.Option(
            help="How many tokens have been drawn for this sequence, the prompt not counted; 0 for "
            "the first, and where it is left out. Goes with --seed."
        ),
    ] = None,
    stream: Annotated[
        int | None,
        typer.Option(help="Which continuation of the seed; 0 where left out. Goes with --seed."),
    ] = None,
) -> None:
    """Print the candidate table of one row, and with --seed the token drawn from it."""
    if seed is None and (position, stream) != (None, None):
        raise ValueError("--position and --stream say where to draw: give --seed too")
    position, stream = position or 0, stream or 0
    logits = read_row(file, row)
    words = None if texts is None else read_texts(texts, logits.size)
    params = SamplingParams(temperature, top_k, top_p, min_p, seed)
    listed = candidates(logits, n, **filters(params))
    drawn = None if seed is None else draw(logits, params, position, stream)
    listed = with_drawn(listed, logits, params, drawn)
    console = Console()
    console.print(candidate_table(listed, words, drawn))
    if drawn is not None:
        console.print(drawn_line(drawn, words, seed, position, stream))


@app.command()
@told
def demo() -> None:
    """Show candidates and draws of a real model's rows, and how long a draw takes here."""
    console, facts = Console(), machine_info()
    rows, words, params = material.load_rows(), material.load_texts(), material.USUAL
    origins = material.load_origins()
    console.print(Text(f"Rows of SmolLM2-135M-Instruct under {described(params)}."))
    for row in DEMO_ROWS:
        origin = origins[row]
        drawn = draw(rows[row], params, origin["step"], 0)
        so_far = origin["context"].split("<|im_start|>assistant\n")[-1]
        console.rule(Text(f"row {row}, {origin['kind']}"), align="left")
        console.print(Text(f"prompt: {visible(origin['prompt'], space=' ')}"))
        console.print(Text(f"so far: {visible(so_far, space=' ')}"))
        listed = candidates(rows[row], 8, **filters(params))
        listed = with_drawn(listed, rows[row], params, drawn)
        console.print(candidate_table(listed, words, drawn))
        console.print(drawn_line(drawn, words, params.seed, origin["step"], 0))
    title = f"microseconds a token, {rows.shape[1]:,} logits each, measured now"
    console.rule(Text(title), align="left")
    console.print(figures(material.measure(rows)))
    console.print("rows and code in cache; inside a model's loop expect more")
    console.rule(Text("this installation"), align="left")
    print_info(console, facts)


app.command()(told(bench))
app.command("verify")(told(prove))


@app.command()
@told
def info() -> None:
    """Print the version, the rule's version and how this machine runs it."""
    print_info(Console(), machine_info())


def draw(logits: NDArray[np.float32], params: SamplingParams, position: int, stream: int) -> int:
    """Draw one token from one row."""
    result = sample(logits, **filters(params), seed=params.seed, position=position, stream=stream)
    return int(result.tokens)


def with_drawn(
    listed: list[Candidate], logits: NDArray[np.float32], params: SamplingParams, drawn: int | None
) -> list[Candidate]:
    """Add the drawn token after the listed ones, unless it is among them."""
    if drawn is None or any(c.token == drawn for c in listed):
        return listed
    before = logits > logits[drawn]
    before[:drawn] |= logits[:drawn] == logits[drawn]
    rank = int(np.count_nonzero(before)) + 1
    return [*listed, candidates(logits, rank, **filters(params))[-1]]


def visible(text: str, space: str = "␣") -> str:
    """Write a text so that every character of it is seen: spaces, line ends, control characters."""
    return "".join(
        space if c == " " else c if c.isprintable() and c != "\\" else _escaped(c) for c in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def candidate_table(listed: list[Candidate], words: list[str] | None, drawn: int | None) -> Table:
    """Lay out candidates: the drawn one bold, those that cannot be drawn dim."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    digits = max(len(str(c.token)) for c in listed)
    for name in COLUMNS:
        if name == "text" and words is not None:
            grid.add_column(name, overflow="ellipsis")
        elif name != "text":
            grid.add_column(
                name,
                justify="left" if name == "cut by" else "right",
                no_wrap=True,
                min_width=max(digits, 5) if name == "token" else None,
            )
    for c in listed:
        text = [] if words is None else [Text(visible(words[c.token]))]
        numbers = (c.raw_probability, c.running_total, c.probability)
        grid.add_row(
            str(c.rank),
            str(c.token),
            *text,
            f"{c.logit:.3f}",
            *(f"{number:.4f}" for number in numbers),
            c.cut_by or "",
            style="bold" if c.token == drawn else "dim" if c.cut_by else "",
        )
    return grid


def drawn_line(
    drawn: int, words: list[str] | None, seed: int | None, position: int, stream: int
) -> Text:
    """Tell the drawn token, and what draws it again."""
    text = "" if words is None else f" {visible(words[drawn])}"
    return Text(f"drawn: {drawn}{text}   (seed {seed}, position {position}, stream {stream})")


def print_info(console: Console, facts: dict[str, Any]) -> None:
    """Print what `fastsample.info()` tells, one fact a line."""
    for name, value in facts.items():
        fact = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        console.print(
            Text(f"{name + ':':<14} {'-' if fact in (None, '') else fact}"), soft_wrap=True
        )
