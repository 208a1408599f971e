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

import loop_goals
import loop_sheets
import picture
import publish
import rivals
import rows
import sentences
import sheets
import tables

from tests.support.bench_figures import make_figure, make_loop_figure

ROOT = Path(__file__).resolve().parents[2]


RECORDED = {"source": rows.FILE, "limit": None}
REPORT = tables.Report(
    [
        make_figure(setting="np.argmax", contender=rivals.ARGMAX, us=24.0, ratio=1.2, limit=None),
        make_figure(limit=None),
        make_figure(contender=rivals.NUMPY, us=22.0, ratio=1.1, limit=None),
        make_figure(setting="T .8", us=1_234.5, ratio=2.4, limit=None),
        make_figure(source=rows.SMOLLM2, vocabulary=49_152, us=9.0, ratio=1.0, limit=None),
        make_figure(**RECORDED, setting="np.argmax", contender=rivals.ARGMAX, ratio=1.4),
        make_figure(source=rows.FILE, limit=1.4, mean_us=39.1),
        make_figure(**RECORDED, contender=rivals.NUMPY),
        *(
            make_figure(source=rows.FILE, setting=name, limit=1.5, mean_us=39.0)
            for name in sentences.LEADS
        ),
        *(
            make_figure(**RECORDED, setting=name, contender=rivals.INVERSE, ratio=3.0)
            for name in sentences.LEADS
        ),
        make_figure(table="logprobs", source=rows.FILE, ratio=2.0, limit=3.0),
        make_figure(table="AVX2", source=rows.FILE, ratio=2.0, limit=1.9, isa="x86-64-v3"),
        make_figure(table="batch", batch=32, partner="row by row", ratio=0.9),
        make_figure(table="softmax", contender="torch", setting="torch", limit=None),
        make_figure(table="adversarial", source="sorted", partner="inverse", limit=None),
        make_figure(
            **{"table": "adversarial", "source": "sorted", "contender": rivals.ARGMAX},
            **{"setting": "np.argmax", "us": 24.0, "limit": None},
        ),
        *(
            make_figure(table="reductions", reduction=reduction, partner="fast", ratio=r, limit=1.2)
            for reduction, r in (("fixed", 1.1), ("exact", 1.3))
        ),
        make_figure(table="sums", contender="torch", setting="sum", vocabulary=10**6, limit=None),
        make_figure(table="calls", setting="sampler(row)", vocabulary=16, limit=None),
        make_loop_figure("loop", loop_goals.MAXIMUM, 60.0),
        make_loop_figure("loop", loop_goals.ARGMAX, 20.0),
        make_loop_figure("loop", loop_goals.ROW, 26.0),
        make_loop_figure("loop", loop_goals.OWN_CLOCK, 27.0, own_us=25.5),
        make_loop_figure("loop", loop_goals.SLICED[1], 45.1),
        make_loop_figure("loop", loop_goals.AT, 44.0),
        make_loop_figure("loop", loop_goals.setting_form("greedy"), 100.0),
        make_loop_figure("cold", loop_goals.ROW, 15.0),
        make_loop_figure("cold", loop_goals.MASK, 31.0),
        make_loop_figure("cold", loop_goals.ARGMAX_OF_BATCH, 100.0, batch=8),
        make_loop_figure("cold", loop_goals.BATCH_ROWS, 109.0, batch=8),
    ],
    noisy=False,
)


def test_sheet_of_the_settings() -> None:
    sheet = sheets.settings_sheet(REPORT, rows.GENERATOR, 151_936)
    times = ["median us", "mean", "p99"]
    assert sheet.header == ["", *times, "np.max", "x np.max", rivals.NUMPY]
    assert sheet.lines == [
        ["np.max", "20", "21", "25", "", "1.00", ""],
        ["np.argmax", "24", "32", "50", "20", "1.20", ""],
        ["greedy", "30", "32", "50", "20", "1.50", "22"],
        ["T .8", "1,230", "32", "50", "20", "2.40", ""],
    ]


def test_sheet_of_recorded_rows_has_goals_and_the_inverse_method() -> None:
    sheet = sheets.settings_sheet(REPORT, rows.FILE, 151_936)
    assert sheet.header[5:8] == ["x np.max", "goal", "inverse, x np.max"]
    assert sheet.lines[2][:8] == ["greedy", "30", "39.1 !", "50", "20", "1.50 !", "1.4", ""]
    assert sheet.lines[3][:8] == ["usual chain", "30", "39", "50", "20", "1.50", "1.5", "3.00"]


