"""The engines on a GPU: equal to native first, then timed next to what else draws there.

    python benches/gpu.py                    # V = 151,936; under 8 minutes
    python benches/gpu.py --vocabulary 4096  # smaller rows

First tokens and kept counts of every setting and dtype are held to native's: one that differs ends
it. Then each contender is timed (gpu_clock.py) on batches of 1 to 512 rows that lie on the device,
its rivals (gpu_rivals.py) too. The floor is what reading the rows once takes: their bytes over the
bandwidth of a copy on this device. The JSON has every figure. Without a GPU it says so, times
nothing, and holds to native what runs without one: torch, and Triton in its interpreter.
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
from settings import GPU_AIMS, SETTINGS, Setting
from tables import Figure, Sheet, as_table, number
from torch import Tensor

import fastsample
from fastsample.engines import resolve

ENGINES = ("triton", "torch")
BATCHES = (1, 8, 64, 256, 512)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
DRAWS = 16
"""Tokens drawn from each row where engines are held to native."""

INTERPRETED_VOCABULARY, INTERPRETED_ROWS = 2_100, 2
LIMIT = 400.0
"""Seconds after which nothing more is timed."""

HERE = Path(__file__).resolve()


class UnequalError(RuntimeError):
    """An engine's answer is not native's."""


# ---------------------------------------------------------------- equality


def absent(engine: str) -> str | None:
    """Tell why an engine cannot be asked here, None where it can."""
    try:
        resolve(engine)
    except RuntimeError as error:
        return str(error)
    return None


def held(engine: str, rows: Tensor, device: str, setting: Setting, draws: int = DRAWS) -> int:
    """Hold an engine's tokens and kept counts to native's; return how many tokens that were.

    Raises
    ------
    UnequalError
        Some differ.
    """
    how = {**setting.params, "seed": 3, "position": 1, "stream": "row", "n": draws}
    expected = fastsample.sample(rows, **how)
    found = fastsample.sample(rows.to(device), **how, engine=engine, on_invalid="mark")
    for name in ("tokens", "kept_count"):
        one, other = getattr(expected, name), getattr(found, name).cpu()
        wrong = int((one != other).sum())
        if wrong:
            raise UnequalError(
                f"{engine} on {device}, {setting.name}, {rows.dtype}: {wrong} of {one.numel()} "
                f"{name} are not native's"
            )
    return expected.tokens.numel()


def held_all(engine: str, rows: Tensor, device: str, draws: int = DRAWS) -> int:
    """Hold every setting in every dtype; return how many tokens were compared."""
    return sum(
        held(engine, rows.to(dtype), device, setting, draws)
        for dtype in DTYPES
        for setting in SETTINGS
    )


def held_in_a_child() -> int | str:
    """Hold Triton to native in its interpreter, which a process is started with, on small rows."""
    command = [sys.executable, str(HERE), "--interpreted"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True)
    if told.returncode:
        raise UnequalError(told.stderr.strip())
    return json.loads(told.stdout)


def held_interpreted() -> int | str:
    """Compare in the child: how many tokens that were, or why it cannot be."""
    why = absent("triton")
    rows = generated(INTERPRETED_VOCABULARY, INTERPRETED_ROWS)
    return held_all("triton", rows, "cpu", INTERPRETED_ROWS) if why is None else why


def generated(vocabulary: int, count: int | None = None) -> Tensor:
    """Rows of the generator, float32 of shape (count, vocabulary)."""
    return torch.from_numpy(np.stack(RowSet(GENERATOR, vocabulary).distinct()[:count]))


# ---------------------------------------------------------------- times


def ours(engine: str, setting: Setting, batch: int) -> Draw:
    """A draw as a server calls it: positions in a tensor, tokens into one that is there."""
    position = torch.zeros(batch, dtype=torch.int64, device="cuda")
    out = torch.empty_like(position)
    how = {**setting.params, "seed": 1, "stream": "row", "engine": engine, "on_invalid": "mark"}
    return lambda rows: fastsample.sample(rows, **how, position=position, out=out)


def rivals_of(setting: Setting, rows: Tensor, console: Console) -> dict[str, Draw]:
    """The rivals that can draw at a setting here; one that fails on some rows is told of."""
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
    """Batches of more bytes than twice the cache, if there are as many: 2 to 128."""
    count = min(128, max(2, -(-2 * cache // pool[:batch].nbytes)), len(pool) // batch)
    return [pool[at * batch : (at + 1) * batch] for at in range(count)]


def pool_of(rows: Tensor) -> Tensor:
    """Two of the largest batches on the device: rows, and rows whose tokens were moved around."""
    there = rows.cuda()
    count = -(-2 * max(BATCHES) // len(rows))
    return torch.cat([there.roll(977 * turn, 1) for turn in range(count)])


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
                    **{"setting": setting.name, "batch": batch, "contender": name},
                    **{"us": times.best, "graph_us": times.graph, "eager_us": times.eager},
                    **{"floor_us": floor, "ratio": times.best / floor},
                    "aim_us": GPU_AIMS.get((setting.name, batch)),
                }


# ---------------------------------------------------------------- what is shown


def sheet_of(found: list[Figure], title: str) -> Sheet:
    """One line a setting and batch: every contender's microseconds, and the first one's ratio.

    "!" stands where ours is over its aim or behind a rival, "~" where a call was not in a graph.
    """
    names = list(dict.fromkeys(figure["contender"] for figure in found))
    header = ["setting", "B", *names, "floor", f"{names[0]} / floor", "aim"] if names else []
    cells: dict[tuple[str, int], dict[str, Figure]] = {}
    for figure in found:
        cells.setdefault((figure["setting"], figure["batch"]), {})[figure["contender"]] = figure
    lines = []
    for (setting, batch), here in cells.items():
        told = [_cell(here[name]) if name in here else "" for name in names]
        first = next(iter(here.values()))
        mark = " !" if is_behind(list(here.values())) else ""
        ratio = f"{first['ratio']:.2f}{mark}"
        lines.append(
            [setting, str(batch), *told, number(first["floor_us"]), ratio, number(first["aim_us"])]
        )
    return Sheet(title, header, lines)


def _cell(figure: Figure) -> str:
    return f"{number(figure['us'])}{' ~' if figure['graph_us'] is None else ''}"


def is_behind(here: list[Figure]) -> bool:
    """Whether the first of these is over its aim, or slower than a rival."""
    first, aim = here[0], here[0]["aim_us"]
    rivals = [figure["us"] for figure in here if figure["contender"] not in ENGINES]
    return first["us"] > min([*rivals, first["us"] if aim is None else aim])


def device_facts() -> dict[str, Any] | None:
    """Tell what the figures are of; None without a GPU."""
    if not torch.cuda.is_available():
        return None
    told = {}
    for name in ("triton", "flashinfer-python"):
        try:
            told[name] = version(name)
        except PackageNotFoundError:
            told[name] = "not installed"
    return {
        "name": torch.cuda.get_device_name(),
        "capability": torch.cuda.get_device_capability(),
        "cuda": torch.version.cuda,
        "versions": told,
    }


def said(console: Console, where: str, told: int | str) -> int | str:
    """Print what came of holding an engine to native, and hand it on."""
    what = f"not asked: {told}" if isinstance(told, str) else f"{told:,} tokens equal native's"
    console.print(f"{where}: {what}", soft_wrap=True)
    return told


def without_a_gpu(console: Console, vocabulary: int) -> dict[str, int | str]:
    """Hold to native what runs here."""
    console.print("no GPU that torch can use is here: nothing is timed, no graph is made")
    small = generated(vocabulary, INTERPRETED_ROWS)
    return {
        "triton": said(console, "triton, interpreted", held_in_a_child()),
        "torch": said(console, "torch on the CPU", held_all("torch", small, "cpu")),
    }


def on_the_gpu(console: Console, vocabulary: int) -> tuple[dict[str, int | str], list[Figure]]:
    """Hold to native, then time and print."""
    started = time.monotonic()
    rows = generated(vocabulary)
    equal = {
        engine: said(console, engine, absent(engine) or held_all(engine, rows, "cuda"))
        for engine in ENGINES
    }
    engines = [name for name in ENGINES if isinstance(equal[name], int)]
    speed, pool = bandwidth(), pool_of(rows)
    console.print(f"a copy moves {speed / 1e9:,.0f} GB/s; microseconds a batch, V = {vocabulary:,}")
    found: list[Figure] = []
    for figure in figures(pool, engines, speed, console):
        found.append(figure)
        if time.monotonic() - started > LIMIT:
            console.print(f"{LIMIT:.0f} seconds are over: the rest is not timed")
            break
    console.print(as_table(sheet_of(found, f"V = {vocabulary:,}: microseconds a batch")))
    return equal, found


def main(
    vocabulary: Annotated[int, typer.Option(min=1_001)] = 151_936,
    to: Annotated[Path, typer.Option(help="the JSON")] = HERE.parents[1] / ".benchmarks/gpu.json",
    interpreted: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Check, time, print one table and write JSON."""
    console, device, found = Console(width=150), device_facts(), []
    try:
        if interpreted:
            print(json.dumps(held_interpreted()))
            return
        if device is None:
            equal = without_a_gpu(console, vocabulary)
        else:
            console.print(device)
            equal, found = on_the_gpu(console, vocabulary)
    except UnequalError as error:
        raise SystemExit(str(error)) from error
    told = {"device": device, "host": machine.facts(), "equal": equal, "figures": found}
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(told, indent=1), encoding="utf-8")
    console.print(f"written: {to}", soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
