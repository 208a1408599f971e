"""The files that commands read: logits in .npy, the texts of tokens in JSON, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_rows(file: Path, dtypes: tuple[str, ...] = ("float32",)) -> NDArray[Any]:
    """Look at the rows of an .npy file, shape (B, V), without reading them yet."""
    try:
        rows: NDArray[Any] = np.lib.format.open_memmap(file, mode="r")
    except ValueError as error:
        raise ValueError(f"{file} is not an .npy file of numbers ({error})") from error
    if rows.dtype not in map(np.dtype, dtypes):
        wanted = " or ".join(dtypes)
        raise ValueError(f"{file} must hold {wanted}, got {rows.dtype} (logits.astype(np.float32))")
    if rows.ndim not in (1, 2):
        raise ValueError(f"{file} must have shape (V,) or (B, V), got {rows.shape}")
    return np.atleast_2d(rows)


def read_row(file: Path, row: int) -> NDArray[np.float32]:
    """Read one row of an .npy file, without reading the others."""
    rows = read_rows(file)
    if not 0 <= row < len(rows):
        raise ValueError(f"--row must be in [0, {len(rows)}), the rows of {file}, got {row}")
    return np.array(rows[row])


def read_texts(file: Path, vocabulary: int) -> list[str]:
    """Read the texts of all tokens: a JSON list of as many strings as the row has logits."""
    try:
        words = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error})") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{file} must be a JSON list of strings, the text of each token")
    if len(words) != vocabulary:
        raise ValueError(f"{file} must hold {vocabulary} texts, one per logit, got {len(words)}")
    return words
