"""Penalties of a `Sampler` by counts: a schedule of changes equals `sample` with histories."""

from __future__ import annotations

import sys
from array import array
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from fastsample.api import batch as api_batch
from fastsample.api import sequences as api_sequences
from fastsample.api.sequence_state import PlainSequenceState, State
from fastsample.engines.plan import make_plan
from tests.support.case_loop import CaseLoop, each
from tests.support.engines import Engine
from tests.support.histories import Sequences

NONE = array("q")
VOCABULARIES = (1, 17, 129, 700)


def run_schedule(seed: int, steps: int, **options: Any) -> None:
    rng = np.random.default_rng(seed)
    sequences = Sequences(rng, VOCABULARIES[seed % len(VOCABULARIES)], **options)
    for _ in range(steps):
        sequences.step()
    sequences.check()


@each("seed", range(8))
def test_schedules(engine: Engine, seed: int) -> None:
    steps = 120 if engine.is_native else 40
    run_schedule(seed, steps, engine=engine.name, isa=engine.isa)


@pytest.mark.nightly
@each("seed", range(100, 150))
def test_long_schedules(seed: int) -> None:
    run_schedule(seed, 2_000)


@each("seed", range(4))
def test_schedules_without_the_compiled_module(seed: int, monkeypatch: Any) -> None:
    for module in (api_sequences, api_batch):
        monkeypatch.setattr(module, "State", PlainSequenceState)
    run_schedule(seed, 60, engine="reference")


# ---------------------------------------------------------------- states


def made(kind: Any, prompt: list[int], output: list[int]) -> Any:
    record = make_plan(1, seed=2**64 - 1, stream=7).tobytes()
    return kind(record, False, array("q", prompt), array("q", output), NONE, False)


@pytest.mark.parametrize("kind", sorted({State, PlainSequenceState}, key=str))
def test_the_state_of_a_sequence(kind: Any) -> None:
    one, other = made(kind, [3, 1], []), made(kind, [], [2**22 - 1])
    assert one.record == make_plan(1, seed=2**64 - 1, stream=7).tobytes()
    assert (one.seed, one.stream, one.gaps, one.skipped) == (2**64 - 1, 7, (), 0)
    one.gaps = ((0, 3), (1, 2**63))
    assert (one.gaps, one.skipped) == (((0, 3), (1, 2**63)), 3 + 2**63)
    kind.extend_all([one, other], [array("q", [5, 6, 7]), array("q")])
    kind.append_all([one, other], np.array([-1, 8]))
    assert (one.output_count, other.output_count) == (3, 2)
    kind.truncate_all([one, other], [1, 2])
    assert one.prompt_array().tolist() == [3, 1] and one.output_array().tolist() == [5]
    assert other.output_array().tolist() == [2**22 - 1, 8]
    assert other.output_array().dtype == other.prompt_array().dtype == np.int64


@pytest.mark.skipif(State is PlainSequenceState, reason="fastsample._native is not built")
def test_an_output_has_no_tokens_at_its_end() -> None:
    one = made(State, [], [1, 2])
    with pytest.raises(ValueError, match="an output of 2 tokens has none at 3"):
        State.truncate_all([one, one], [1, 3])
    assert one.output_count == 2


SCOPES = ("all", "prompt", "output", 1, 20_000)


@pytest.mark.skipif(State is PlainSequenceState, reason="fastsample._native is not built")
@pytest.mark.parametrize("kind", ["few", "all", "text"])
def test_counts_stay_small(kind: str) -> None:
    """At most 16 bytes for each distinct token and 4 for each of the vocabulary, for each scope."""
    size, count = 50_000, 40_000
    rng = np.random.default_rng(4)
    text = np.minimum(rng.zipf(1.3, count), size) - 1
    tokens = {"few": np.arange(count) % 7, "all": np.arange(count), "text": text}[kind]
    row = np.zeros(size, np.float32)
    with CaseLoop() as cases:
        for scope in SCOPES:
            plain, counted = (
                Sampler(seed=1),
                Sampler(seed=1, presence_penalty=1, presence_scope=scope),
            )
            for sampler in (plain, counted):
                for part in np.array_split(tokens, 20):
                    sampler.accept(part)
                    for _ in range(3):
                        sampler(row)
                        sampler.rewind(1)
            sizes = [sys.getsizeof(one.sequence(0)._state) for one in (plain, counted)]
            distinct = len(np.unique(tokens[-scope:] if isinstance(scope, int) else tokens))
            with cases.case(scope):
                assert sizes[1] - sizes[0] <= min(16 * distinct, 4 * size) + 300


