"""Tables, figure and pages made of the JSON of a bench run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pytest_benchmark")
pytest.importorskip("matplotlib")
pytest.importorskip("typer")

import picture
import publish
import rivals
import rows
import tables

from tests.support.bench_figures import make_figure

ROOT = Path(__file__).resolve().parents[2]


REPORT = tables.Report(
    [
        make_figure(),
        make_figure(contender=rivals.NUMPY, us=22.0, ratio=1.1, limit=None),
        make_figure(setting="T .8", us=1_234.5, ratio=2.4, limit=2.5),
        make_figure(source=rows.SMOLLM2, vocabulary=49_152, us=9.0, ratio=1.0, limit=None),
        make_figure(table="batch", batch=32, partner="row by row", ratio=0.9),
        make_figure(table="softmax", contender="torch", setting="softmax into out", limit=None),
        make_figure(table="adversarial", source="sorted", ratio=3.5, limit=3.0),
        *(
            make_figure(table="reductions", reduction=reduction, partner="fast", ratio=r, limit=1.2)
            for reduction, r in (("fixed", 1.1), ("exact", 1.3))
        ),
        make_figure(table="sums", contender="torch", setting="sum", vocabulary=10**6, limit=None),
    ],
    noisy=False,
)


def test_sheet_of_the_settings() -> None:
    sheet = tables.settings_sheet(REPORT, rows.GENERATOR, 151_936)
    assert sheet.header[1:4] == ["fastsample", "p99", "np.max"]
    assert sheet.lines == [
        ["greedy", "30", "50", "20", "1.50 !", "1", "", "22", ""],
        ["T .8", "1,230", "50", "20", "2.40", "2.5", "", "", ""],
    ]


def test_sheets_of_a_run() -> None:
    titles = [sheet.title for sheet in tables.sheets(REPORT)]
    assert [title.split(":")[0] for title in titles] == [
        *("SmolLM2, V = 49,152", "generator, V = 151,936"),
        *("cost of options", "cost of determinism", "sums of 1,000,000 float32 numbers"),
        "adversarial rows, V = 151,936",
    ]
    options, reductions, sums, adversarial = tables.sheets(REPORT)[-4:]
    assert [line[0] for line in options.lines] == ["torch", "B = 32"]
    assert options.lines[1][3:7] == ["row by row", "20", "0.90", "1"]
    assert reductions.header[1:4] == ["fast, us", "exact, us", "x fast"]
    assert reductions.lines == [
        ["greedy", "20", "30", "1.30 !", "1.2", "30", "1.10", "1.2"],
    ]
    assert sums.lines == [["torch", "30", "20", "1.50", "20"]]
    assert adversarial.header == ["setting", "target", "sorted"]
    assert adversarial.lines == [["greedy", "3", "3.50 !"]]


def test_a_figure_next_to_a_slow_maximum_is_marked() -> None:
    """Medians of np.max on the same rows: 20 where none is given; other rows do not count."""
    slow = make_figure(setting="T .8", partner_us=25.1, ratio=0.9)
    most = make_figure(setting="top_p .9", partner_us=25.0, ratio=1.1)
    others = [make_figure(vocabulary=9, source=rows.SMOLLM2, partner_us=90.0)] * 9
    by_row = make_figure(table="batch", partner="row by row", partner_us=900.0)
    report = tables.Report([*[make_figure()] * 3, slow, most, by_row, *others], noisy=False)
    lines = tables.settings_sheet(report, rows.GENERATOR, 151_936).lines
    assert [line[4] for line in lines] == ["1.50 !", "0.90 ?", "1.10 !"]
    assert tables.ratio(report, {**slow, "ratio": 2.0}) == "2.00 ! ?"
    assert tables.ratio(report, by_row) == "1.50 !"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.556, "0.556"),
        (9.04, "9.04"),
        (22.04, "22"),
        (355.4, "355"),
        (8_140, "8,140"),
    ],
)
def test_numbers_keep_three_digits(value: float | None, text: str) -> None:
    assert tables.number(value) == text


def test_markdown_without_some_columns() -> None:
    sheet = tables.Sheet("", ["a", "b", "c"], [["x", "1", "2"]])
    assert tables.as_markdown(sheet, ("b",)) == "| a | c |\n| --- | --: |\n| x | 2 |"


@pytest.mark.parametrize(
    ("name", "block", "part"),
    [
        ("README.md", publish.readme_block, "| greedy | 30 | 20 | 1.50 ! | 1 |"),
        ("docs/performance.md", publish.page_block, "**cost of options:"),
    ],
)
def test_pages_have_a_place_for_tables(tmp_path: Path, name: str, block: Any, part: str) -> None:
    page = tmp_path / "page.md"
    before = (ROOT / name).read_text(encoding="utf-8")
    page.write_text(before, encoding="utf-8")
    for _ in range(2):
        publish.write_between_marks(page, block(REPORT))
        text = page.read_text(encoding="utf-8")
        assert text.count(part) == 1
        assert publish.BLOCK.sub("", text) == publish.BLOCK.sub("", before)


def test_a_page_without_a_place_for_tables(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("no marks")
    with pytest.raises(ValueError, match=r"page\.md must have one marked block"):
        publish.write_between_marks(tmp_path / "page.md", "")


def test_every_sheet_is_on_a_page() -> None:
    titles = [sheet.title for sheet in tables.sheets(REPORT)]
    titles.remove(publish.readme_sheet(REPORT).title)
    assert all(f"**{title}**" in publish.page_block(REPORT) for title in titles)


def test_no_page_shows_what_only_we_can_repeat() -> None:
    mine = tables.Report([*REPORT.figures, make_figure(source=rows.FILE)], noisy=False)
    assert len(tables.sheets(mine)) == len(tables.sheets(REPORT)) + 1
    assert publish.page_block(mine) == publish.page_block(REPORT)


def test_equal_figures_draw_equal_pictures(tmp_path: Path) -> None:
    sets = [(rows.SMOLLM2, 49_152), (rows.GENERATOR, 151_936)]
    for name in ("a.svg", "b.svg"):
        picture.draw(REPORT, sets, tmp_path / name)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "generator, V = 151,936" in text and "NOISY" not in text
    points = picture.points(REPORT, rows.GENERATOR, 151_936)
    assert points[rivals.OURS] == [(0, 30.0), (4, 1234.5)]
    assert points["np.max"] == [(0, 20.0), (4, 20.0)]


@pytest.mark.parametrize(
    "text",
    [
        *("1 2 3", "[]", "{}", '{"benchmarks": [], "machine_info": {"noisy": false}}'),
        '{"benchmarks": [{"extra_info": {}}], "machine_info": {"noisy": false}}',
        '{"benchmarks": [{"extra_info": {"table": "settings"}}], "machine_info": {}}',
    ],
)
def test_a_file_that_is_no_run(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(SystemExit, match=r"published: .*a\.json is not the JSON of a run of these"):
        publish.main(done=tmp_path / "a.json")


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"nothing is published: .*absent"):
        publish.main(done=tmp_path / "absent")


def published_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noisy: bool) -> Path:
    """Pages and places to publish into, and the JSON of a run."""
    text = "before\n<!-- make bench README=1 writes this -->\n<!-- end -->\n"
    for name in ("README.md", "page.md"):
        (tmp_path / name).write_text(text)
    done = tmp_path / "done.json"
    benchmarks = [{"extra_info": figure} for figure in REPORT.figures]
    done.write_text(json.dumps({"machine_info": {"noisy": noisy}, "benchmarks": benchmarks}))
    places = {"ROOT": "", "FOLDER": "made", "PICTURE": "a.svg"}
    places.update({"README": "README.md", "PAGE": "page.md"})
    for name, place in places.items():
        monkeypatch.setattr(publish, name, tmp_path / place)
    return done


@pytest.mark.parametrize("noisy", [False, True])
def test_a_noisy_run_leaves_what_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noisy: bool, capsys: Any
) -> None:
    done = published_into(tmp_path, monkeypatch, noisy)
    if noisy:
        with pytest.raises(SystemExit, match="no page is changed"):
            publish.main(readme=True, done=done)
    else:
        publish.main(readme=True, done=done)
    assert ("NOISY" in capsys.readouterr().out) == noisy
    assert (tmp_path / "a.svg").exists() != noisy
    assert (tmp_path / "made" / "performance-noisy.svg").exists() == noisy
    for name in ("README.md", "page.md"):
        assert ("greedy" in (tmp_path / name).read_text()) != noisy


@pytest.mark.parametrize("noisy", [False, True])
def test_no_tracked_file_changes_without_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noisy: bool
) -> None:
    done = published_into(tmp_path, monkeypatch, noisy)
    publish.main(done=done)
    assert not (tmp_path / "a.svg").exists()
    picture_file = "performance-noisy.svg" if noisy else "performance.svg"
    assert [path.name for path in (tmp_path / "made").iterdir()] == [picture_file]
    assert "greedy" not in (tmp_path / "README.md").read_text()


def test_a_noisy_run_leaves_the_json_of_a_quiet_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pytest_runs(command: list[str], cwd: Path) -> Any:
        (part,) = (word for word in command if word.startswith("--benchmark-json="))
        Path(part.partition("=")[2]).write_text("noisy" if "--noisy" in command else "quiet")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(publish, "FOLDER", tmp_path)
    monkeypatch.setattr(publish.subprocess, "run", pytest_runs)
    assert [publish.run(noisy, 0).name for noisy in (False, True)] == [
        *("performance.json", "performance-noisy.json"),
    ]
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"performance.json": "quiet", "performance-noisy.json": "noisy"}


def test_a_partial_run_leaves_the_json_of_a_full_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    written = published_into(tmp_path, monkeypatch, noisy=False).read_text()
    ran: list[str] = []

    def pytest_runs(command: list[str], cwd: Path) -> Any:
        ran.append(command[3])
        (part,) = (word for word in command if word.startswith("--benchmark-json="))
        Path(part.partition("=")[2]).write_text(written)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(publish.subprocess, "run", pytest_runs)
    publish.main(only="reductions")
    assert ran == ["benches/bench_reductions.py"] and (ROOT / ran[0]).exists()
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["reductions.json"]
    assert "cost of determinism" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no page is changed: --only and --readme"):
        publish.main(only="reductions", readme=True)
