"""What comes as tensors: any dtype of a number, its ends, and mixtures with what the host has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastsample import sample
from fastsample.engines.reference.engine import filters
from fastsample.inputs.arrays import in_type_of
from fastsample.params.table import BY_NAME, PENALTY_SCOPES, STAGES
from fastsample.params.validation import SCOPE_CODES
from tests.support.case_loop import each
from tests.support.engines import (
    TESTED_ENGINES,
    Engine,
    SampleRequest,
    column_of,
    make_output,
    same_bits,
)
from tests.support.random_requests import MODES, alike, random_request, restage
from tests.support.random_rows import Rng, pick

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from fastsample.engines.torch import from_numpy  # noqa: E402

NUMBERS = tuple(name for name, parameter in BY_NAME.items() if parameter.per_row)
SCOPES = tuple(scope.name for scope in PENALTY_SCOPES)

BASELINE = next((engine for engine in TESTED_ENGINES if engine.is_native), Engine("reference"))
ENGINE: dict[str, Any] = {"engine": "torch", "on_invalid": "mark"}
RNG: dict[str, Any] = {"seed": 3, "position": 1, "stream": "row"}
WHOLES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
B, V = 4, 300


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(83).normal(size=(B, V)).astype(np.float32))


def of(numbers: Any, dtype: str) -> torch.Tensor:
    return torch.from_numpy(np.array(numbers, dtype))


# ---------------------------------------------------------------- integers


@each("dtype", WHOLES)
@each("name", ["seed", "position", "stream", "top_k", "min_keep"])
def test_integers_of_any_dtype(logits: torch.Tensor, name: str, dtype: str) -> None:
    for numbers in ([1, 2, 3, 100], 7):
        options = {**RNG, "top_p": 0.5, "top_k": 60, name: numbers}
        expected = sample(logits, **options).tokens.tolist()
        found = sample(logits, **{**options, name: of(numbers, dtype)}, **ENGINE)
        assert (found.tokens.tolist(), found.status.tolist()) == (expected, [0] * B)


ENDS = [
    ("seed", "uint64", 2**64 - 1),
    ("position", "uint64", 2**64 - 1),
    ("stream", "uint32", 2**32 - 1),
    ("stream", "uint64", 2**32 - 1),
    ("top_k", "uint64", 2**63 - 1),
    ("min_keep", "uint64", 2**63 - 1),
    ("top_k", "int8", -1),
]


@pytest.mark.parametrize(("name", "dtype", "number"), ENDS)
def test_the_last_integers(logits: torch.Tensor, name: str, dtype: str, number: int) -> None:
    expected = sample(logits, **{**RNG, name: [number] * B}).tokens.tolist()
    found = sample(logits, **{**RNG, name: of([number] * B, dtype)}, **ENGINE)
    assert found.tokens.tolist() == expected


PAST = [
    *(("seed", dtype, -1) for dtype in ("int8", "int16", "int32")),
    *(("position", dtype, -1) for dtype in ("int8", "int32", "int64")),
    *(("stream", dtype, -1) for dtype in ("int8", "int32", "int64")),
    *(("stream", dtype, 2**32) for dtype in ("int64", "uint64")),
    ("stream", "uint64", 2**64 - 1),
    *(("top_k", "uint64", number) for number in (2**63, 2**64 - 1)),
    *(("min_keep", "uint64", number) for number in (0, 2**63, 2**64 - 1)),
]


@pytest.mark.parametrize(("name", "dtype", "number"), PAST)
def test_integers_past_their_ends_are_marked(
    logits: torch.Tensor, name: str, dtype: str, number: int
) -> None:
    """As they are errors where the host has them."""
    numbers = np.array([1, 1, number, 1], dtype)
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        sample(logits, **{**RNG, name: numbers})
    found = sample(logits, **{**RNG, name: torch.from_numpy(numbers)}, **ENGINE)
    assert found.status.tolist() == [0, 0, 3, 0]


def test_a_small_top_k_without_a_stage_is_marked(logits: torch.Tensor) -> None:
    options = {**RNG, "stages": ("temperature",), "top_k": of([0, 255, 0, 1], "uint8")}
    assert sample(logits, **options, **ENGINE).status.tolist() == [0, 3, 0, 3]


def test_tokens_of_any_dtype(logits: torch.Tensor) -> None:
    expected = sample(logits, **RNG, output=[[1, 2]] * B, presence_penalty=9.0).tokens.tolist()
    for dtype in WHOLES:
        output = of([[1, 2]] * B, dtype)
        found = sample(logits, **RNG, output=output, presence_penalty=9.0, **ENGINE)
        assert found.tokens.tolist() == expected
    output = of([[1], [2**64 - 1], [2], [3]], "uint64")
    assert sample(logits, **RNG, output=output, **ENGINE).status.tolist() == [0, 3, 0, 0]


# ---------------------------------------------------------------- reals


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_reals_of_any_dtype(logits: torch.Tensor, dtype: str, flush: bool) -> None:
    """Denormal ones too: a temperature of 1e-40 is above 0."""
    logits[:, ::2] = logits[:, 1::2]
    for name, numbers in {"temperature": [1e-40, 0.5, 1, 0], "min_p": [0.5, 1e-7, 0, 1]}.items():
        tensor = torch.tensor(numbers, dtype=getattr(torch, dtype))
        options = {**RNG, "logprobs": 1, "logprobs_mode": MODES, "kept_count": True}
        expected = sample(logits, **options, **{name: tensor.double().tolist()})
        torch.set_flush_denormal(flush)
        try:
            found = sample(logits, **options, **{name: tensor}, **ENGINE)
        finally:
            torch.set_flush_denormal(False)
        assert found.kept_count.tolist() == expected.kept_count.tolist()
        assert found.logprobs.numpy().tobytes() == expected.logprobs.numpy().tobytes()


@pytest.mark.parametrize("flush", [False, True])
def test_a_bias_is_rounded_as_the_host_rounds_it(flush: bool) -> None:
    """Denormals on integers, and large integers by way of float64."""
    tokens = torch.arange(4)
    logits = torch.tensor([2.0**-126, 2.0**-126, -(2.0**-126), -1.0])
    for values in (
        torch.tensor([6e-39, -6e-39, 1e-45, -torch.inf], dtype=torch.float64),
        torch.tensor([2**54 + 2**30 + 1, -(2**54) - 2**30 - 1, 2**24 + 1, 0]),
    ):
        bias = {token: value for token, value in enumerate(values.tolist())}
        options = {
            "temperature": 2.0**-126,
            "seed": 1,
            "position": 0,
            "logprobs": 4,
            "logprobs_mode": MODES,
        }
        expected = sample(logits, **options, bias=bias)
        torch.set_flush_denormal(flush)
        try:
            found = sample(logits, **options, bias=(tokens, values), **ENGINE)
        finally:
            torch.set_flush_denormal(False)
        assert found.top_tokens.tolist() == expected.top_tokens.tolist()
        assert found.top_logprobs.numpy().tobytes() == expected.top_logprobs.numpy().tobytes()


# ---------------------------------------------------------------- mixtures


def some_dtype(rng: Rng, column: np.ndarray) -> torch.Tensor:
    """A column of a plan in some dtype that holds it."""
    if column.dtype == np.float64:
        return torch.from_numpy(column.copy())
    ends = int(column.min()), int(column.max())
    fitting = [
        name for name in WHOLES if np.iinfo(name).min <= ends[0] and ends[1] <= np.iinfo(name).max
    ]
    return torch.from_numpy(column.astype(pick(rng, fitting)))


def numbers_of(rng: Rng, column: np.ndarray) -> Any:
    """A column as an array, a tensor or, where it is one number, that number of either kind."""
    is_one = bool((column == column[0]).all())
    if rng.random() < 0.4:
        return column[0].item() if is_one else column.copy()
    tensor = some_dtype(rng, column)
    return tensor[0] if is_one and rng.random() < 0.5 else tensor


def typed_column(plan: np.ndarray, name: str) -> np.ndarray:
    return column_of(plan, name).astype(BY_NAME[name].dtype)


def mixture(rng: Rng, request: SampleRequest) -> dict[str, Any]:
    """The arguments of `sample` for a request, each of them of the host or a tensor."""
    named = {number: name for name, number in SCOPE_CODES.items()}
    scopes = from_numpy.scopes_of(request.plan)
    rows = np.arange(len(request.plan))
    lists = from_numpy.processors_of(request.processors, rows, scopes)
    return {
        **{
            name: numbers_of(rng, column_of(request.plan, name).astype(BY_NAME[name].dtype))
            for name in NUMBERS
        },
        **{name: named.get(scope, scope) for name, scope in zip(SCOPES, scopes, strict=True)},
        "mask": lists.mask,
        "short_mask": "ban",
        "prompt": lists.prompt,
        "output": lists.output,
        "bias": None if lists.bias is None else (lists.bias_tokens, lists.bias),
        "stages": filters(request.plan[0])["stages"],
        "valid_vocab": request.vocabulary,
    }


def make_constant(plan: np.ndarray, name: str) -> None:
    """Give all rows of a plan the first one's value of a parameter."""
    value = column_of(plan, name)[0]
    if name in STAGES:
        restage(plan, filters(plan[0])["stages"], **{name: np.full(len(plan), value)})
    else:
        plan[name] = value


