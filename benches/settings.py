"""The settings that benches time, and their targets in multiples of `np.max` of the same rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import fastsample


@dataclass(frozen=True)
class Setting:
    """Sampling parameters by name, and the target for their ratio."""

    name: str
    limit: float
    params: dict[str, Any] = field(default_factory=dict)

    def sampling(self, seed: int = 1) -> fastsample.SamplingParams:
        """Make the parameters."""
        return fastsample.SamplingParams(**self.params, seed=seed)


SETTINGS = (
    Setting("greedy", 1.0, {"temperature": 0.0}),
    Setting("usual chain", 1.15, {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}),
    Setting("min_p .05", 1.15, {"min_p": 0.05}),
    Setting("top_k 1000, T .8", 1.8, {"temperature": 0.8, "top_k": 1000}),
    Setting("T .8", 2.5, {"temperature": 0.8}),
    Setting("top_p .9", 3.0, {"top_p": 0.9}),
    Setting("top_p .95, T 1.5", 6.0, {"temperature": 1.5, "top_p": 0.95}),
)
"""The usual chain is temperature .8, top_k 50, top_p .95, min_p .05."""

SOFTMAX_LIMIT = 3.0
AVX2_MARGIN = 1.4
ADVERSARIAL_MARGIN = 3.0
FIXED_LIMIT = 1.03
FULL_SOFTMAX = ("T .8", "softmax")
"""Settings whose work is one softmax over the vocabulary."""


GPU_TARGETS = {("usual chain", 1): 40.0, ("usual chain", 64): 60.0}
GPU_TARGETS |= {("top_p .9", batch): 2 * us for (_, batch), us in GPU_TARGETS.items()}
"""Targets on an H100 or H200: microseconds per batch, by setting and batch size."""


def by_name(name: str) -> Setting:
    """Find a setting."""
    return next(setting for setting in SETTINGS if setting.name == name)


def with_logprobs(setting: Setting) -> float:
    """Return the target of a setting with 20 raw log-probabilities: one softmax of the row, and .3.

    That softmax is at temperature 1. A draw over the vocabulary at another temperature needs a
    second one, which the target does not allow for.
    """
    return max(setting.limit, by_name("T .8").limit) + 0.3


def exact_limit(name: str) -> float | None:
    """Return the target of exact, in multiples of fast; None where there is no target."""
    return 1.6 if name in FULL_SOFTMAX else 1.03 if name == "usual chain" else None


def edges(vocabulary: int) -> tuple[Setting, ...]:
    """Settings at which the selection algorithm changes, with the targets of similar settings.

    One token more than a row has blocks of 128, half of the row, and a nucleus of nearly the row.
    """
    blocks, half = vocabulary // 128 + 1, vocabulary // 2
    top_k, nucleus = by_name("top_k 1000, T .8").limit, by_name("top_p .95, T 1.5").limit
    return (
        Setting("top_k V/128 + 1", top_k, {"temperature": 0.8, "top_k": blocks}),
        Setting("top_k V/2", top_k, {"temperature": 0.8, "top_k": half}),
        Setting("top_p .9999", nucleus, {"top_p": 0.9999}),
    )
