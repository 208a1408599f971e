"""Measure how many tokens change when the logits are a little different.

A row is drawn from twice with the same random numbers: as it is, and with noise added to its
logits, as another batch size, another kernel or other weights add it. The share of draws whose
token differs is a property of the method of drawing.

    python benches/noise.py                          # rows of SmolLM2-135M, or of FASTSAMPLE_LOGITS
    python benches/noise.py --draws 9000 --markdown  # more draws; the table as it is in the docs

No method can change fewer tokens than the total variation of the two distributions, TV, up to the
error of the measurement: that of a share p over N draws is sqrt(p (1 - p) / N). Methods:

- race, inverse: `sample` with `draw="race"` and `draw="inverse"`;
- torch: softmax and `torch.multinomial` with a generator of fixed seed, as in transformers. For one
  draw a row torch races too, with an exponential random number for each token of the row;
- sorted sum: a running sum over the tokens by descending probability, as llama.cpp's sampler does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rows import FILE, SMOLLM2, of_the_file, of_the_package

import fastsample

Row = NDArray[np.float32]
Probabilities = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The kept tokens in the rule's order, and their probabilities."""

USUAL_CHAIN = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
SETTINGS: dict[str, dict[str, Any]] = {
    "T .8": {"temperature": 0.8},
    "T 1": {"temperature": 1.0},
    "T 1, top_p .95": {"temperature": 1.0, "top_p": 0.95},
    "usual chain": USUAL_CHAIN,
}


# ---------------------------------------------------------------- noise


def normal(size: float) -> Callable[[Row, int], Row]:
    """Add normal noise of a standard deviation."""

    def noisy(row: Row, seed: int) -> Row:
        noise = np.random.default_rng(seed).normal(scale=size, size=row.size)
        return (row + noise).astype(np.float32)

    return noisy


def to_bfloat16(row: Row, _seed: int) -> Row:
    """Round to the nearest bfloat16, ties to even."""
    bits = row.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


NOISES: dict[str, Callable[[Row, int], Row]] = {
    "normal, 1e-4": normal(1e-4),
    "normal, 1e-3": normal(1e-3),
    "normal, .01": normal(0.01),
    "rounded to bfloat16": to_bfloat16,
}


# ---------------------------------------------------------------- methods


def ours(draw: str) -> Callable[[Row, dict[str, Any], int, int], NDArray[np.int64]]:
    """Draw with fastsample: draw i of a row is on stream i of its seed."""

    def tokens(row: Row, params: dict[str, Any], seed: int, n: int) -> NDArray[np.int64]:
        result = fastsample.sample(row, **params, seed=seed, position=0, n=n, draw=draw)
        return np.asarray(result.tokens)

    return tokens


def sorted_sum(row: Row, params: dict[str, Any], seed: int, n: int) -> NDArray[np.int64]:
    """Search running sums of the probabilities, the largest first."""
    tokens, probabilities = kept(row, params)
    points = np.random.default_rng(seed).random(n)
    places = np.searchsorted(np.cumsum(probabilities), points, side="right")
    return tokens[np.minimum(places, len(tokens) - 1)]


def multinomial(row: Row, params: dict[str, Any], seed: int, n: int) -> NDArray[np.int64]:
    """Draw with torch, one token a call; filtered tokens have probability 0, as in transformers."""
    import torch

    kept_tokens, probabilities = kept(row, params)
    whole = torch.zeros(row.size)
    whole[torch.from_numpy(kept_tokens)] = torch.from_numpy(probabilities).float()
    generator = torch.Generator()
    tokens = np.empty(n, np.int64)
    for i in range(n):
        generator.manual_seed(seed * n + i)
        tokens[i] = int(torch.multinomial(whole, 1, generator=generator))
    return tokens


def methods() -> dict[str, Callable[..., NDArray[np.int64]]]:
    """List the methods that can run here."""
    found = {"race": ours("race"), "inverse": ours("inverse"), "sorted sum": sorted_sum}
    if find_spec("torch"):
        found["torch"] = multinomial
    return found


# ---------------------------------------------------------------- shares


def kept(row: Row, params: dict[str, Any]) -> Probabilities:
    """Return the kept tokens of a row, by descending probability, and their probabilities."""
    found = fastsample.kept_set(row, **params)
    masses = found.masses.astype(np.float64)
    return found.tokens, masses / masses.sum()


def total_variation(a: Probabilities, b: Probabilities, size: int) -> float:
    """Return half the sum of the absolute differences of two distributions."""
    difference = np.zeros(size)
    difference[a[0]] += a[1]
    difference[b[0]] -= b[1]
    return float(np.abs(difference).sum() / 2)


@dataclass(frozen=True)
class Cell:
    """One line of the table: total variation, and the share of changed tokens by method."""

    noise: str
    setting: str
    variation: float
    shares: dict[str, float]


def measure(rows: list[Row], noise: str, setting: str, draws: int, few: int) -> Cell:
    """Measure the shares of a noise and a setting; torch draws `few` tokens a row."""
    params, variations = SETTINGS[setting], []
    changed: dict[str, list[float]] = {name: [] for name in methods()}
    for seed, row in enumerate(rows):
        noisy = NOISES[noise](row, seed)
        variations.append(total_variation(kept(row, params), kept(noisy, params), row.size))
        for name, method in methods().items():
            n = few if name == "torch" else draws
            a, b = (method(one, params, seed, n) for one in (row, noisy))
            changed[name].append(float(np.mean(a != b)))
    shares = {name: float(np.mean(found)) for name, found in changed.items()}
    return Cell(noise, setting, float(np.mean(variations)), shares)


# ---------------------------------------------------------------- output


def format_share(share: float, count: int) -> str:
    """Format a share; where no token of `count` changed, the bound that this gives."""
    if share == 0:
        return f"< {1 / count:.1g}"
    return f"{share:.2g}" if share >= 0.0001 else f"{share:.1e}"


def lines_of(cells: list[Cell], n_rows: int, draws: int, few: int) -> list[list[str]]:
    """Lay out the lines of the table."""
    lines = []
    for cell in cells:
        counts = {name: few if name == "torch" else draws for name in cell.shares}
        shares = [format_share(share, counts[name] * n_rows) for name, share in cell.shares.items()]
        lines.append([cell.noise, cell.setting, f"{cell.variation:.2g}", *shares])
    return lines


def main(
    draws: Annotated[int, typer.Option(min=1, help="draws of a row")] = 2_000,
    few: Annotated[int, typer.Option(min=1, help="draws of a row by torch")] = 100,
    markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False,
) -> None:
    """Print the share of tokens that change, by noise, setting and method."""
    recorded = sorted(of_the_file(), key=lambda rows: rows.vocabulary)
    for row_set in recorded[-1:] or of_the_package()[:1]:
        rows = row_set.distinct()
        cells = [
            measure(rows, noise, setting, draws, few) for noise in NOISES for setting in SETTINGS
        ]
        header = ["noise", "setting", "TV", *cells[0].shares]
        lines = lines_of(cells, len(rows), draws, few)
        source = {SMOLLM2: "SmolLM2-135M", FILE: "FASTSAMPLE_LOGITS"}[row_set.source]
        title = f"{source}: {len(rows)} rows of V = {row_set.vocabulary:,}, {draws} draws each"
        if markdown:
            print(
                title,
                "",
                "| " + " | ".join(header) + " |",
                "|---|---" + "|--:" * (len(header) - 2) + "|",
                sep="\n",
            )
            print(*("| " + " | ".join(line) + " |" for line in lines), sep="\n")
        else:
            table = Table(*header, title=title)
            for line in lines:
                table.add_row(*line)
            Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