def check_mixture(seed: tuple[int, ...]) -> int:
    """Compare a random call with the engine that oracle tests compare; return its rows."""
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(1, 9))
    request = alike(random_request(rng, n_rows, int(pick(rng, (1, 64, 65, 700)))))
    for name in NUMBERS:
        if rng.random() < 0.4:
            make_constant(request.plan, name)
    count = int(rng.integers(0, min(4, request.vocabulary)))
    draw = pick(rng, ("race", "inverse"))
    request.plan["draw"] = draw == "race"
    given = np.zeros((n_rows, 0), np.int64)
    given = given if request.logprob_tokens is None else request.logprob_tokens
    shape = {"modes": MODES, "top_count": count, "token_count": given.shape[1], "draws": 2}
    expected = BASELINE.run(request._replace(logprob_tokens=given), make_output(n_rows, **shape))
    logits = in_type_of(torch.empty(0), np.array(request.values))
    outputs = {"logprobs": count, "logprobs_mode": MODES, "kept_count": True, "n": 2}
    outputs["logprob_tokens"] = torch.from_numpy(given)
    found = sample(logits, **mixture(rng, request), **outputs, draw=draw, **ENGINE)
    for name, values in {**expected._asdict(), **expected.logprobs._asdict()}.items():
        if name != "modes":
            assert same_bits(values, getattr(found, name).numpy()), (seed, name)
    return n_rows


def check_mixtures(first: int, calls: int) -> None:
    rows = sum(check_mixture((84, first, seed)) for seed in range(calls))
    print(f"{rows} rows equal, of {calls} mixed calls")


def test_mixtures() -> None:
    check_mixtures(0, 120)


@pytest.mark.nightly
def test_more_mixtures() -> None:
    check_mixtures(1, 2_000)
