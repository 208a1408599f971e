"""Errors at the command line; to be imported only where typer and rich are installed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fastsample.cli import bench, files, plots, table
from tests.support.error_cases import ROW, ErrorCase


def in_a_folder(call: Callable[[Path], Any]) -> None:
    """Call with a folder for files."""
    with tempfile.TemporaryDirectory() as folder:
        call(Path(folder))


def of_rows(rows: np.ndarray, part: str, **options: Any) -> ErrorCase:
    """A table of a file with these rows."""

    def call(folder: Path) -> None:
        np.save(folder / "rows.npy", rows)
        table.table(file=folder / "rows.npy", **options)

    return ErrorCase(lambda: in_a_folder(call), ValueError, part)


def of_texts(text: str, part: str) -> ErrorCase:
    """A table with texts from a file that holds this."""

    def call(folder: Path) -> None:
        np.save(folder / "rows.npy", ROW)
        (folder / "texts.json").write_text(text, encoding="utf-8")
        table.table(file=folder / "rows.npy", texts=folder / "texts.json")

    return ErrorCase(lambda: in_a_folder(call), ValueError, part)


def read_a_text(folder: Path) -> None:
    (folder / "rows.npy").write_text("1 2 3", encoding="utf-8")
    table.table(file=folder / "rows.npy")


def read_absent(folder: Path) -> None:
    files.read_rows(folder / "absent.npy")


def of_bench(rows: np.ndarray, part: str, **options: Any) -> ErrorCase:
    """A measurement of a file with these rows."""

    def call(folder: Path) -> None:
        np.save(folder / "rows.npy", rows)
        bench.bench(file=folder / "rows.npy", **options)

    return ErrorCase(lambda: in_a_folder(call), ValueError, part)


def overwrite(folder: Path) -> None:
    np.save(folder / "rows.npy", ROW)
    bench.bench(file=folder / "rows.npy", json_file=folder / "rows.npy")


def without_matplotlib() -> None:
    with mock.patch.dict(sys.modules, {"matplotlib": None}):
        plots.draw_latencies({}, "", {})


SHAPE = "rows.npy must have shape (V,) or (B, V), got"

ERROR_CASES = [
    of_rows(ROW, "--draw, --position and --stream need --seed (give --seed too)", position=3),
    of_rows(ROW, "`n` must be at least 1, got 0 (how many tokens to list", n=0),
    of_rows(ROW.astype(float), "rows.npy must hold float32 or float16, got float64 (save logits"),
    of_rows(ROW[None, None], f"{SHAPE} (1, 1, 3) (save logits[:, -1], the last step)"),
    of_rows(ROW[0], f"{SHAPE} () (save rows of logits)"),
    of_rows(ROW, "--row must be in [0, 1), the rows of ", row=1),
    ErrorCase(lambda: in_a_folder(read_a_text), ValueError, "rows.npy is not an .npy file of"),
    of_bench(ROW, "--repeat must be at least 1, got 0 (passes over the rows)", repeat=0),
    of_bench(ROW, "--threads 2 needs a --batch above 1: rows are distributed over", threads=2),
    of_bench(ROW, "--batch must be in [1, 1], the rows of ", batch=2),
    of_bench(ROW, "--svg must name a file in an existing folder, got .", svg=Path()),
    ErrorCase(
        lambda: in_a_folder(overwrite), ValueError, "--json must name a file of its own, got "
    ),
    of_bench(ROW[None][:0], "rows.npy must hold at least one row, got shape (0, 3)"),
    of_bench(ROW[None, None], f"{SHAPE} (1, 1, 3) (save"),
    ErrorCase(
        without_matplotlib, RuntimeError, "figures need matplotlib: pip install matplotlib ("
    ),
    ErrorCase(lambda: in_a_folder(files.read_rows), ValueError, " must be a regular file, since"),
    ErrorCase(lambda: in_a_folder(read_absent), FileNotFoundError, "absent.npy"),
    of_texts("[", "texts.json is not JSON ("),
    of_texts(json.dumps([1, 2, 3]), "texts.json must be a JSON list of strings, the text of"),
    of_texts(json.dumps(["a"]), "texts.json must hold 3 texts, one per logit, got 1"),
]
