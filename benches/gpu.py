"""Benchmark the engines on a GPU, after checking that their tokens equal native's.

    python benches/gpu.py                    # V = 151,936; under 8 minutes
    python benches/gpu.py --vocabulary 4096  # smaller rows

First, tokens and kept counts of every setting and dtype are compared with native's; a difference
ends the run. Then the engines and their rivals (gpu_rivals.py) are timed (gpu_clock.py) on batches
of 1 to 512 rows on the device. The floor is the time to read the rows once: their bytes over the
bandwidth of a copy on this device. The JSON has every figure. Without a GPU nothing is timed; the
engines that run there are still compared: torch, and Triton in its interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import machine
import numpy as np
import torch
import typer
from gpu_clock import bandwidth, times_of
from gpu_rivals import RIVALS, Draw
from rich.console import Console
from rows import GENERATOR, RowSet
from settings import GPU_TARGETS, SETTINGS, Setting
from tables import Figure, Sheet, as_table, number
from torch import Tensor

import fastsample
from fastsample.engines import resolve

ENGINES = ("triton", "torch")
BATCHES = (1, 8, 64, 256, 512)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DRAWS = 16
"""Tokens drawn from each row to compare an engine with native."""

INTERPRETED_VOCABULARY, INTERPRETED_ROWS = 2_100, 2
LIMIT = 400.0
"""Seconds after which nothing more is timed."""

HERE = Path(__file__).resolve()


class UnequalError(RuntimeError):
    """An engine's output is not native's."""


# ---------------------------------------------------------------- equality


def absent(engine: str) -> str | None:
    """Return why an engine cannot run here, or None."""
    try:
        resolve(engine)
    except RuntimeError as error:
        return str(error)
    return None


def compare(engine: str, rows: Tensor, device: str, setting: Setting, draws: int = DRAWS) -> int:
    """Compare an engine's tokens and kept counts with native's; return the number of tokens.

    Raises
    ------
    UnequalError
        They differ.
    """
    options = {
        **setting.params,
        "seed": 3,
        "position": 1,
        "stream": "row",
        "n": draws,
        "kept_count": True,
    }
    expected = fastsample.sample(rows, **options)
    found = fastsample.sample(rows.to(device), **options, engine=engine, on_invalid="mark")
    for name in ("tokens", "kept_count"):
        one, other = getattr(expected, name), getattr(found, name).cpu()
        wrong = int((one != other).sum())
        if wrong:
            raise UnequalError(
                f"{engine} on {device}, {setting.name}, {rows.dtype}: {wrong} of {one.numel()} "
                f"{name} are not native's"
            )
    return expected.tokens.numel()


def compare_all(engine: str, rows: Tensor, device: str, draws: int = DRAWS) -> int:
    """Compare every setting in every dtype; return the number of tokens."""
    return sum(
        compare(engine, rows.to(dtype), device, setting, draws)
        for dtype in DTYPES
        for setting in SETTINGS
    )


def compare_in_subprocess() -> int | str:
    """Compare interpreted Triton with native on small rows, in a process started for it."""
    command = [sys.executable, str(HERE), "--interpreted"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UnequalError(done.stderr.strip())
    return json.loads(done.stdout)


def compare_interpreted() -> int | str:
    """Compare in the subprocess: return the number of tokens, or why Triton cannot run."""
    why = absent("triton")
    rows = generated(INTERPRETED_VOCABULARY, INTERPRETED_ROWS)
    return compare_all("triton", rows, "cpu", INTERPRETED_ROWS) if why is None else why


def generated(vocabulary: int, count: int | None = None) -> Tensor:
    """Rows of the generator, float32 of shape (count, vocabulary)."""
    return torch.from_numpy(np.stack(RowSet(GENERATOR, vocabulary).distinct()[:count]))


# ---------------------------------------------------------------- times


def ours(engine: str, setting: Setting, batch: int) -> Draw:
    """A draw as in a server: positions are a tensor, tokens go into an existing one."""
    position = torch.zeros(batch, dtype=torch.int64, device="cuda")
    out = torch.empty_like(position)
    options = {**setting.params, "seed": 1, "stream": "row", "engine": engine, "on_invalid": "mark"}
    return lambda rows: fastsample.sample(rows, **options, position=position, out=out)


def rivals_of(setting: Setting, rows: Tensor, console: Console) -> dict[str, Draw]:
    """Return the rivals that support a setting here; print the name of one that fails."""
    able = {}
    for name, make in RIVALS.items():
        draw = make(setting)
        if draw is None:
            continue
        try:
            draw(rows)
        except Exception as error:
            console.print(f"{name}, {setting.name}: not timed, {error}", soft_wrap=True)
            continue
        able[name] = draw
    return able


def inputs_of(pool: Tensor, batch: int, cache: int) -> list[Tensor]:
    """Return 2 to 128 batches: more bytes than twice the cache, if the pool has as many."""
    count = min(128, max(2, -(-2 * cache // pool[:batch].nbytes)), len(pool) // batch)
    return [pool[at * batch : (at + 1) * batch] for at in range(count)]


def pool_of(rows: Tensor) -> Tensor:
    """Twice the largest batch on the device: rows, and the same rows with tokens rotated."""
    there = rows.cuda()
    count = -(-2 * max(BATCHES) // len(rows))
    return torch.cat([there.roll(977 * i, 1) for i in range(count)])


def figures(
    pool: Tensor, engines: list[str], bytes_a_second: float, console: Console
) -> Iterator[Figure]:
    """Time every contender at every setting and size of batch."""
    cache = torch.cuda.get_device_properties(pool.device).L2_cache_size
    for setting in SETTINGS:
        rivals = rivals_of(setting, pool[:2], console)
        for batch in BATCHES:
            inputs = inputs_of(pool, batch, cache)
            floor = inputs[0].nbytes / bytes_a_second * 1e6
            mine = {engine: ours(engine, setting, batch) for engine in engines}
            for name, draw in {**mine, **rivals}.items():
                times = times_of(draw, inputs)
                yield {
                    "setting": setting.name,
                    "batch": batch,
                    "contender": name,
                    "us": times.best,
                    "graph_us": times.graph,
                    "eager_us": times.eager,
                    "floor_us": floor,
                    "ratio": times.best / floor,
                    "target_us": GPU_TARGETS.get((setting.name, batch)),
                }


# ---------------------------------------------------------------- output


def sheet_of(found: list[Figure], title: str) -> Sheet:
    """One line per setting and batch: every contender's microseconds, and the first one's ratio.

    "!" marks an engine of ours that misses its target or is slower than a rival, "~" a call that
    was not captured in a graph.
    """
    names = list(dict.fromkeys(figure["contender"] for figure in found))
    header = ["setting", "B", *names, "floor", f"{names[0]} / floor", "target"] if names else []
    cells: dict[tuple[str, int], dict[str, Figure]] = {}
    for figure in found:
        cells.setdefault((figure["setting"], figure["batch"]), {})[figure["contender"]] = figure
    lines = []
    for (setting, batch), here in cells.items():
        times = [_cell(here[name]) if name in here else "" for name in names]
        first = next(iter(here.values()))
        mark = " !" if is_behind(list(here.values())) else ""
        ratio = f"{first['ratio']:.2f}{mark}"
        lines.append(
            [
                setting,
                str(batch),
                *times,
                number(first["floor_us"]),
                ratio,
                number(first["target_us"]),
            ]
        )
    return Sheet(title, header, lines)


def _cell(figure: Figure) -> str:
    return f"{number(figure['us'])}{' ~' if figure['graph_us'] is None else ''}"


def is_behind(here: list[Figure]) -> bool:
    """Whether the first of these misses its target, or is slower than a rival."""
    first, target = here[0], here[0]["target_us"]
    rivals = [figure["us"] for figure in here if figure["contender"] not in ENGINES]
    return first["us"] > min([*rivals, first["us"] if target is None else target])


def device_facts() -> dict[str, Any] | None:
    """Describe the GPU; None without one."""
    if not torch.cuda.is_available():
        return None
    versions = {}
    for name in ("triton", "flashinfer-python"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "name": torch.cuda.get_device_name(),
        "capability": torch.cuda.get_device_capability(),
        "cuda": torch.version.cuda,
        "versions": versions,
    }


def report(console: Console, name: str, result: int | str) -> int | str:
    """Print the outcome of a comparison with native, and return it."""
    text = f"not run: {result}" if isinstance(result, str) else f"{result:,} tokens equal native's"
    console.print(f"{name}: {text}", soft_wrap=True)
    return result


def without_a_gpu(console: Console, vocabulary: int) -> dict[str, int | str]:
    """Compare the engines that run without a GPU."""
    console.print("torch finds no GPU: nothing is timed, no graph is captured")
    small = generated(vocabulary, INTERPRETED_ROWS)
    return {
        "triton": report(console, "triton, interpreted", compare_in_subprocess()),
        "torch": report(console, "torch on the CPU", compare_all("torch", small, "cpu")),
    }


def on_the_gpu(console: Console, vocabulary: int) -> tuple[dict[str, int | str], list[Figure]]:
    """Compare with native, then time and print."""
    started = time.monotonic()
    rows = generated(vocabulary)
    equal = {
        engine: report(console, engine, absent(engine) or compare_all(engine, rows, "cuda"))
        for engine in ENGINES
    }
    engines = [name for name in ENGINES if isinstance(equal[name], int)]
    copy_rate, pool = bandwidth(), pool_of(rows)
    console.print(f"copy bandwidth: {copy_rate / 1e9:,.0f} GB/s")
    found: list[Figure] = []
    for figure in figures(pool, engines, copy_rate, console):
        found.append(figure)
        if time.monotonic() - started > LIMIT:
            console.print(f"stopped after {LIMIT:.0f} seconds: the rest is not timed")
            break
    console.print(as_table(sheet_of(found, f"V = {vocabulary:,}: microseconds per batch")))
    return equal, found


def main(
    vocabulary: Annotated[int, typer.Option(min=1_001)] = 151_936,
    to: Annotated[Path, typer.Option(help="Path of the JSON.")] = HERE.parents[1]
    / ".benchmarks/gpu.json",
    interpreted: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Check, time, print one table and write JSON."""
    console, device, found = Console(width=150), device_facts(), []
    try:
        if interpreted:
            print(json.dumps(compare_interpreted()))
            return
        if device is None:
            equal = without_a_gpu(console, vocabulary)
        else:
            console.print(device)
            equal, found = on_the_gpu(console, vocabulary)
    except UnequalError as error:
        raise SystemExit(str(error)) from error
    result = {"device": device, "host": machine.facts(), "equal": equal, "figures": found}
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(result, indent=1), encoding="utf-8")
    console.print(f"written: {to}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