def test_sheets_of_a_run() -> None:
    made = {sheet.title.split(":")[0]: sheet for sheet in sheets.sheets(REPORT)}
    assert list(made) == [
        *("16 recorded rows, V = 151,936", "64 rows of SmolLM2, V = 49,152"),
        *("64 generated rows, V = 151,936", "with logprobs=0, raw", "on AVX2", "softmax into out"),
        *("a batch in one call", "cost of determinism", "sums of 1,000,000 float32 numbers"),
        *("adversarial rows, V = 151,936", "adversarial rows", "call overhead"),
    ]
    assert made["with logprobs=0, raw"].lines == [
        ["np.argmax", "recorded, 151,936", "30", "32", "50", "20", "1.40", ""],
        ["greedy", "recorded, 151,936", "30", "32", "50", "20", "2.00", "3"],
    ]
    assert made["a batch in one call"].lines == [
        ["greedy", "generator, 151,936", "32", "30", "32", "50", "20", "0.90", "1"]
    ]
    reductions = made["cost of determinism"]
    assert reductions.header[1:6] == [
        *("fast, median us", "fast, mean", "fast, p99", "exact, median us", "exact, mean"),
    ]
    exact, fixed = ["30", "32", "50", "1.30 !", "1.2"], ["30", "32", "50", "1.10", "1.2"]
    assert reductions.lines == [["greedy", "20", "21", "25", *exact, *fixed]]
    assert made["sums of 1,000,000 float32 numbers"].lines == [
        ["torch", "30", "32", "50", "20", "1.50", "20"]
    ]
    assert made["adversarial rows, V = 151,936"].lines == [
        ["np.max", "20 / 21 / 25"],
        ["np.argmax", "24 / 32 / 50"],
        ["greedy", "30 / 32 / 50"],
    ]
    assert made["call overhead"].lines == [["sampler(row)", "30", "32", "50", "20"]]


@pytest.mark.parametrize(
    ("mean", "inverse", "text"),
    [(30.0, 20.0, "1.50"), (30.2, 20.0, "1.51 !"), (1.9, 1.0, "1.90"), (2.1, 1.0, "2.10 !")],
)
def test_the_bound_of_the_race_on_any_row(mean: float, inverse: float, text: str) -> None:
    """1.5 times the inverse method's median, or 1 us above it."""
    assert sheets.in_medians(make_figure(mean_us=mean, partner_us=inverse)) == text


def test_sheet_of_the_loop() -> None:
    sheet = loop_sheets.loop_sheet(REPORT, "loop")
    assert sheet.header[1:] == ["p50", "p90", "p99", "% of the step", "beyond row.argmax()", "goal"]
    lines = {line[0]: line[1:] for line in sheet.lines}
    assert lines["`row.argmax()`"] == ["20", "22", "23", "2.17", "+0.0", ""]
    goal = "`row.argmax()` {}, goal +{}.0{}".format
    assert lines["`sampler(row)`"] == ["26", "28", "29", "2.81", "+6.0", goal("+6.0", 6, "")]
    assert lines["`sampler(logits[0, -1])`"][-1] == goal("+25.1", 25, " !")
    assert lines["`sampler(logits, at=-1), greedy`"][-2:] == ["+80.0", ""]


def test_sheet_of_cold_calls_has_no_share_of_a_step() -> None:
    sheet = loop_sheets.loop_sheet(REPORT, "cold")
    assert sheet.header == ["form", "p50", "p90", "p99", "goal"]
    assert [line[-1] for line in sheet.lines] == [
        *("", "`sampler(row)` +16.0, goal +15.0 !", ""),
        "`1.1 x (8 x row.argmax())` -1.0, goal +0.0",
    ]


def test_column_of_the_loop_in_the_table_of_settings() -> None:
    sheet = loop_sheets.with_loop_column(REPORT, publish.readme_sheet(REPORT))
    found = {line[0]: line[-1] for line in sheet.lines}
    assert sheet.header[-1] == "in the loop, V = 49,152"
    assert found == {
        **{"np.max": "60", "np.argmax": "20", "greedy": "100", "usual chain": "44"},
        **dict.fromkeys(sentences.LEADS[1:], ""),
    }


# ---------------------------------------------------------------- sentences


