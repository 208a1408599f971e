"""Every Python block of the README runs as it stands there; its commands exist in the Makefile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number: int) -> None:
    block = BLOCKS[number]
    if "import torch" in block:
        pytest.importorskip("torch", reason=f"block {number} of the README needs torch")
    exec(compile(block, f"README.md, block {number}", "exec"), {"__name__": "readme"})


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) >= 2


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"(?:^|`)make ([a-z]+)", TEXT, re.MULTILINE))
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    assert {"demo", "test"} <= targets
    assert sorted(t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)) == []
