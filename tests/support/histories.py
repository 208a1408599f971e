"""Random schedules of a `Sampler` with penalties, against the reference with histories."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import numpy as np

from fastsample import Sampler, SamplingParams, sample
from tests.support.random_requests import random_penalties
from tests.support.random_rows import pick

Rng = np.random.Generator
FIELDS = [field.name for field in fields(SamplingParams) if field.name != "seed"]


def random_tokens(rng: Rng, most: int, vocabulary: int) -> list[int]:
    """Tokens of a few, of all, or of neighbours."""
    count = int(rng.integers(0, most + 1))
    kind = rng.integers(3)
    if kind == 0:
        return rng.integers(0, min(5, vocabulary), count).tolist()
    if kind == 1:
        return rng.integers(0, vocabulary, count).tolist()
    return ((rng.integers(vocabulary) + np.arange(count)) % vocabulary).tolist()


class Sequences:
    """A sampler's sequences, kept a second time as plain lists."""

    def __init__(self, rng: Rng, vocabulary: int, **options: Any) -> None:
        self.rng, self.vocabulary = rng, vocabulary
        self.sampler = Sampler([], **options)
        self.prompts: dict[int, list[int]] = {}
        self.outputs: dict[int, list[int]] = {}
        self.copies: list[tuple[Sampler, dict[int, list[int]], dict[int, list[int]]]] = []

    # ------------------------------------------------------------ changes

    def add(self) -> None:
        seed = int(self.rng.integers(2**63))
        temperature = float(pick(self.rng, (0.0, 0.7, 1.0)))
        params = SamplingParams(**random_penalties(self.rng), temperature=temperature, seed=seed)
        prompt = random_tokens(self.rng, 300, self.vocabulary)
        number = self.sampler.add(params, prompt=prompt)
        self.prompts[number], self.outputs[number] = prompt, []

    def some(self) -> list[int]:
        ids = list(self.sampler.ids)
        count = len(ids) if self.rng.random() < 0.5 else int(self.rng.integers(1, len(ids) + 1))
        return self.rng.permutation(ids)[:count].tolist()

    def accept(self) -> None:
        ids = self.some()
        most = int(pick(self.rng, (1, 4, 60)))
        lists = [random_tokens(self.rng, most, self.vocabulary) for _ in ids]
        self.sampler.accept(lists, sequences=ids)
        for number, tokens in zip(ids, lists, strict=True):
            self.outputs[number] += tokens

    def rewind(self) -> None:
        ids = self.some()
        most = min(len(self.outputs[number]) for number in ids)
        n = int(self.rng.integers(0, min(most, pick(self.rng, (1, 5, most))) + 1))
        self.sampler.rewind(n, sequences=ids)
        for number in ids:
            del self.outputs[number][len(self.outputs[number]) - n :]

    def reset(self) -> None:
        number = self.some()[0]
        position = int(self.rng.integers(0, len(self.outputs[number]) + 1))
        self.sampler.reset(position, sequences=number)
        del self.outputs[number][position:]

    def remove(self) -> None:
        if len(self.sampler.ids) > 1:
            number = self.some()[0]
            assert self.sampler.remove(number).output == self.outputs.pop(number)
            del self.prompts[number]

    def copy(self) -> None:
        """Go on with a clone or an unpickled copy, or back to what was left behind."""
        state = self.sampler, self.prompts, {n: [*one] for n, one in self.outputs.items()}
        if self.copies and self.rng.random() < 0.3:
            self.sampler, self.prompts, self.outputs = self.copies.pop()
            return
        self.copies.append((state[0], {**state[1]}, state[2]))
        is_clone = self.rng.random() < 0.5
        twin = self.sampler.clone() if is_clone else pickle.loads(pickle.dumps(self.sampler))
        self.sampler = twin
        self.outputs = {n: [*one] for n, one in self.outputs.items()}

    # ------------------------------------------------------------ draws

    def draw(self) -> None:
        ids = None if self.rng.random() < 0.7 else self.some()
        listed = self.sampler.ids if ids is None else ids
        rows = np.float32(self.rng.normal(size=(len(listed), self.vocabulary)) * 2)
        processors = {}
        if self.rng.random() < 0.1:
            processors["bias"] = {int(self.rng.integers(self.vocabulary)): 2.5}
        expected = [
            self.expected(n, row, **processors) for n, row in zip(listed, rows, strict=True)
        ]
        found = self.sampler.sample(rows, sequences=ids, on_invalid="mark", **processors).tokens
        if (found >= 0).all() and self.rng.random() < 0.9:
            self.sampler.rewind(1, sequences=ids)
            found = self.sampler(rows, sequences=ids, **processors)
        assert found.tolist() == expected
        for number, token in zip(listed, expected, strict=True):
            self.outputs[number] += [token] * (token >= 0)

    def expected(self, number: int, row: np.ndarray, **processors: Any) -> int:
        """The token of `sample` of the reference; -1 where the row is invalid."""
        one = self.sampler.sequence(number)
        assert one.position == len(self.outputs[number])
        result = sample(
            row,
            **{name: getattr(one.params, name) for name in FIELDS},
            seed=one.seed,
            position=one.position,
            prompt=self.prompts[number],
            output=self.outputs[number],
            engine="reference",
            on_invalid="mark",
            **processors,
        )
        return int(result.tokens)

    def step(self) -> None:
        """Make one change, or draw."""
        if not self.sampler.ids or (len(self.sampler.ids) < 4 and self.rng.random() < 0.1):
            self.add()
        changes = (self.accept, self.rewind, self.reset, self.remove, self.copy)
        weights = np.array([0.12, 0.12, 0.02, 0.02, 0.02])
        if self.rng.random() < weights.sum():
            changes[int(self.rng.choice(len(changes), p=weights / weights.sum()))]()
        else:
            self.draw()

    def check(self) -> None:
        """Compare all tokens."""
        for number in self.sampler.ids:
            one = self.sampler.sequence(number)
            assert (one.prompt, one.output) == (self.prompts[number], self.outputs[number])