def test_sentences_about_the_loop() -> None:
    text = " ".join(loop_sheets.loop_goals(REPORT).split())
    assert text.startswith("3 of 5 goals in the loop and after a sweep are met. Missed (goal),")
    assert text.endswith(
        "`sampler(logits[0, -1])` +25.1 (+25.0) and `sampler(row, mask=bits)` +16.0 (+15.0)."
    )
    assert "has a median of 25.5 us, where the clock around the call has 27" in " ".join(
        loop_sheets.own_clock(REPORT).split()
    )
    assert "first: `sampler(logits, at=-1)` (44 us) and `sampler(logits[0, -1])` (45.1 us)." in (
        " ".join(loop_sheets.quickest(REPORT).split())
    )
    without = tables.Report(REPORT.of(table="cold"), noisy=False)
    assert loop_sheets.own_clock(without) == loop_sheets.quickest(without) == ""
    with pytest.raises(ValueError, match=r"no figures of a model's loop: .* MODEL=1"):
        loop_sheets.loop_block(without)


def test_sentence_about_the_cost_of_a_token() -> None:
    text = " ".join(sentences.cost(REPORT).split())
    assert "1.50 (usual chain), 1.50 (T .8), 1.50 (top_p .9) and 1.50 (top_p .95, T 1.5)" in text
    assert 'By running sums (`draw="inverse"`): 3.00, 3.00, 3.00 and 3.00.' in text
    without = tables.Report(
        [f for f in REPORT.figures if f.get("source") != rows.FILE], noisy=False
    )
    with pytest.raises(ValueError, match=r"usual chain on recorded rows of V = 151,936"):
        sentences.cost(without)


def test_sentence_about_goals() -> None:
    text = " ".join(sentences.goals(REPORT, sentences.TABLES).split())
    assert "Zen 4; this processor is none: its figures are reported." in text
    assert "Draws: 4 of 5 medians meet their goal, and 4 means are within 1.3" in text
    assert "Missed (goal): at V = 151,936 greedy 1.50 (1.4)." in text
    assert "With `logprobs=0`: 1 of 1 medians meet" in text and "On AVX2: 0 of 1 medians" in text
    assert text.endswith("Greedy is slower than `np.argmax` at V = 151,936.")
    assert "Missed" not in sentences.goals(REPORT, ["settings"], [262_144])
    met = [{**figure, "zen4": True, "ratio": 0.5} for figure in REPORT.figures]
    text = " ".join(sentences.goals(tables.Report(met, noisy=False), ["settings"]).split())
    assert "this processor is one." in text and "Missed" not in text and "slower" not in text


def test_sentence_about_reductions() -> None:
    text = " ".join(sentences.reductions(REPORT).split())
    assert text.startswith("On a processor exact takes 1.30 to 1.30 of fast; fixed takes 1.10 to")
    assert text.endswith("at most 1.03.")


# ---------------------------------------------------------------- marks and formats


def test_a_figure_next_to_a_slow_maximum_is_marked() -> None:
    """Medians of np.max on the same rows: 20 where none is given; other rows do not count."""
    slow = make_figure(setting="T .8", partner_us=25.1, ratio=0.9)
    most = make_figure(setting="top_p .9", partner_us=25.0, ratio=1.1)
    others = [make_figure(vocabulary=9, source=rows.SMOLLM2, partner_us=90.0)] * 9
    by_row = make_figure(table="batch", partner="row by row", partner_us=900.0)
    report = tables.Report([*[make_figure()] * 3, slow, most, by_row, *others], noisy=False)
    lines = sheets.settings_sheet(report, rows.GENERATOR, 151_936).lines
    assert [line[5] for line in lines] == ["1.50 !", "0.90 ?", "1.10 !"]
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


