"""The files of commands: logits in .npy, texts of tokens in JSON, and the recorded demo rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEMO_DATA = files("fastsample.cli") / "demo_data"
"""Rows of SmolLM2-135M-Instruct (Apache-2.0), recorded by tools/record_rows.py."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an OSError that lacks one: only errors of opening a file have it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def read_rows(file: Path) -> NDArray[Any]:
    """Map the rows of an .npy file into memory: float32 or float16 of shape (B, V).

    Raises
    ------
    ValueError
        Not a regular file, not an .npy file, or one of another dtype or shape.
    OSError
        The file cannot be opened or mapped.
    """
    if file.exists() and not file.is_file():
        raise ValueError(f"{file} must be a regular file, since it is mapped into memory")
    try:
        with naming(file):
            rows: NDArray[Any] = np.lib.format.open_memmap(file, mode="r")
    except OSError:
        raise
    except Exception as error:  # NumPy's parser of headers raises many types
        raise ValueError(f"{file} is not an .npy file of numbers ({error})") from error
    if rows.dtype not in (np.float32, np.float16):
        raise ValueError(
            f"{file} must hold float32 or float16, got {rows.dtype} (save "
            "logits.astype(np.float32))"
        )
    if rows.ndim not in (1, 2):
        way_out = "logits[:, -1], the last step" if rows.ndim == 3 else "rows of logits"
        raise ValueError(
            f"{file} must have shape (V,) or (B, V), got {rows.shape} (save {way_out})"
        )
    return np.atleast_2d(rows)


def read_row(file: Path, row: int) -> NDArray[Any]:
    """Read one row of an .npy file, without reading the others."""
    rows = read_rows(file)
    if not 0 <= row < len(rows):
        raise ValueError(f"--row must be in [0, {len(rows)}), the rows of {file}, got {row}")
    return np.array(rows[row])


def read_texts(file: Path, vocabulary: int) -> list[str]:
    """Read the texts of all tokens: a JSON list with one string per logit of a row."""
    try:
        texts = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON ({error})") from error
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{file} must be a JSON list of strings, the text of each token")
    if len(texts) != vocabulary:
        raise ValueError(f"{file} must hold {vocabulary} texts, one per logit, got {len(texts)}")
    return texts


def demo_rows() -> NDArray[np.float32]:
    """Read the recorded rows: float32 of shape (6, 49152)."""
    with (DEMO_DATA / "rows.npy").open("rb") as file:
        rows: NDArray[np.float32] = np.load(file, allow_pickle=False)
    return rows


def demo_texts() -> list[str]:
    """Read the texts of all tokens of the recorded rows, leading spaces included."""
    texts: list[str] = json.loads((DEMO_DATA / "texts.json").read_text(encoding="utf-8"))
    return texts


def demo_origins() -> list[dict[str, Any]]:
    """Read the origin of each recorded row: kind, prompt, step, preceding text, statistics."""
    about = json.loads((DEMO_DATA / "rows.json").read_text(encoding="utf-8"))
    origins: list[dict[str, Any]] = about["rows"]
    return origins
