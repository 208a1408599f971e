"""`ignore_tokens`: what penalties skip, and placeholder tokens in histories."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, Status, filter_logits, kept_set, sample
from tests.support.case_loop import each
from tests.support.engines import Engine
from tests.support.sample_calls import EVERYTHING, LOGITS, V, sample_on

try:
    import torch
except ModuleNotFoundError:
    torch = None

PENALTIES = {"repetition_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.2}
SCOPES: list[Any] = ["all", "prompt", "output", 0, 3, 6, 100]
PROMPT = [[5, -200, 7, 7, 9], [V + 3, 1, -1], [], [4, 4]]
OUTPUT = [[7, 5, 9, 5], [1, 2**31 - 1, 2, 1], [-(2**31), 3], [4, 8, 9]]
IGNORED: dict[str, Any] = {
    "outside": "outside",
    "outside and tokens": ["outside", 7, 4],
    "all by number": [5, -200, V + 3, -1, 2**31 - 1, -(2**31)],
    "an array": np.array([9, -200, V + 3, -1, 2**31 - 1, -(2**31)]),
}


def is_ignored(token: int, ignored: Any) -> bool:
    listed = [ignored] if isinstance(ignored, str) else list(ignored)
    return token in listed or ("outside" in listed and not 0 <= token < V)


def penalised(scope: Any, ignored: Any) -> np.ndarray:
    """The penalised rows by hand: ignored tokens keep their places in a window."""
    rows = LOGITS.copy()
    for row, prompt, output in zip(rows, PROMPT, OUTPUT, strict=True):
        everything = prompt + output
        parts = {"all": everything, "prompt": prompt, "output": output}
        window = everything[max(0, len(everything) - scope) :] if scope not in parts else None
        seen = parts[scope] if window is None else window
        counted = [token for token in seen if not is_ignored(token, ignored)]
        for token in set(counted):
            x, r = row[token], np.float32(1.4)
            row[token] = x / r if x > 0 else x * r
            row[token] -= np.float32(0.3) * np.float32(counted.count(token))
            row[token] -= np.float32(0.2)
    return rows


def scopes_of(scope: Any) -> dict[str, Any]:
    return {f"{name}_scope": scope for name in ("repetition", "frequency", "presence")}


@each("scope", SCOPES)
@each("name", IGNORED)
def test_penalties_skip_ignored_tokens(engine: Engine, scope: Any, name: str) -> None:
    options = {"ignore_tokens": IGNORED[name], **PENALTIES, **scopes_of(scope)}
    result = sample_on(engine, LOGITS, prompt=PROMPT, output=OUTPUT, **options, **EVERYTHING)
    expected = sample_on(engine, penalised(scope, IGNORED[name]), **EVERYTHING)
    assert result.tokens.tolist() == expected.tokens.tolist()
    assert result.top_logprobs[1:].tolist() == expected.top_logprobs[1:].tolist()


@each("scope", SCOPES)
@each("name", IGNORED)
def test_a_sampler_skips_them_in_every_step(engine: Engine, scope: Any, name: str) -> None:
    """The counts of its sequences are kept from step to step."""
    options = {**PENALTIES, **scopes_of(scope), "temperature": 0.9, "seed": 5}
    params = [SamplingParams(**options, ignore_tokens=IGNORED[name])] * 4
    sampler = Sampler(params, prompt=PROMPT, engine=engine.name, isa=engine.isa)
    sampler.accept([[token for token in output if token != -1] for output in OUTPUT])
    for step in range(6):
        if step == 3:
            sampler.rewind(2)
            sampler = pickle.loads(pickle.dumps(sampler)).clone()
        sequences = [sampler.sequence(number) for number in sampler.ids]
        outputs = [one.output for one in sequences]
        positions = [one.position for one in sequences]
        expected = sample(
            LOGITS,
            **{**options, "seed": [5] * 4},
            position=positions,
            prompt=PROMPT,
            output=outputs,
            ignore_tokens=IGNORED[name],
        )
        assert sampler(LOGITS).tolist() == expected.tokens.tolist()


def test_rows_of_another_width_change_what_is_outside() -> None:
    options: dict[str, Any] = {"temperature": 0, "frequency_penalty": 9.0}
    sampler = Sampler([SamplingParams(**options, ignore_tokens="outside")], prompt=[40, 40, 5])
    row = np.zeros((1, 64), np.float32)
    row[0, 40], row[0, 5] = 2, 1
    whole = dict(frequency_scope="all")
    sampler.add(**options, **whole, ignore_tokens="outside", prompt=[40, 40, 5])
    sampler.remove(0)
    for width in (64, 32, 64, 41, 40):
        logits = row[:, :width]
        output = sampler.sequence(1).output
        expected = sample(
            logits, **options, **whole, prompt=[40, 40, 5], output=output, ignore_tokens="outside"
        )
        assert sampler(logits).tolist() == expected.tokens.tolist()


def test_functions_of_kept_sets_take_it() -> None:
    options = {**PENALTIES, "output": OUTPUT, "prompt": PROMPT, "ignore_tokens": "outside"}
    rows = penalised("all", "outside")
    options |= scopes_of("all")
    assert kept_set(LOGITS, **options).logits.tolist() == kept_set(rows).logits.tolist()
    assert filter_logits(LOGITS, **options).tolist() == rows.tolist()


def test_a_line_break_is_exempt() -> None:
    row = np.array([0.0, 1.0, 1.5], np.float32)
    history = {"output": [2, 2, 2], "frequency_penalty": 1.0, "temperature": 0}
    assert sample(row, **history).tokens == 1
    assert sample(row, **history, ignore_tokens=2).tokens == 2
    sampler = Sampler(temperature=0, frequency_penalty=1.0, ignore_tokens=[2])
    assert [sampler(row) for _ in range(4)] == [2] * 4
    assert sampler.sequence(0).output == [2] * 4


def test_parameters_hold_them_in_one_form() -> None:
    forms = (
        ["outside", 3, 1, 3],
        (1, "outside", 3),
        {3, 1, "outside"},
        [np.int32(1), 3, "outside"],
    )
    for form in forms:
        assert SamplingParams(ignore_tokens=form).ignore_tokens == (1, 3, "outside")
        assert hash(SamplingParams(ignore_tokens=form))
    assert SamplingParams(ignore_tokens="outside").ignore_tokens == ("outside",)
    assert SamplingParams(ignore_tokens=np.array([4, 2])).ignore_tokens == (2, 4)
    assert SamplingParams().ignore_tokens == SamplingParams(ignore_tokens=None).ignore_tokens == ()


@pytest.mark.skipif(torch is None, reason="needs torch")
@each("scope", ["all", 3, 6])
@each("name", IGNORED)
def test_tensors_on_their_device_skip_them(scope: Any, name: str) -> None:
    def padded(lists: list[list[int]]) -> Any:
        width = max(map(len, lists))
        return torch.tensor([[*one, *[-1] * (width - len(one))] for one in lists])

    # In a tensor, -1 is no token, and takes up no place.
    prompt = [[token for token in one if token != -1] for one in PROMPT]
    options = {
        "ignore_tokens": IGNORED[name],
        "temperature": 0.9,
        "seed": 3,
        "position": 2,
        "stream": "row",
        "on_invalid": "mark",
        **PENALTIES,
        **scopes_of(scope),
    }
    expected = sample(LOGITS, prompt=prompt, output=OUTPUT, **options).tokens.tolist()
    tensor = torch.from_numpy(LOGITS)
    for histories in ((prompt, OUTPUT), (padded(prompt), padded(OUTPUT)), (padded(prompt), OUTPUT)):
        found = sample(tensor, engine="torch", prompt=histories[0], output=histories[1], **options)
        assert found.status.tolist() == [0] * 4
        assert found.tokens.tolist() == expected
    bad = sample(
        tensor, engine="torch", prompt=padded(prompt), presence_penalty=1.0, on_invalid="mark"
    )
    assert bad.status.tolist() == [Status.BAD_PARAM, Status.BAD_PARAM, 0, 0]


# ---------------------------------------------------------------- bad sequences


def of_three(**options: Any) -> Sampler:
    """Sequence 1 has a token that rows of 32 columns lack."""
    greedy = SamplingParams(temperature=0, presence_penalty=0.5, presence_scope="all")
    return Sampler([greedy] * 3, prompt=[[1], [1, 40], [2]], **options)


ROWS = np.tile(np.arange(32, dtype=np.float32) % 7, (3, 1))


def test_a_bad_sequence_is_marked_and_its_companions_drawn(engine: Engine) -> None:
    sampler = of_three(engine=engine.name, isa=engine.isa)
    expected = Sampler([SamplingParams(temperature=0)] * 3)(ROWS).tolist()
    result = sampler.sample(ROWS, on_invalid="mark", logprobs=1, kept_count=True)
    assert result.status.tolist() == [0, Status.BAD_PARAM, 0]
    assert result.tokens.tolist() == [expected[0], -1, expected[2]]
    assert result.kept_count.tolist() == [1, 0, 1]
    assert [sampler.sequence(number).position for number in range(3)] == [1, 0, 1]


def test_an_error_names_the_bad_sequence_and_offers_to_remove_it() -> None:
    sampler = of_three()
    for call in (sampler, sampler.sample):
        with pytest.raises(
            ValueError, match=r"sequence 1 must hold tokens in \[0, 32\), got 40 \(remove\(1\)"
        ):
            call(ROWS)
    with pytest.raises(ValueError, match=r"sequence 1 must hold .*\(remove\(1\)"):
        sampler(ROWS[:2], sequences=[2, 1])
    assert [sampler.sequence(number).position for number in range(3)] == [0, 0, 0]
    sampler.remove(1)
    assert len(sampler(ROWS[:2])) == 2


def test_a_history_that_no_penalty_reads_may_be_for_wider_rows() -> None:
    sampler = Sampler([SamplingParams(temperature=0)], prompt=[40])
    assert sampler(ROWS[:1]).tolist() == [6]


def test_the_last_position_marks_its_sequence_alone() -> None:
    sampler = Sampler([SamplingParams(seed=1)] * 2)
    sampler.reset(2**64 - 1, sequences=1)
    sampler(ROWS[:2])
    result = sampler.sample(ROWS[:2], on_invalid="mark")
    assert result.status.tolist() == [0, Status.BAD_PARAM]
    assert result.tokens[1] == -1
    with pytest.raises(
        ValueError, match=r"got 18446744073709551616 for sequence 1 \(.*remove\(1\)"
    ):
        sampler(ROWS[:2])


def test_tokens_are_checked_where_the_vocabulary_is_known() -> None:
    sampler = Sampler([], valid_vocab=32)
    with pytest.raises(ValueError, match=r"`prompt` must hold tokens in \[0, 32\), got 40"):
        sampler.add(prompt=[1, 40])
    number = sampler.add(prompt=[1, 40], ignore_tokens=40)
    sampler.add()
    with pytest.raises(
        ValueError, match=r"`tokens` must hold tokens in \[0, 32\), got 33 at row 1"
    ):
        sampler.accept([40, 33])
    sampler.accept([40, 3])
    assert sampler.sequence(number).output == [40]
    with pytest.raises(ValueError, match=r"`prompt` must hold tokens in \[0, 32\), got 32"):
        Sampler(valid_vocab=32, prompt=[32])


def test_a_bad_history_of_sample_is_marked(engine: Engine) -> None:
    history = [[1], [99], [2]]
    result = sample_on(
        engine, ROWS, output=history, presence_penalty=1.0, on_invalid="mark", kept_count=True
    )
    assert result.status.tolist() == [0, Status.BAD_PARAM, 0]
    assert result.tokens[1] == -1 and min(result.tokens[0], result.tokens[2]) >= 0
    with pytest.raises(
        ValueError, match=r"`output` must hold tokens in \[0, 32\), got 99 at row 1"
    ):
        sample_on(engine, ROWS, output=history, presence_penalty=1.0)
