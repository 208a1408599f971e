"""Sequences that are added and removed: the tokens of each are its own in any batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from tests.support.engines import Engine
from tests.support.sampler_steps import GREEDY, ROWS, VOCABULARY, WARM

try:
    import torch
except ModuleNotFoundError:
    torch = None

FIELDS = [one.name for one in fields(SamplingParams) if one.name != "seed"]


def logits_of(number: int, position: int) -> np.ndarray:
    """What a model would say of a sequence at a position, whatever the batch."""
    rng = np.random.default_rng([number, position])
    return (rng.normal(size=VOCABULARY) * 3).astype(np.float32)


def random_params(rng: np.random.Generator) -> SamplingParams:
    return SamplingParams(
        temperature=float(rng.choice([0.0, 0.7, 1.3])),
        top_k=int(rng.choice([0, 20])),
        top_p=float(rng.choice([1.0, 0.9])),
        min_p=float(rng.choice([0.0, 0.05])),
        seed=int(rng.integers(2**63)),
        repetition_penalty=float(rng.choice([1.0, 1.4])),
        frequency_penalty=float(rng.choice([0.0, 0.3])),
        presence_penalty=float(rng.choice([0.0, 0.5])),
        frequency_scope=[2, "output", "prompt", "all"][rng.integers(4)],
        min_keep=int(rng.choice([1, 2])),
        stages=tuple(rng.permutation(("temperature", "top_k", "top_p", "min_p")).tolist()),
    )


@dataclass
class Known:
    """What the test itself knows of a sequence."""

    params: SamplingParams
    stream: int
    prompt: list[int]
    alone: Sampler
    output: list[int] = field(default_factory=list)

    def next_token(self, logits: np.ndarray, **adjust: Any) -> int:
        """Its next token by `sample`, with every argument given."""
        result = sample(
            logits,
            **{name: getattr(self.params, name) for name in FIELDS},
            seed=self.params.seed,
            position=len(self.output),
            stream=self.stream,
            prompt=self.prompt,
            output=self.output,
            **adjust,
        )
        return int(result.tokens)


class Schedule:
    """A random schedule of a server: sequences join, leave, pause, and stand in any order."""

    def __init__(self, seed: int, **how: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.how = how
        self.sampler = Sampler([], **how)
        self.known: dict[int, Known] = {}

    def join(self) -> None:
        params, stream = random_params(self.rng), int(self.rng.choice([0, 3]))
        prompt = self.rng.integers(VOCABULARY, size=self.rng.integers(5)).tolist()
        number = self.sampler.add(params, prompt=prompt, stream=stream)
        assert number not in self.known
        alone = Sampler([], **self.how)
        alone.add(params, prompt=prompt, stream=stream)
        self.known[number] = Known(params, stream, prompt, alone)

    def leave(self) -> None:
        number = int(self.rng.choice(list(self.sampler.ids)))
        gone = self.sampler.remove(number)
        assert gone.output == self.known[number].output
        assert gone.prompt == self.known[number].prompt

    def force(self) -> None:
        ids = self.some()
        tokens = [self.rng.integers(VOCABULARY, size=self.rng.integers(3)).tolist() for _ in ids]
        self.sampler.accept(tokens, sequences=ids)
        for number, accepted in zip(ids, tokens, strict=True):
            self.known[number].alone.accept([accepted])
            self.known[number].output += accepted

    def some(self) -> list[int]:
        ids = self.rng.permutation(self.sampler.ids)
        return ids[: self.rng.integers(1, len(ids) + 1)].tolist()

    def draw(self) -> None:
        everyone = self.rng.random() < 0.4
        ids = list(self.sampler.ids) if everyone else self.some()
        known = [self.known[number] for number in ids]
        rows = [logits_of(n, len(one.output)) for n, one in zip(ids, known, strict=True)]
        named = {} if everyone else {"sequences": ids}
        tokens = self.sampler(np.stack(rows), **named).tolist()
        for one, row, token in zip(known, rows, tokens, strict=True):
            assert one.next_token(row) == token
            assert one.alone(row) == token
            one.output.append(token)

    def check(self) -> None:
        for number in self.sampler.ids:
            sequence, known = self.sampler.sequence(number), self.known[number]
            assert (sequence.params, sequence.seed) == (known.params, known.params.seed)
            assert (sequence.prompt, sequence.output) == (known.prompt, known.output)
            assert (sequence.position, sequence.stream) == (len(known.output), known.stream)


@pytest.mark.parametrize("seed", range(4))
def test_a_sequence_draws_as_if_alone(engine: Engine, seed: int) -> None:
    schedule = Schedule(seed, engine=engine.name, isa=engine.isa)
    for _ in range(60):
        crowd = len(schedule.sampler.ids)
        step = schedule.rng.random()
        if crowd == 0 or (step < 0.2 and crowd < 8):
            schedule.join()
        elif step < 0.3:
            schedule.leave()
        elif step < 0.4:
            schedule.force()
        else:
            schedule.draw()
        if step > 0.95:
            schedule.sampler = pickle.loads(pickle.dumps(schedule.sampler.clone()))
    schedule.check()


# ---------------------------------------------------------------- how they come


def test_a_list_gives_a_sequence_each() -> None:
    sampler = Sampler([GREEDY, WARM, GREEDY])
    assert sampler.ids == (0, 1, 2)
    tokens = sampler(ROWS[:3]).tolist()
    expected = sample(ROWS[1], temperature=1.5, seed=9, position=0).tokens
    assert tokens == [np.argmax(ROWS[0]), expected, np.argmax(ROWS[2])]
    assert [sampler.sequence(n).params for n in sampler.ids] == [GREEDY, WARM, GREEDY]
    assert repr(sampler) == "Sampler(3 sequences)"


def test_an_empty_list_has_no_rows() -> None:
    sampler = Sampler([])
    assert sampler.ids == ()
    assert sampler(ROWS[:0]).shape == (0,)
    with pytest.raises(ValueError, match="must have 0 rows"):
        sampler(ROWS[:1])


def test_fresh_seeds_differ_and_are_readable() -> None:
    sampler = Sampler([SamplingParams()] * 2)
    number = sampler.add()
    seeds = [sampler.sequence(n).seed for n in (0, 1, number)]
    assert len(set(seeds)) == 3
    result = sampler.sample(ROWS[:3])
    assert result.seed.dtype == np.uint64
    assert result.seed.tolist() == seeds
    expected = sample(ROWS[:3], seed=result.seed, position=0).tokens
    assert np.array_equal(result.tokens, expected)
    assert sampler.sample(ROWS[0], sequences=number).seed == seeds[2]


def test_keywords_win_over_every_params() -> None:
    sampler = Sampler([GREEDY, WARM], top_k=7)
    assert [sampler.sequence(n).params.top_k for n in (0, 1)] == [7, 7]
    number = sampler.add(WARM, seed=10)
    assert sampler.sequence(number).params == replace(WARM, seed=10)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (None, [[], []]),
        ([5, 6, 7], [[5, 6, 7], [5, 6, 7]]),
        ([[5], []], [[5], []]),
        (np.array([[5, 6], [7, 8]]), [[5, 6], [7, 8]]),
        ((np.array([5]), [6]), [[5], [6]]),
    ],
)
def test_prompts_are_shared_or_one_each(prompt: Any, expected: list[list[int]]) -> None:
    sampler = Sampler([GREEDY, WARM], prompt=prompt)
    assert [sampler.sequence(n).prompt for n in (0, 1)] == expected
    sampler.accept([1, 2])
    assert [sampler.sequence(n).prompt for n in (0, 1)] == expected


def test_numbers_are_never_used_again() -> None:
    sampler = Sampler([GREEDY, WARM])
    sampler.remove(1)
    assert sampler.add() == 2
    sampler.remove(2)
    assert sampler.clone().add() == 3
    assert sampler.add() == 3
    assert sampler.ids == (0, 3)


def test_streams_part_sequences_of_one_seed() -> None:
    sampler = Sampler([])
    numbers = [sampler.add(WARM, stream=stream) for stream in (0, 0, 2**32 - 1)]
    flat = np.zeros((3, 4000), np.float32)
    same, again, other = sampler(flat, sequences=numbers).tolist()
    assert same == again != other
    place = {"temperature": 1.5, "seed": 9, "position": 0, "stream": 2**32 - 1}
    assert other == sample(flat[0], **place).tokens


def test_a_sequence_can_be_taken_up_again() -> None:
    params = replace(WARM, presence_penalty=0.5)
    sampler = Sampler([params], prompt=[3])
    expected = [sampler(row) for row in ROWS]
    other = Sampler([GREEDY])
    number = other.add(params, prompt=[3])
    other.accept(expected[:4], sequences=number)
    assert [other(row, sequences=number) for row in ROWS[4:]] == expected[4:]


# ---------------------------------------------------------------- which rows are whose


def test_one_row_and_one_number() -> None:
    sampler = Sampler([GREEDY, WARM])
    assert type(sampler(ROWS[0], sequences=1)) is int
    assert type(sampler(ROWS[0], sequences=[1])) is int
    assert sampler(ROWS[:1], sequences=np.int64(1)).shape == (1,)
    assert (sampler.sequence(0).position, sampler.sequence(1).position) == (0, 3)
    assert sampler.sequence(np.int64(1)).position == 3


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: range(1, -1, -1)])
def test_sequences_as_any_kind_of_list(kind: Callable[[list[int]], Any]) -> None:
    sampler = Sampler([GREEDY, GREEDY])
    assert sampler(ROWS[:2], sequences=kind([1, 0])).tolist() == ROWS[:2].argmax(1).tolist()
    assert sampler.sequence(1).output == [np.argmax(ROWS[0])]


def test_continuations_that_have_ended_may_be_left_out() -> None:
    everyone, some = (Sampler(WARM, stream="row") for _ in range(2))
    everyone(ROWS[:3])
    some(ROWS[:3])
    expected = everyone(ROWS[3:]).tolist()
    assert some(ROWS[[5, 3]], sequences=[2, 0]).tolist() == [expected[2], expected[0]]
    assert [some.sequence(n).position for n in range(3)] == [2, 1, 2]


def test_a_first_call_may_name_the_one_sequence() -> None:
    sampler = Sampler(WARM, stream="row")
    sampler(ROWS[0], sequences=0)
    assert sampler.ids == (0,)
    with pytest.raises(ValueError, match="must have 1 rows"):
        sampler(ROWS[:2])


@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.torch
def test_tensors() -> None:
    sampler, other = Sampler([WARM, GREEDY]), Sampler([WARM, GREEDY])
    rows = torch.from_numpy(ROWS[:2]).to(torch.bfloat16)
    tokens = sampler(rows, sequences=torch.tensor([1, 0]))
    assert isinstance(tokens, torch.Tensor)
    assert tokens.tolist() == other(rows.float().numpy(), sequences=[1, 0]).tolist()
    other.accept(tokens, sequences=[1, 0])
    assert other.sequence(0).output == [tokens[1]] * 2


# ---------------------------------------------------------------- reset, and what is shared


def test_reset_of_some() -> None:
    sampler = Sampler([WARM, WARM], prompt=[2])
    first = [sampler(ROWS[:2]).tolist() for _ in range(3)]
    sampler.reset(sequences=1)
    assert [sampler.sequence(n).position for n in (0, 1)] == [3, 0]
    assert sampler(ROWS[1], sequences=1) == first[0][1]
    sampler.reset(2)
    assert [sampler.sequence(n).position for n in (0, 1)] == [2, 2]
    assert sampler.sequence(0).output == [tokens[0] for tokens in first[:2]]
    sampler.reset()
    assert sampler.ids == (0, 1)
    assert sampler.sequence(0).prompt == [2]
    assert sampler(ROWS[:2]).tolist() == first[0]


def test_shared_values_are_attributes_of_the_sampler() -> None:
    sampler = Sampler([WARM])
    assert (sampler.seed, sampler.position, sampler.params) == (9, 0, WARM)
    sampler.add(GREEDY)
    assert sampler.position == 0
    for name in ("seed", "params"):
        with pytest.raises(ValueError, match=rf"`{name}` must be the same for all sequences"):
            getattr(sampler, name)
    with pytest.raises(ValueError, match="got 0 sequences"):
        _ = Sampler([]).seed


def test_a_sequence_is_read_only_to_its_reader() -> None:
    sampler = Sampler([WARM], prompt=[1])
    sequence = sampler.sequence(0)
    sequence.prompt.append(2)
    sequence.output.append(2)
    assert (sequence.prompt, sequence.output) == ([1], [])
    assert repr(sequence) == f"Sequence({WARM}, seed=9, stream=0, position=0)"
    for name in ("params", "seed", "stream", "position", "prompt", "output"):
        with pytest.raises(AttributeError):
            setattr(sequence, name, 3)
    public = [name for name in dir(sequence) if not name.startswith("_")]
    assert public == ["output", "params", "position", "prompt", "seed", "stream"]