def test_a_chosen_history_gives_the_same_tokens(engine: Engine) -> None:
    """Tokens whose places in a table would be neighbours, were it by a product's middle bits."""
    size, count = 20_000, 500
    slots = (np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) & (
        np.uint64(1023)
    )
    chosen = np.argsort(slots, kind="stable")[:count]
    row = np.float32(np.random.default_rng(3).normal(size=size))
    arguments = {
        "prompt": chosen,
        "bias": (chosen[::-1].copy(), np.full(count, 0.5)),
        "repetition_penalty": 1.5,
        "temperature": 0.5,
        "seed": 1,
        "position": 2,
    }
    found = sample(row, **arguments, engine=engine.name, isa=engine.isa)
    assert found.tokens == sample(row, **arguments, engine="reference").tokens


# ---------------------------------------------------------------- rewind


def test_rewound_tokens_are_drawn_again(engine: Engine) -> None:
    params = [SamplingParams(seed=seed, frequency_penalty=0.7) for seed in range(3)]
    sampler = Sampler(params, engine=engine.name, isa=engine.isa)
    rows = np.float32(np.random.default_rng(1).normal(size=(6, 3, 40)))
    tokens = [sampler(one).tolist() for one in rows]
    sampler.rewind(4)
    assert sampler.position == 2 and sampler.sequence(1).output == [tokens[0][1], tokens[1][1]]
    assert [sampler(one).tolist() for one in rows[2:]] == tokens[2:]
    sampler.rewind(1, sequences=[2, 0])
    assert [sampler.sequence(number).position for number in range(3)] == [5, 6, 5]
    assert sampler(rows[5, [0, 2]], sequences=[0, 2]).tolist() == [tokens[5][0], tokens[5][2]]


def test_rewind_counts_tokens_after_skipped_positions() -> None:
    sampler = Sampler(seed=1)
    sampler.accept([1, 2])
    sampler.reset(10)
    sampler.accept([3, 4, 5])
    sampler.rewind(2)
    assert (sampler.position, sampler.sequence(0).output) == (11, [1, 2, 3])
    with pytest.raises(ValueError, match="got 2 for sequence 0, which has 1 "):
        sampler.rewind(2)
    sampler.rewind(0)
    assert (sampler.position, sampler.sequence(0).output) == (11, [1, 2, 3])


def test_a_failed_rewind_changes_nothing() -> None:
    sampler = Sampler([SamplingParams(seed=1), SamplingParams(seed=2)])
    sampler.accept([[1, 2, 3], [4]])
    for bad in (2, -1, 1.5, "1", None):
        with pytest.raises((TypeError, ValueError)):
            sampler.rewind(bad)
    assert [sampler.sequence(number).output for number in (0, 1)] == [[1, 2, 3], [4]]


def test_a_draft_is_accepted_and_rewound() -> None:
    """The loop of speculative decoding leaves the tokens of a loop without drafts."""
    rng = np.random.default_rng(7)
    rows = np.float32(rng.normal(size=(30, 60)) * 3)
    penalties = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "presence_scope": 5}
    plain, drafted = (Sampler(seed=5, prompt=[1, 2], **penalties) for _ in range(2))
    for row in rows:
        drafted.accept(rng.integers(0, 60, 4))
        drafted.rewind(4)
        assert drafted(row) == plain(row)
    assert drafted.sequence(0).output == plain.sequence(0).output


# ---------------------------------------------------------------- a long run


@pytest.mark.nightly
@pytest.mark.skipif(State is PlainSequenceState, reason="fastsample._native is not built")
def test_a_million_steps_take_memory_for_their_tokens_only() -> None:
    penalties = {"repetition_penalty": 1.2, "frequency_penalty": 0.1, "presence_scope": 64}
    sampler = Sampler(seed=1, presence_penalty=0.1, frequency_scope="all", **penalties)
    row = np.float32(np.random.default_rng(2).normal(size=300))
    for _ in range(1_000_000):
        sampler(row)
    state = sampler.sequence(0)._state
    assert state.output_count == 1_000_000
    assert sys.getsizeof(state) <= 8.5 * 1_000_000 + 3 * 4 * 384 + 500
