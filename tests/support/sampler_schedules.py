"""Random uses of a `Sampler`, each held to `sample` of the reference engine."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SampleResult, SamplingParams, sample
from fastsample.params.table import PENALTIES, PENALTY_SCOPES
from tests.support.engines import Engine, same_bits
from tests.support.prepared_calls import ByDlpack
from tests.support.random_requests import DTYPES, in_random_layout, random_mask, random_settings
from tests.support.random_rows import pick

try:
    import torch
except ModuleNotFoundError:
    torch = None

COLUMNS = 70
MOST_SEQUENCES = 5
MODES = ("raw", "tempered", "processed")


class Schedule:
    """A sampler of many sequences, and what each of them should have.

    Parameters
    ----------
    engine : Engine
    seed : int
        Of the schedule.
    """

    def __init__(self, engine: Engine, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.valid_vocab = 61 if self.rng.random() < 0.3 else None
        self.vocabulary = self.valid_vocab or COLUMNS
        self.sampler = Sampler(
            [],
            valid_vocab=self.valid_vocab,
            short_mask="ban",
            engine=engine.name,
            isa=engine.isa,
        )
        self.outputs: dict[int, list[int]] = {}
        self.add()

    def step(self) -> None:
        """Use the sampler once, in a random way."""
        others = (self.add, self.remove, self.accept, self.rewind, self.reset, self.copy, self.fail)
        if self.rng.random() < 0.2:
            pick(self.rng, others)()
        self.draw()
        for number, output in self.outputs.items():
            assert self.sampler.sequence(number).output == output, number

    # ------------------------------------------------------------ changes

    def add(self) -> None:
        if len(self.outputs) == MOST_SEQUENCES:
            self.remove()
        settings = random_settings(self.rng, self.vocabulary)
        if self.rng.random() < 0.5:
            penalties = [one.name for one in (*PENALTIES, *PENALTY_SCOPES)]
            settings = {name: one for name, one in settings.items() if name not in penalties}
        prompt = self.tokens(12) if self.rng.random() < 0.5 else []
        params = SamplingParams(**settings, seed=int(self.rng.integers(2**63)))
        number = self.sampler.add(params, prompt=prompt, stream=int(self.rng.integers(2**32)))
        self.outputs[number] = []

    def remove(self) -> None:
        if len(self.outputs) > 1:
            number = self.some_number()
            assert self.sampler.remove(number).output == self.outputs.pop(number)

    def accept(self) -> None:
        number, tokens = self.some_number(), self.tokens(3)
        self.sampler.accept(tokens, sequences=number)
        self.outputs[number] += tokens

    def rewind(self) -> None:
        number = self.some_number()
        sequence, output = self.sampler.sequence(number), self.outputs[number]
        if sequence.position == len(output):
            count = int(self.rng.integers(0, len(output) + 1))
            self.sampler.rewind(count, sequences=number)
            del output[len(output) - count :]

    def reset(self) -> None:
        number = self.some_number()
        sequence = self.sampler.sequence(number)
        is_plain = sequence.position == len(sequence.output)
        position = int(self.rng.integers(0, sequence.position + 3)) if is_plain else 0
        self.sampler.reset(position, sequences=number)
        del self.outputs[number][position:]
        assert sequence.position == position

    def copy(self) -> None:
        twin = self.sampler.clone() if self.rng.random() < 0.5 else self.sampler
        self.sampler = pickle.loads(pickle.dumps(twin))

    def fail(self) -> None:
        """A call that is an error changes nothing."""
        ids = self.sampler.ids
        rows = np.zeros((len(ids), COLUMNS), np.float32)
        errors: list[dict[str, Any]] = [
            {"logits": np.full_like(rows, np.nan)},
            {"logits": rows[:, None], "at": 1},
            {"logits": rows, "bias": {0: np.nan}},
            {"logits": rows, "bias": {self.vocabulary: 1.0}},
            {"logits": rows, "mask": np.zeros(COLUMNS, bool)},
            {"logits": rows, "sequences": [ids[0]] * len(ids) + [ids[0]]},
            {"logits": rows[:, :0]},
        ]
        with pytest.raises((ValueError, TypeError)):
            self.sampler(**pick(self.rng, errors))

    def some_number(self) -> int:
        return int(pick(self.rng, list(self.outputs)))

    def tokens(self, most: int) -> list[int]:
        count = self.rng.integers(0, most + 1)
        return [int(token) for token in self.rng.integers(0, self.vocabulary, count)]

    # ------------------------------------------------------------ draws

    def draw(self) -> None:
        """Draw for some sequences, and compare each token with that of `sample`."""
        rng, ids = self.rng, list(self.outputs)
        if rng.random() < 0.4:
            ids = [int(one) for one in rng.permutation(ids)[: rng.integers(1, len(ids) + 1)]]
        rows = pick(rng, list(DTYPES.values()))(rng, len(ids), COLUMNS)
        logits, arguments = self.in_some_shape(rows)
        if ids != list(self.outputs) or rng.random() < 0.1:
            arguments["sequences"] = pick(rng, (list, tuple, np.array))(ids)
        processors = [self.mask(len(ids)), self.bias(len(ids))]
        given = {name: value for one in processors for name, value in one[0].items()}
        each = [
            {name: value for one in processors for name, value in one[1][b].items()}
            for b in range(len(ids))
        ]
        details = self.details() if rng.random() < 0.4 else {}
        before = {number: self.sampler.sequence(number).position for number in ids}
        expected = [
            self.expected(rows[b], number, {**each[b], **details}) for b, number in enumerate(ids)
        ]
        is_marked = details.get("on_invalid") == "mark"
        if not is_marked and any(int(one.status) for one in expected):
            with pytest.raises(ValueError, match="`logits`"):
                self.sampler(logits, **arguments, **given)
            return
        found: Any
        if details:
            found = self.sampler.sample(logits, **arguments, **given, **details)
            compare(found, expected, logits.ndim == 1)
        else:
            found = self.sampler(logits, **arguments, **given)
            assert is_tensor(found) == (is_tensor(logits) and logits.ndim > 1)
            assert np.ravel(found).tolist() == [int(one.tokens) for one in expected]
        for number, one in zip(ids, expected, strict=True):
            drawn = [] if int(one.status) else [int(one.tokens)]
            self.outputs[number] += drawn
            assert self.sampler.sequence(number).position == before[number] + len(drawn)

    def expected(self, row: np.ndarray, number: int, arguments: dict[str, Any]) -> SampleResult:
        sequence = self.sampler.sequence(number)
        params = {name: getattr(sequence.params, name) for name in PARAMETERS}
        wide = row if row.dtype != np.uint16 else widened(row)
        return sample(
            wide,
            **params,
            seed=sequence.seed,
            position=sequence.position,
            stream=sequence.stream,
            prompt=sequence.prompt,
            output=sequence.output,
            valid_vocab=self.valid_vocab,
            short_mask="ban",
            engine="reference",
            **{**arguments, "on_invalid": "mark"},
        )

    def details(self) -> dict[str, Any]:
        rng = self.rng
        details: dict[str, Any] = {"kept_count": bool(rng.random() < 0.3)}
        if rng.random() < 0.8:
            details["logprobs"] = int(rng.integers(0, 7))
            modes = tuple(rng.permutation(MODES)[: rng.integers(1, 4)].tolist())
            details["logprobs_mode"] = pick(rng, (*MODES, modes))
        if rng.random() < 0.4:
            count = int(rng.integers(0, 4))
            tokens = rng.integers(-1, self.vocabulary, count)
            forms = [list, tuple, np.array, lambda one: np.array(one, np.int32)]
            forms += [] if torch is None else [torch.tensor]
            details["logprob_tokens"] = pick(rng, forms)(tokens.tolist())
        if rng.random() < 0.05:
            details["margin"] = True
        if rng.random() < 0.5:
            details["on_invalid"] = "mark"
        return details

    # ------------------------------------------------------------ arguments in some form

    def in_some_shape(self, rows: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """The rows as an array of one to three axes, and `at` for three."""
        rng = self.rng
        if rng.random() < 0.3:
            steps = int(rng.integers(1, 4))
            at = rng.integers(0, steps, len(rows)) if rng.random() < 0.5 else None
            places = np.broadcast_to(rng.integers(0, steps) if at is None else at, len(rows))
            full = np.stack(
                [np.full_like(rows, 0x7E00 if rows.dtype == np.uint16 else np.nan)] * steps, 1
            )
            full[np.arange(len(rows)), places] = rows
            back = places - steps * (rng.random(len(rows)) < 0.5)
            shaped: Any = int(places[0] - steps * (rng.random() < 0.5)) if len(rows) else 0
            if at is not None:
                forms = [list, tuple, np.array, lambda one: np.array(one, np.int32)]
                forms += [] if torch is None else [torch.tensor]
                shaped = pick(rng, forms)(back.tolist())
            return self.in_some_form(full), {"at": shaped}
        if len(rows) == 1 and rng.random() < 0.5:
            return self.in_some_form(rows[0]), {}
        return self.in_some_form(in_random_layout(rng, rows)), {}

    def in_some_form(self, array: np.ndarray) -> Any:
        """An array, a tensor or another object that holds the same."""
        if array.dtype == np.uint16 or (torch is not None and self.rng.random() < 0.5):
            is_tensor_like = all(
                stride >= 0 and stride % array.itemsize == 0 for stride in array.strides
            )
            kept = array if is_tensor_like else array.copy()
            if torch is None:
                return widened(array)
            if array.dtype == np.uint16:
                return torch.from_numpy(kept.view(np.int16)).view(torch.bfloat16)
            return torch.from_numpy(kept)
        return ByDlpackOf(array.copy()) if self.rng.random() < 0.05 else array

    def mask(self, n_rows: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A mask in some form, and that of each row for `sample`."""
        if self.rng.random() < 0.6:
            return {}, [{}] * n_rows
        mask = random_mask(self.rng, n_rows, self.vocabulary, COLUMNS)
        each = [{"mask": mask[b % len(mask)]} for b in range(n_rows)]
        given: Any = mask[0] if len(mask) == 1 and self.rng.random() < 0.5 else mask
        if given.dtype == np.uint32 and self.rng.random() < 0.5:
            given = given.view(np.int32)
        if given.dtype != np.uint32 and torch is not None and self.rng.random() < 0.5:
            given = torch.from_numpy(np.ascontiguousarray(given))
        elif self.rng.random() < 0.1:
            given = np.asfortranarray(given)
        return {"mask": given}, each

    def bias(self, n_rows: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A bias in some form, and that of each row for `sample`."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.6:
            return {}, [{}] * n_rows
        each = [self.dict_bias() for _ in range(n_rows)]
        if kind < 0.75:
            return {"bias": each[0]}, [{"bias": each[0]}] * n_rows
        if kind < 0.9:
            given = [one if one or rng.random() < 0.5 else None for one in each]
            return {"bias": given}, [{"bias": one} for one in each]
        tokens = np.array(list(each[0]), pick(rng, (np.int64, np.int32)))
        values = np.array(list(each[0].values()), pick(rng, (np.float32, np.float64)))
        pair = (tokens, values)
        return {"bias": pair}, [{"bias": pair}] * n_rows

    def dict_bias(self) -> dict[int, float]:
        rng = self.rng
        some = rng.permutation(self.vocabulary)[: rng.choice([0, 1, 3, 30])].tolist()
        pool = (
            1.0,
            -2.5,
            1,
            -3,
            0.1,
            1e-40,
            -1e-46,
            3.4e38,
            1e-45,
            float("-inf"),
            float(rng.normal()),
        )
        return {token: pick(rng, pool) for token in some}


PARAMETERS = tuple(name for name in SamplingParams.__dataclass_fields__ if name != "seed")


class ByDlpackOf(ByDlpack):
    """Logits that are neither an array nor a tensor, with their number of axes."""

    @property
    def ndim(self) -> int:
        return self.array.ndim


def is_tensor(value: Any) -> bool:
    return torch is not None and isinstance(value, torch.Tensor)


def widened(bits: np.ndarray) -> np.ndarray:
    """Bfloat16, given as its bits, in float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def compare(found: SampleResult, expected: list[SampleResult], is_row: bool) -> None:
    """Hold every field of a result to those of its rows."""
    for name in (
        "tokens",
        "logprobs",
        "ranks",
        "top_tokens",
        "top_logprobs",
        "kept_count",
        "margin",
        "status",
    ):
        value, each = getattr(found, name), [getattr(one, name) for one in expected]
        if each[0] is None:
            assert value is None, name
            continue
        has_modes = name in MODE_FIELDS and each[0].ndim > (1 if name.startswith("top") else 0)
        stacked = each[0] if is_row else np.stack(each, 1 if has_modes else 0)
        assert same_bits(np.asarray(value), stacked), name


MODE_FIELDS = ("logprobs", "ranks", "top_tokens", "top_logprobs")
