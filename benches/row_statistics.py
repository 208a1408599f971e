"""How many tokens the filters keep: on generated rows and on recorded ones.

python benches/row_statistics.py
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rows import FILE, GENERATOR, SMOLLM2, RowSet
from tables import Sheet, as_table, number

import fastsample


def nucleus(row: NDArray[np.float32], top_p: float, temperature: float) -> int:
    """Count the tokens that top_p keeps."""
    result = fastsample.sample(
        row, temperature=temperature, top_p=top_p, seed=0, position=0, stream=0, kept_count=True
    )
    return int(result.kept_count)


def above(row: NDArray[np.float32]) -> int:
    """Count the tokens that a min_p of .05 keeps."""
    result = fastsample.sample(row, min_p=0.05, seed=0, position=0, stream=0, kept_count=True)
    return int(result.kept_count)


SHAPE: dict[str, Callable[[NDArray[np.float32]], float]] = {
    "share of the first token": lambda row: float(fastsample.softmax(row).max()),
    "tokens above min_p .05": above,
    "nucleus, top_p .9": lambda row: nucleus(row, 0.9, 1.0),
    "nucleus, top_p .9, T .8": lambda row: nucleus(row, 0.9, 0.8),
    "nucleus, top_p .99": lambda row: nucleus(row, 0.99, 1.0),
    "nucleus, top_p .95, T 1.5": lambda row: nucleus(row, 0.95, 1.5),
    "first logit - median": lambda row: float(row.max() - np.median(row)),
}


def main() -> None:
    """Print median, 90th percentile and maximum of each statistic, by set of rows."""
    sets = [RowSet(SMOLLM2, 49_152), RowSet(GENERATOR, 49_152), RowSet(GENERATOR, 151_936)]
    if os.environ.get("FASTSAMPLE_LOGITS"):
        sets.insert(2, RowSet(FILE, 151_936))
    lines = []
    for name, measure in SHAPE.items():
        cells = []
        for rows in sets:
            found = [measure(row) for row in rows.distinct()]
            values = np.percentile(found, [50, 90, 100])
            cells.append(" / ".join(number(float(value)) for value in values))
        lines.append([name, *cells])
    header = ["", *(rows.name for rows in sets)]
    title = "median / 90th percentile / maximum over the rows"
    Console(width=150).print(as_table(Sheet(title, header, lines)))


if __name__ == "__main__":
    main()
