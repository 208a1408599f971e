"""README, docs and examples: code blocks and commands run, links and names exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample.engines import TENSOR_ENGINES
from fastsample.verification.invariants import INVARIANTS

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
}
README, API, GPU = PAGES["README.md"], PAGES["docs/api.md"], PAGES["docs/gpu.md"]


def blocks_of(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGES[page], flags=re.DOTALL | re.MULTILINE)


SHELL_LINES = "".join(block for page in PAGES for block in blocks_of(page, "sh")).splitlines()
COMMANDS = sorted(
    {line.partition("#")[0].strip() for line in SHELL_LINES if line.startswith("fastsample ")}
)

ALONE = [
    (page, number)
    for page in ("README.md", "docs/determinism.md", "docs/performance.md")
    for number in range(len(blocks_of(page)))
]


def run_block(page: str, number: int, names: dict[str, Any]) -> None:
    block = blocks_of(page)[number]
    name = f"{page}, block {number}"
    if "import torch" in block:
        pytest.importorskip("torch", reason=f"{name} needs torch")
    if 'engine="numba"' in block:
        pytest.importorskip("numba", reason=f"{name} needs numba")
    exec(compile(block, name, "exec"), names)


# ---------------------------------------------------------------- code and commands


@pytest.mark.parametrize(("page", "number"), ALONE)
def test_block_runs(page: str, number: int) -> None:
    run_block(page, number, {"__name__": "page"})


@pytest.mark.parametrize("number", range(1, len(blocks_of("docs/api.md"))))
def test_block_of_the_api_guide_runs_after_the_first(number: int) -> None:
    names: dict[str, Any] = {"__name__": "api"}
    run_block("docs/api.md", 0, names)
    run_block("docs/api.md", number, names)


def test_blocks_about_gpus_run_in_sequence() -> None:
    names: dict[str, Any] = {"__name__": "gpu"}
    for number in range(len(blocks_of("docs/gpu.md"))):
        run_block("docs/gpu.md", number, names)


def test_there_is_code_to_run() -> None:
    pages = (
        "README.md",
        "docs/determinism.md",
        "docs/performance.md",
        "docs/api.md",
        "docs/gpu.md",
    )
    assert all(len(blocks_of(page)) >= n for page, n in zip(pages, (2, 1, 1, 10, 3), strict=True))
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, tmp_path: Path) -> None:
    pytest.importorskip("typer", reason="the command line needs typer and rich")
    pytest.importorskip("rich", reason="the command line needs typer and rich")
    np.save(tmp_path / "logits.npy", np.linspace(-3, 3, 3_200, dtype=np.float32).reshape(32, 100))
    (tmp_path / "texts.json").write_text(json.dumps([f" word{i}" for i in range(100)]))
    # A relative path in PYTHONPATH would not lead to the package from another folder.
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    expected = {"table": "rank", "bench": "p99", "verify": "fingerprint"}
    assert expected[command.split()[1]] in done.stdout


# ---------------------------------------------------------------- quoted figures


def noise_table() -> dict[tuple[str, str], dict[str, float]]:
    """The first table of docs/determinism.md on noise: shares by noise and setting."""
    section = PAGES["docs/determinism.md"].partition("## How many tokens change")[2]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    header, _, *rest = lines
    rows = rest[: [line[0] for line in rest].index("noise")]
    return {
        (line[0], line[1]): {
            name: float(cell.lstrip("< ")) for name, cell in zip(header[2:], line[2:], strict=True)
        }
        for line in rows
    }


@pytest.mark.parametrize("page", ["README.md", "docs/performance.md"])
def test_what_pages_quote_of_noise_is_in_its_table(page: str) -> None:
    table = noise_table()
    normal, rounded, chain = (
        table["normal, 1e-3", "T .8"],
        table["rounded to bfloat16", "T .8"],
        table["rounded to bfloat16", "usual chain"],
    )
    shares = [normal["race"], normal["inverse"], rounded["race"], rounded["inverse"]]
    shares += [rounded["TV"], chain["race"], chain["inverse"]]
    (paragraph,) = re.findall(
        r"^\*\*What noise changes.*?\n\n", PAGES[page], re.DOTALL | re.MULTILINE
    )
    quoted = [float(number) for number in re.findall(r"(?<![\w.])\.\d+", paragraph)]
    assert quoted == [0.001, normal["race"], 0.8, *shares[1:]]


# ---------------------------------------------------------------- links and names


def anchors_of(page: str) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        page_path = target.resolve().relative_to(ROOT).as_posix()
        if not target.exists() or (anchor and anchor not in anchors_of(page_path)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    folders = "src|kernels|tests|benches|examples|docs|tools"
    named = re.findall(rf"(?<![\w/.])(?:{folders})/[\w./-]*\w", PAGES[page])
    absent = [path for path in named if "NAME" not in path and not (ROOT / path).exists()]
    assert absent == []


def test_the_index_links_every_page_of_docs() -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"index.md"}
    assert pages <= set(re.findall(r"\]\(([\w/-]+\.md)\)", PAGES["docs/index.md"]))


def test_functions_that_pages_name_exist() -> None:
    named = set(re.findall(r"fastsample\.(\w+)\(", "\n".join(PAGES.values())))
    assert named <= set(fastsample.__all__)


def test_the_api_guide_lists_every_engine_parameter_and_invariant() -> None:
    engines = ("native", "numba", "reference", *TENSOR_ENGINES)
    assert [name for name in engines if f'\n- `"{name}"`: ' not in API] == []
    assert [one.name for one in INVARIANTS if f"\n| {one.name} | " not in API] == []
    fields = fastsample.SamplingParams.__dataclass_fields__
    assert [name for name in fields if f"`{name}`" not in API] == []


def test_extras_of_the_readme_exist() -> None:
    extras = set(",".join(re.findall(r"\.\[([\w,]+)\]", README)).split(","))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert "cli" in extras
    assert extras <= set(re.findall(r"^(\w+) = ", declared, re.MULTILINE))


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= targets
    assert sorted(t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)) == []


def test_readme_and_example_are_short() -> None:
    """The example as `make lint` has it formatted."""
    example = (ROOT / "examples" / "generate.py").read_text(encoding="utf-8")
    assert len(example.splitlines()) <= 80
    assert len(README.splitlines()) <= 180


@pytest.mark.parametrize("content", [None, "hello", "float64", "one row"])
def test_a_wrong_file_of_logits_is_reported_in_one_line(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "rows.npy"
    if content == "hello":
        path.write_text(content)
    elif content:
        np.save(path, np.zeros(3, "f4") if content == "one row" else np.zeros((2, 3)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", __file__],
        capture_output=True,
        text=True,
        env={**os.environ, "FASTSAMPLE_LOGITS": str(path)},
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert len(lines) == 1
    assert "FASTSAMPLE_LOGITS must name a float32 .npy file of shape (rows, V), got" in lines[0]
