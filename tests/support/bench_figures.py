"""Figures of a run of the benches, made up."""

from __future__ import annotations

from typing import Any

import rivals
import rows


def make_figure(**changes: Any) -> dict[str, Any]:
    """A figure as the benches write it, with some fields changed."""
    return {
        **{"table": "settings", "setting": "greedy", "contender": rivals.OURS},
        **{"source": rows.GENERATOR, "vocabulary": 151_936, "batch": 1, "dtype": "float32"},
        **{"isa": "x86-64-v4", "threads": 1, "partner": "np.max", "limit": 1.0},
        **{"us": 30.0, "mean_us": 32.0, "p99_us": 50.0, "ratio": 1.5},
        **{"partner_us": 20.0, "partner_mean_us": 21.0, "partner_p99_us": 25.0},
        **{"bytes_per_second": 2e10, "cpu": "a processor", "cores": 2, "numpy_simd": ["AVX2"]},
        "zen4": False,
        **{"versions": {"python": "3.11.7", "numpy": "2.4.6"}, "load_average": 0.1, "noisy": False},
        **changes,
    }


def make_loop_figure(table: str, form: str, us: float, **changes: Any) -> dict[str, Any]:
    """A figure of benches/loop.py or benches/cold.py, with the facts that a run adds."""
    names = ("cpu", "zen4", "cores", "versions", "numpy_simd", "load_average", "noisy", "isa")
    facts = {name: make_figure()[name] for name in names}
    step = {"step_us": 900.0} if table == "loop" else {}
    times = {"us": us, "mean_us": us + 1, "p90_us": us + 2, "p99_us": us + 3}
    return {**facts, "table": table, "form": form, "batch": 1, **times, **step, **changes}
