"""One row of a request as float32: unmodified, and after section 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsample.engines.contract import SampleRequest

from . import penalties as reference_penalties
from . import rows as reference_rows

_SCOPES: dict[int, reference_penalties.Scope] = {-1: "all", -2: "prompt", -3: "output"}
_PENALTIES = ("repetition", "frequency", "presence")


def unmodified_row(request: SampleRequest, b: int) -> NDArray[np.float32]:
    """Return the logits of a row as float32."""
    return reference_rows.widen(request.values[b, : request.vocabulary])


def adjusted_row(request: SampleRequest, b: int) -> NDArray[np.float32]:
    """Apply section 2 to a row."""
    row = unmodified_row(request, b)
    if request.processors is None:
        return reference_rows.read(row)
    mask, bias, prompt, output = request.processors
    penalties: dict[str, Any] = {}
    for name in _PENALTIES:
        scope = int(request.plan[b][f"{name}_scope"])
        penalties[f"{name}_penalty"] = float(request.plan[b][f"{name}_penalty"])
        penalties[f"{name}_scope"] = _SCOPES.get(scope, scope)
    return reference_penalties.adjust(
        row,
        mask=None if mask is None else mask[b % len(mask)],
        bias=None if bias is None else (_list_of(bias, b), _list_of(bias, b, of=bias.values)),
        prompt=() if prompt is None else _list_of(prompt, b),
        output=() if output is None else _list_of(output, b),
        **penalties,
    )


def _list_of(lists: Any, b: int, of: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return a row's part of concatenated lists."""
    items = lists.tokens if of is None else of
    return np.asarray(items[lists.offsets[b] : lists.offsets[b + 1]])
