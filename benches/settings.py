"""The settings that benches time, and their goals in multiples of `np.max` of the same rows.

Goals are for recorded rows, which come from the third-level cache, and for AMD's Zen 4. On another
processor the same figures are reported. Generated rows come from memory and have no goals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import fastsample

VOCABULARIES = (151_936, 262_144, 32_000)
"""The sizes of vocabulary that have goals, in the order of the goals of a setting."""


@dataclass(frozen=True)
class Setting:
    """Sampling parameters by name, and the goals for their ratio by vocabulary."""

    name: str
    goals: tuple[float, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)

    def sampling(self, **params: Any) -> fastsample.SamplingParams:
        """Make the parameters, with a seed and others in addition."""
        return fastsample.SamplingParams(**{"seed": 1, **self.params, **params})

    def goal(self, vocabulary: int) -> float | None:
        """Return the goal for rows of this size; None where there is none."""
        return dict(zip(VOCABULARIES, self.goals, strict=False)).get(vocabulary)


SETTINGS = (
    Setting("greedy", (0.72, 0.80, 0.75), {"temperature": 0.0}),
    Setting(
        "usual chain",
        (0.80, 0.88, 0.90),
        {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05},
    ),
    Setting("min_p .05", (0.90, 0.92, 1.1), {"min_p": 0.05}),
    Setting("T .8", (0.92, 0.92, 1.1), {"temperature": 0.8}),
    Setting("T 1", (0.92, 0.92, 1.1), {"temperature": 1.0}),
    Setting("top_p .9", (0.97, 0.97, 1.2), {"top_p": 0.9}),
    Setting("top_p .95, T .7", (0.97, 0.97, 1.2), {"temperature": 0.7, "top_p": 0.95}),
    Setting("top_p .95, T 1.5", (1.15, 1.15, 1.5), {"temperature": 1.5, "top_p": 0.95}),
    Setting("top_k 1000, T .8", (0.90, 0.90, 1.1), {"temperature": 0.8, "top_k": 1000}),
)
"""The usual chain is temperature .8, top_k 50, top_p .95, min_p .05."""

LOGPROBS_GOALS = (2.1, 2.1, 2.3)
"""What logprobs=0 may add to a setting: the log-probability of the token in the unmodified row."""

AVX2_MARGIN = 1.3
MEAN_MARGIN = 1.3
"""The most that a mean may be of its median."""

SOFTMAX_GOALS = (3.0,)
WORST_RATIO, WORST_US = 1.5, 1.0
"""The bounds of the race's mean on any row: a multiple of the inverse method's median, or so much
above it."""

FIXED_LIMIT = 1.03
FULL_SOFTMAX = ("T .8", "T 1", "softmax")
"""Settings whose work is one softmax over the vocabulary, where running sums draw."""


GPU_TARGETS = {("usual chain", 1): 40.0, ("usual chain", 64): 60.0}
GPU_TARGETS |= {("top_p .9", batch): 2 * us for (_, batch), us in GPU_TARGETS.items()}
"""Targets on an H100 or H200: microseconds per batch, by setting and batch size."""


def by_name(name: str) -> Setting:
    """Find a setting."""
    return next(setting for setting in SETTINGS if setting.name == name)


def with_logprobs(setting: Setting) -> Setting:
    """Return a setting with the goals that it has with logprobs=0."""
    goals = tuple(round(a + b, 2) for a, b in zip(setting.goals, LOGPROBS_GOALS, strict=True))
    return Setting(setting.name, goals, setting.params)


def on_avx2(setting: Setting) -> Setting:
    """Return a setting with the goals that it has on AVX2."""
    goals = tuple(round(goal * AVX2_MARGIN, 2) for goal in setting.goals)
    return Setting(setting.name, goals, setting.params)


def exact_limit(name: str) -> float | None:
    """Return the target of exact, in multiples of fast; None where there is no target."""
    return 1.6 if name in FULL_SOFTMAX else 1.03 if name == "usual chain" else None


def edges(vocabulary: int) -> tuple[Setting, ...]:
    """Settings at which the selection algorithm changes, and a flat distribution.

    One token more than a row has blocks of 128, half of the row, a nucleus of nearly the row.
    """
    blocks, half = vocabulary // 128 + 1, vocabulary // 2
    return (
        Setting("top_k V/128 + 1", params={"temperature": 0.8, "top_k": blocks}),
        Setting("top_k V/2", params={"temperature": 0.8, "top_k": half}),
        Setting("top_p .9999", params={"top_p": 0.9999}),
        Setting("T 5", params={"temperature": 5.0}),
    )
