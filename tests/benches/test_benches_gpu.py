"""The parts of benches/gpu.py: what it compares, what it times against, and what it prints.

Where no GPU is, nothing can be timed: what it says and writes then is tested too.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("typer")
pytest.importorskip("cpuinfo")
pytestmark = pytest.mark.torch

import gpu  # noqa: E402
import gpu_clock  # noqa: E402
import gpu_rivals  # noqa: E402
from rich.console import Console  # noqa: E402
from settings import GPU_TARGETS, SETTINGS, by_name  # noqa: E402

import fastsample  # noqa: E402

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
A_GPU = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU that torch can use is here"
)


@pytest.fixture
def rows() -> torch.Tensor:
    return gpu.generated(1_500, 3)


def test_the_targets_on_a_gpu() -> None:
    usual, nucleus = "usual chain", "top_p .9"
    assert {(usual, 1): 40, (usual, 64): 60, (nucleus, 1): 80, (nucleus, 64): 120} == GPU_TARGETS
    assert {name for name, _ in GPU_TARGETS} <= {setting.name for setting in SETTINGS}
    assert {batch for _, batch in GPU_TARGETS} <= set(gpu.BATCHES)


# ---------------------------------------------------------------- equality


def test_every_setting_and_dtype_is_compared_with_native(rows: torch.Tensor) -> None:
    assert gpu.compare_all("torch", rows, "cpu", 2) == len(rows) * len(SETTINGS) * 3 * 2


@pytest.mark.parametrize("name", ["tokens", "kept_count"])
def test_an_engine_that_differs_is_found(
    rows: torch.Tensor, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    true = fastsample.sample

    def off_by_one(*given: Any, **how: Any) -> Any:
        result = true(*given, **how)
        if "engine" in how:
            getattr(result, name)[1] += 1
        return result

    monkeypatch.setattr(fastsample, "sample", off_by_one)
    with pytest.raises(gpu.UnequalError, match=rf"greedy, torch\.float32: \d+ of \d+ {name} are"):
        gpu.compare("torch", rows, "cpu", by_name("greedy"))


def test_an_engine_that_cannot_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.absent("torch") is None

    def missing(engine: str) -> None:
        raise RuntimeError(f"engine '{engine}' needs a CUDA device")

    monkeypatch.setattr(gpu, "resolve", missing)
    assert gpu.absent("triton") == "engine 'triton' needs a CUDA device"


@pytest.mark.nightly
@pytest.mark.triton
def test_interpreted_triton_is_compared_in_a_subprocess() -> None:
    pytest.importorskip("triton")
    assert gpu.compare_in_subprocess() == gpu.INTERPRETED_ROWS**2 * len(SETTINGS) * 3


# ---------------------------------------------------------------- rivals


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_rivals_draw_from_the_kept_set_or_from_the_row(rows: torch.Tensor, setting: Any) -> None:
    for row in rows:
        whole = gpu_rivals.softmax_draw(setting)(row.expand(50, -1))
        assert ((whole >= 0) & (whole < rows.shape[1])).all()
        topk = gpu_rivals.topk_draw(setting)
        assert (topk is None) == ("top_k" not in setting.params)
        if topk is not None:
            kept = fastsample.kept_set(row.numpy(), **setting.params).tokens
            assert np.isin(topk(row.expand(50, -1)).numpy(), kept).all()


def test_the_greedy_rival_takes_the_largest(rows: torch.Tensor) -> None:
    assert torch.equal(gpu_rivals.softmax_draw(by_name("greedy"))(rows), rows.argmax(1))


def test_a_rival_that_fails_is_left_out_and_reported(
    rows: torch.Tensor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(rows: torch.Tensor) -> None:
        raise RuntimeError("it cannot be compiled")

    monkeypatch.setitem(gpu_rivals.RIVALS, gpu_rivals.FLASHINFER, lambda setting: fails)
    able = gpu.rivals_of(by_name("usual chain"), rows, Console(width=150))
    assert list(able) == [gpu_rivals.SOFTMAX, gpu_rivals.TOPK]
    assert "FlashInfer, usual chain: not timed, it cannot be compiled" in capsys.readouterr().out


# ---------------------------------------------------------------- inputs and the table


def test_inputs_are_rows_side_by_side_and_more_than_the_cache() -> None:
    pool = torch.arange(40.0).view(20, 2)
    assert [len(gpu.inputs_of(pool, 2, cache)) for cache in (0, 20, 64, 10**9)] == [2, 3, 8, 10]
    assert torch.equal(torch.cat(gpu.inputs_of(pool, 4, 10**9)), pool)
    assert len(gpu.inputs_of(torch.zeros(500, 1), 1, 10**9)) == 128


def made(contender: str, us: float, batch: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        **{"setting": "usual chain", "batch": batch, "contender": contender, "us": us},
        **{"graph_us": us, "eager_us": 9 * us, "floor_us": 5.0, "ratio": us / 5, "target_us": 40.0},
        **changes,
    }


def test_the_table_marks_what_misses_its_target_or_behind_a_rival() -> None:
    found = [
        *(made("triton", 30.0), made("torch", 900.0, graph_us=None), made("topk", 31.0)),
        *(made("triton", 41.0, 8), made("topk", 90.0, 8)),
        *(made("triton", 20.0, 64, target_us=None), made("topk", 19.0, 64)),
        *(made("triton", 20.0, 512, target_us=None), made("torch", 19.0, 512)),
    ]
    sheet = gpu.sheet_of(found, "a title")
    head = ["setting", "B", "triton", "torch", "topk", "floor", "triton / floor", "target"]
    assert sheet.header == head
    assert [line[1:] for line in sheet.lines] == [
        ["1", "30", "900 ~", "31", "5", "6.00", "40"],
        ["8", "41", "", "90", "5", "8.20 !", "40"],
        ["64", "20", "", "19", "5", "4.00 !", ""],
        ["512", "20", "19", "", "5", "4.00", ""],
    ]


# ---------------------------------------------------------------- the command


@NO_GPU
def test_without_a_gpu_engines_are_only_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "compare_in_subprocess", lambda: "it is not installed")
    gpu.main(vocabulary=1_100, to=tmp_path / "made" / "gpu.json")
    out = capsys.readouterr().out
    assert "torch finds no GPU: nothing is timed, no graph is captured" in out
    assert "triton, interpreted: not run: it is not installed" in out
    tokens = 96 * len(SETTINGS)
    assert f"torch on the CPU: {tokens} tokens equal native's" in out
    written = json.loads((tmp_path / "made" / "gpu.json").read_text(encoding="utf-8"))
    assert written["device"] is None and written["figures"] == []
    assert written["equal"] == {"triton": "it is not installed", "torch": tokens}
    assert {"python", "torch"} <= written["host"]["versions"].keys()


@NO_GPU
def test_where_engines_differ_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs() -> int:
        raise gpu.UnequalError("triton differs")

    monkeypatch.setattr(gpu, "compare_in_subprocess", differs)
    with pytest.raises(SystemExit, match="triton differs"):
        gpu.main(vocabulary=1_100, to=tmp_path / "gpu.json")
    assert not list(tmp_path.iterdir())


@A_GPU
def test_a_capture_that_fails_leaves_nothing_behind() -> None:
    stream = torch.cuda.current_stream()
    with pytest.raises(RuntimeError):
        gpu_clock.captured(torch.cuda.synchronize)
    assert torch.cuda.current_stream() == stream
    torch.rand(3, device="cuda")
    gpu_clock.captured(lambda: torch.rand(3, device="cuda")).replay()


def test_a_failed_capture_gives_torch_a_new_generator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a GPU: the one in use keeps to itself that it is in a capture, and would refuse."""
    stream, generator = MagicMock(), MagicMock()
    cuda = MagicMock(default_generators=[generator], **{"current_device.return_value": 0})
    cuda.graph.return_value.__exit__.side_effect = RuntimeError("capture was broken off")
    cuda.current_stream.return_value = stream
    monkeypatch.setattr(gpu_clock.torch, "cuda", cuda)
    monkeypatch.setattr(gpu_clock.torch, "Generator", made := MagicMock())
    with pytest.raises(RuntimeError, match="broken off"):
        gpu_clock.captured(lambda: None)
    generator.graphsafe_set_state.assert_called_once_with(made().graphsafe_get_state())
    cuda.stream.assert_called_once_with(stream)
    assert cuda.stream().__exit__.called


@A_GPU
@pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1",
    reason="Triton is interpreted (TRITON_INTERPRET=0 takes the GPU)",
)
@pytest.mark.nightly
def test_on_a_gpu_every_contender_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "BATCHES", (1, 8))
    gpu.main(vocabulary=4_096, to=tmp_path / "gpu.json")
    written = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    found = {(figure["setting"], figure["contender"]) for figure in written["figures"]}
    assert {(setting.name, "torch") for setting in SETTINGS} <= found
    assert all(figure["us"] > 0 for figure in written["figures"])