PARTS = {
    "README": [
        "**What a token costs**, in",
        "| greedy | 30 | 39.1 ! | 50 | 1.50 ! | 1.4 |",
        "The goals",
    ],
    "PAGE": [
        "**What a token costs**, in",
        "**on AVX2**",
        "On AVX2: 0 of 1",
        "3 of 5 goals in the loop",
    ],
    "DETERMINISM": ["On a processor exact takes"],
}


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Copies of the pages, which publishing changes instead of them."""
    paths = {name: tmp_path / f"{name}.md" for name in PARTS}
    for name, path in paths.items():
        path.write_text(getattr(publish, name).read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.setattr(publish, name, path)
    return paths


def test_pages_have_places_for_figures(copies: dict[str, Path]) -> None:
    before = {name: path.read_text(encoding="utf-8") for name, path in copies.items()}
    for _ in range(2):
        publish.write_pages(REPORT)
        for name, path in copies.items():
            text = path.read_text(encoding="utf-8")
            flat = " ".join(text.split())
            assert [flat.count(part) for part in PARTS[name]] == [1] * len(PARTS[name])
            assert publish.BLOCK.sub("", text) == publish.BLOCK.sub("", before[name])


def test_no_page_changes_where_one_cannot(copies: dict[str, Path]) -> None:
    copies["PAGE"].write_text("no marks")
    before = copies["README"].read_text(encoding="utf-8")
    with pytest.raises(ValueError, match=r"PAGE\.md must have the marked blocks cost, .*got none"):
        publish.write_pages(REPORT)
    assert copies["README"].read_text(encoding="utf-8") == before


def test_a_page_has_no_figure_of_speed_outside_of_its_places() -> None:
    """What a run cannot replace must not depend on it."""
    for name in PARTS:
        text = publish.BLOCK.sub("", getattr(publish, name).read_text(encoding="utf-8"))
        assert "0.1.0" not in text


def test_every_sheet_is_on_a_page() -> None:
    page = publish.page_block(REPORT)
    assert all(f"**{sheet.title}**" in page for sheet in sheets.sheets(REPORT))


def test_equal_figures_draw_equal_pictures(tmp_path: Path) -> None:
    sets = [(rows.SMOLLM2, 49_152), (rows.GENERATOR, 151_936)]
    for name in ("a.svg", "b.svg"):
        picture.draw(REPORT, sets, tmp_path / name)
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "64 generated rows, V = 151,936" in text and "NOISY" not in text
    points = picture.points(REPORT, rows.GENERATOR, 151_936)
    assert points[rivals.OURS] == [(0, 30.0), (3, 1234.5)]
    assert points["np.max"] == [(0, 20.0), (3, 20.0)]


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
    mark = "<!-- make bench README=1 writes this: {} -->\nbefore\n<!-- end -->\n"
    blocks = {"README.md": ("cost", "table"), "page.md": ("cost", "goals", "loop", "tables")}
    for name, names in {**blocks, "sums.md": ("reductions",)}.items():
        (tmp_path / name).write_text("".join(map(mark.format, names)))
    done = tmp_path / "done.json"
    benchmarks = [{"extra_info": figure} for figure in REPORT.figures]
    done.write_text(json.dumps({"machine_info": {"noisy": noisy}, "benchmarks": benchmarks}))
    places = {"ROOT": "", "FOLDER": "made", "PICTURE": "a.svg"}
    places.update({"README": "README.md", "PAGE": "page.md", "DETERMINISM": "sums.md"})
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
    monkeypatch.setattr(publish, "add_loops", lambda part: None)
    monkeypatch.setattr(publish.subprocess, "run", pytest_runs)
    assert [publish.run(noisy, 0).name for noisy in (False, True)] == [
        *("performance.json", "performance-noisy.json"),
    ]
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"performance.json": "quiet", "performance-noisy.json": "noisy"}


@pytest.mark.parametrize("has_model", [False, True])
def test_a_run_gets_the_figures_of_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_model: bool
) -> None:
    for module, name in ((publish.cold, "cold"), (publish.loop, "loop")):
        own = {"table": name, "form": loop_goals.ROW, "batch": 1, "us": 9.0}
        monkeypatch.setattr(module, "figures", lambda own=own: [own])
    monkeypatch.setattr(publish.loop, "is_installed", lambda: has_model)
    path = tmp_path / "part.json"
    document = {"machine_info": {"noisy": False}, "benchmarks": [{"extra_info": make_figure()}]}
    path.write_text(json.dumps(document))
    publish.add_loops(path)
    report = tables.read_report(path)
    assert [f["table"] for f in report.figures] == ["settings", "cold", "loop"][: 2 + has_model]
    assert report.figures[1]["us"] == 9.0 and report.figures[1]["cpu"] == "a processor"
    assert report.figures[1].keys() <= make_loop_figure("cold", "", 1.0).keys()


def test_pages_need_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "run", pytest.fail)
    monkeypatch.setattr(publish, "of_the_file", lambda: (publish.ROWS,))
    monkeypatch.setattr(publish.loop, "is_installed", lambda: False)
    with pytest.raises(SystemExit, match=r"nothing is measured: --readme needs torch, .*MODEL=1"):
        publish.main(readme=True)


def test_pages_need_recorded_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "run", pytest.fail)
    monkeypatch.delenv("FASTSAMPLE_LOGITS", raising=False)
    with pytest.raises(SystemExit, match="nothing is measured: --readme needs FASTSAMPLE_LOGITS"):
        publish.main(readme=True)


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
