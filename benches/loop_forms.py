"""The forms of a draw that loops have, for benches/loop.py and benches/cold.py.

Each is a call of one argument, and is timed alone, straight after a model's step or a sweep of the
caches. A `row` is a NumPy array of shape (V,) that is at hand before the clock starts; `logits` is
what the model returned, a torch tensor of shape (B, 1, V), so that taking a row out of it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from typing import Any

import numpy as np
from loop_goals import (
    ARGMAX,
    ARGMAX_OF_BATCH,
    AT_BATCH,
    BATCH,
    BATCH_ROWS,
    BIAS,
    BY_TURNS,
    HISTORIES,
    JOINING,
    LOGPROBS,
    MASK,
    MAXIMUM,
    OWN_CLOCK,
    PENALTIES,
    ROW,
    SAMPLE,
    SLICED,
    TORCH_ARGMAX,
    setting_form,
)
from numpy.typing import NDArray
from penalties import text
from rivals import TORCH, is_installed, torch_draw
from settings import SETTINGS, by_name

import fastsample
from fastsample.cli.interleave import Call

CHAIN = by_name("usual chain")
Forms = dict[str, Call]
Step = Callable[[bool], Any]
"""Returns logits of shape (B, 1, V): a tensor, or a NumPy array where it is called with False."""


@dataclass(frozen=True)
class FormSet:
    """Forms that follow steps of so many rows: of NumPy rows, and of what a model returned."""

    batch: int
    rows: Forms
    tensors: Forms

    @classmethod
    def of(cls, batch: int, vocabulary: int, has_tensors: bool) -> FormSet:
        """Make the forms of one row, or of a batch."""
        if batch > 1:
            return cls(batch, batch_forms(), tensor_batch_forms() if has_tensors else {})
        forms = row_forms(vocabulary, np.random.default_rng(0))
        return cls(batch, forms, tensor_forms() if has_tensors else {})

    @property
    def calls(self) -> Forms:
        """All of them."""
        return {**self.rows, **self.tensors}

    def argument(self, name: str, step: Step) -> Any:
        """Take a step, and return what a form gets of it."""
        if name in self.tensors:
            return step(True)
        array = step(False)
        return array[0, -1] if self.batch == 1 else array[:, -1]


# ---------------------------------------------------------------- one row


def row_forms(vocabulary: int, rng: np.random.Generator) -> Forms:
    """Forms that get a NumPy row."""
    mask = allowed(vocabulary, rng)
    forms: Forms = {
        MAXIMUM: np.max,
        ARGMAX: lambda row: row.argmax(),
        ROW: sampling(),
        OWN_CLOCK: sampling(measure=True),
        "sampler(row[:16])": partial(lambda one, row: one(row[:16]), sampling()),
        "sample(row)": drawing(),
        MASK: partial(lambda one, row: one(row, mask=mask), sampling()),
        BIAS: partial(lambda one, row: one(row, bias={5: 1.0}), sampling()),
        LOGPROBS: partial(lambda one, row: one.sample(row, logprobs=5), sampling()),
    }
    for name, length in zip(PENALTIES, HISTORIES, strict=True):
        params = CHAIN.sampling(repetition_penalty=1.2)
        prompt = text(rng, vocabulary, length)
        forms[name] = fastsample.Sampler(params, prompt=prompt, n_threads=1)
    if is_installed(TORCH):
        forms["torch: topk, softmax, multinomial"] = torch_draw(CHAIN.sampling())
    return forms


def tensor_forms() -> Forms:
    """Forms that get what a model returned for one sequence."""
    import torch

    by_numpy, by_row, by_batch = SLICED
    sample_at, sample_row, sample_batch = SAMPLE
    forms: Forms = {
        TORCH_ARGMAX: lambda logits: torch.argmax(logits[0, -1]).item(),
        "logits[0, -1] alone": lambda logits: logits[0, -1],
        by_numpy: partial(lambda one, logits: one(logits.numpy()[0, -1]), sampling()),
        by_row: partial(lambda one, logits: one(logits[0, -1]), sampling()),
        by_batch: partial(lambda one, logits: one(logits[:, -1]), sampling()),
        sample_at: partial(lambda one, logits: one(logits, at=-1), drawing()),
        sample_row: partial(lambda one, logits: one(logits[0, -1]), drawing()),
        sample_batch: partial(lambda one, logits: one(logits[:, -1]), drawing()),
    }
    for setting in SETTINGS:
        sampler = fastsample.Sampler(setting.sampling(), n_threads=1)
        form = partial(lambda one, logits: one(logits, at=-1), sampler)
        forms[setting_form(setting.name)] = form
    with suppress(ModuleNotFoundError):
        forms["transformers: warpers, softmax, multinomial"] = transformers_draw()
    return forms


# ---------------------------------------------------------------- 8 rows


def batch_forms() -> Forms:
    """Forms that get a NumPy batch."""
    turns, others = samplers(BATCH), samplers(BATCH - 1)
    ids, params = cycle([turns.ids, turns.ids[:-1]]), CHAIN.sampling()

    def by_turns(rows: NDArray[np.float32]) -> object:
        numbers = next(ids)
        return turns(rows[: len(numbers)], sequences=numbers)

    def joining(rows: NDArray[np.float32]) -> object:
        number = others.add(params)
        others(rows)
        return others.remove(number)

    return {
        ARGMAX_OF_BATCH: lambda rows: [row.argmax() for row in rows],
        BATCH_ROWS: sampling(),
        BY_TURNS: by_turns,
        JOINING: joining,
    }


def tensor_batch_forms() -> Forms:
    """Forms that get what a model returned for 8 sequences."""
    import torch

    return {
        f"torch.argmax(logits[:, -1], -1), {BATCH} rows": lambda x: torch.argmax(x[:, -1], -1),
        AT_BATCH: partial(lambda one, logits: one(logits, at=-1), sampling()),
        f"sampler(logits[:, -1]), {BATCH} rows": partial(
            lambda one, logits: one(logits[:, -1]), sampling()
        ),
    }


# ---------------------------------------------------------------- calls


def sampling(measure: bool = False) -> fastsample.Sampler:
    """Make a sampler of the usual chain."""
    return fastsample.Sampler(CHAIN.sampling(), stream="row", measure=measure, n_threads=1)


def samplers(n: int) -> fastsample.Sampler:
    """Make a sampler of so many sequences of the usual chain."""
    return fastsample.Sampler([CHAIN.sampling(seed=i) for i in range(n)], n_threads=1)


def drawing() -> Callable[..., object]:
    """Call `sample` at increasing positions."""
    position, params = count(), {**CHAIN.params, "seed": 1, "n_threads": 1}
    return lambda logits, **at: fastsample.sample(logits, **params, position=next(position), **at)


def allowed(vocabulary: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Make a mask of 32-bit words that bans one token of ten."""
    bits = np.zeros(-(-vocabulary // 32) * 32, bool)
    bits[:vocabulary] = rng.random(vocabulary) < 0.9
    return np.packbits(bits, bitorder="little").view(np.int32)


def transformers_draw() -> Call:
    """The step of transformers' `generate(do_sample=True)`: copy the last row, warp it, draw."""
    import torch
    from transformers.generation import (
        LogitsProcessorList,
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    warpers = LogitsProcessorList(
        [
            TemperatureLogitsWarper(CHAIN.params["temperature"]),
            TopKLogitsWarper(CHAIN.params["top_k"]),
            TopPLogitsWarper(CHAIN.params["top_p"]),
            MinPLogitsWarper(CHAIN.params["min_p"]),
        ]
    )

    def draw(logits: Any) -> int:
        scores = logits[:, -1, :].to(copy=True, dtype=torch.float32)
        shares = torch.softmax(warpers(None, scores), dim=-1)
        return int(torch.multinomial(shares, num_samples=1))

    return draw
