"""`sample` for tensors that stay on their device: equal tokens, no value read back, one operator.

Without a GPU, tensors on the CPU reach the operator, and tensors on the device "meta", which have
no values: reading one would fail there.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest

import fastsample
from fastsample import Sampler, Status, engines, sample
from tests.support.case_loop import each
from tests.support.engines import Engine, csr, make_output, make_plan, make_request

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
without_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fastsample.engines.torch.batch import TensorRequest  # noqa: E402
from fastsample.engines.torch.batch import sample as sample_batch  # noqa: E402
from fastsample.engines.torch.logprobs import LogprobTokens  # noqa: E402
from fastsample.engines.torch.penalties import TensorProcessors  # noqa: E402
from fastsample.engines.torch.prepare_params import FIXED  # noqa: E402
from fastsample.params.ops import DrawMethod, Op  # noqa: E402

B, V = 6, 700
ENGINE: dict[str, Any] = {"engine": "torch", "on_invalid": "mark"}
USUAL_OPS = (Op.SCALE, Op.COUNT, Op.MASS, Op.THRESHOLD)
USUAL = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
MODES = ("raw", "tempered", "processed")
SETTINGS = {
    "temperature": [0.5, 0.0, 1.0, 2.0, 0.8, 1e-40],
    "top_k": [3, -1, 0, 7, 2000, 50],
    "top_p": [0.5, 0.75, 1.0, 0.25, 0.9, 0.99],
    "min_p": [0.0, 0.1, 0.02, 0.0, 1.0, 0.001],
    "typical_p": [0.9, 1.0, 0.3, 0.6, 1.0, 0.99],
    "epsilon_cutoff": [0.0, 0.1, 3e-4, 0.002, 0.0, 0.001],
    "top_n_sigma": [1.5, 0.0, 2.0, 1.0, 0.0, 3.0],
    "top_a": [0.2, 0.0, 1.0, 0.05, 1e-4, 0.0],
    "min_keep": [1, 2, 3, 1, 9, 1],
    "repetition_penalty": [1.0, 1.2, 0.8, 1.5, 1.0, 2.0],
    "frequency_penalty": [0.0, 0.1, -0.5, 0.0, 0.3, 0.2],
    "presence_penalty": [0.0, 0.5, 0.0, -1.0, 0.3, 0.2],
    "seed": [1, -2, 2**62, -(2**63), 5, 6],
    "position": [0, 1, 2**40, 2**62, 4, 5],
    "stream": [3, 2**32 - 1, 1, 0, 7, 8],
}
HISTORY = [[1, 2, 2], [], [699, 3], [5, 5, 5, 5], [0], [4, 0, 1]]
PADDED = [[1, 2, 2, -1], [-1] * 4, [699, -1, -1, 3], [5, 5, 5, 5], [0, -1, -1, -1], [-1, 4, 0, 1]]


@pytest.fixture
def logits() -> torch.Tensor:
    values = np.random.default_rng(80).normal(size=(B, V)).astype(np.float32) * 3
    return torch.from_numpy(values)


def tensors(settings: dict[str, Any]) -> dict[str, torch.Tensor]:
    doubles = {name: torch.tensor(values) for name, values in settings.items()}
    return {
        name: torch.tensor(settings[name], dtype=torch.float64) if one.is_floating_point() else one
        for name, one in doubles.items()
    }


def seeds_of(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as other engines take them from the host."""
    return {**settings, "seed": np.array(settings["seed"], np.int64)}


FIELDS = (
    "tokens",
    "logprobs",
    "ranks",
    "top_tokens",
    "top_logprobs",
    "token_logprobs",
    "token_ranks",
    "kept_count",
)


def same(one: Any, other: Any) -> None:
    """Compare two results, field by field."""
    for name in FIELDS:
        expected, found = getattr(one, name), getattr(other, name)
        if expected is None:
            assert found is None
            continue
        assert found.dtype == expected.dtype, name
        assert found.shape == expected.shape, name
        assert found.numpy().tobytes() == expected.numpy().tobytes(), name


# ---------------------------------------------------------------- equal results


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "outputs",
    [
        {},
        {"logprobs": 3},
        {"logprobs": 0, "logprobs_mode": MODES, "kept_count": True},
        {"n": 4, "kept_count": True},
        {"n": 3, "logprobs": 2, "logprob_tokens": [5, -1, 0]},
        {"logprob_tokens": list(range(20)), "logprobs_mode": ("processed", "raw")},
    ],
)
def test_settings_of_the_host(logits: torch.Tensor, dtype: str, outputs: dict[str, Any]) -> None:
    logits = logits.to(getattr(torch, dtype))
    options = {**USUAL, "seed": 3, "position": 1, "stream": "row", **outputs}
    same(sample(logits, **options), sample(logits, **options, **ENGINE))
    one = {**options, "stream": 9}
    same(sample(logits[2], **one), sample(logits[2], **one, **ENGINE))


@pytest.mark.parametrize(
    "names", [tuple(SETTINGS), ("temperature",), ("top_k",), ("seed", "stream")], ids="-".join
)
def test_settings_that_are_tensors(logits: torch.Tensor, names: tuple[str, ...]) -> None:
    """All of them, or some with the others on the host; bias, mask and histories too."""
    outputs = {
        "mask": torch.rand(B, V, generator=torch.manual_seed(1)) < 0.8,
        "logprobs": 2,
        "logprobs_mode": MODES,
        "valid_vocab": 690,
    }
    lists = {"prompt": [[1, 2], [3], [], [9], [1], [2]], "output": [row[:2] for row in HISTORY]}
    lists["output"][2] = [3]
    expected = sample(logits, **seeds_of(SETTINGS), **outputs, **lists)
    on_device = {**seeds_of(SETTINGS), **{name: tensors(SETTINGS)[name] for name in names}}
    same(expected, sample(logits, **on_device, **outputs, **lists, **ENGINE))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint64])
def test_logprob_tokens_that_are_tensors(logits: torch.Tensor, dtype: torch.dtype) -> None:
    """Of shape (K,) or (B, K); a row with one out of range is marked."""
    options = {**USUAL, "seed": 3, "position": 1, "stream": "row", "logprobs_mode": MODES}
    tokens = torch.tensor([[4, 4, 0], *[[1, V - 1, 3]] * (B - 1)], dtype=dtype)
    expected = sample(logits, **options, logprob_tokens=tokens)
    same(expected, sample(logits, **options, logprob_tokens=tokens, **ENGINE))
    shared = sample(logits, **options, logprob_tokens=tokens[1], **ENGINE)
    assert torch.equal(shared.token_ranks[:, 1:], expected.token_ranks[:, 1:])
    tokens[2, 1] = V
    bad = sample(logits, **options, logprob_tokens=tokens, **ENGINE)
    assert bad.status.tolist() == [3 if b == 2 else 0 for b in range(B)]
    assert bad.token_ranks[:, 2].tolist() == [[0, 0, 0]] * 3
    if dtype != torch.uint64:
        tokens[2, 1] = -1
        filled = sample(logits, **options, logprob_tokens=tokens, **ENGINE)
        assert not filled.status.any()
        assert (filled.token_ranks[:, 2] == 0).tolist() == [[False, True, False]] * 3


def test_adjustments_that_are_tensors(logits: torch.Tensor) -> None:
    options = {"repetition_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.1}
    options |= {"seed": 3, "position": 1, "stream": "row", "frequency_scope": 3, "logprobs": 1}
    values = [1.0, -2.0, -np.inf, 1e-40]
    bits = np.random.default_rng(81).integers(-(2**31), 2**31, (B, -(-V // 32)), dtype=np.int32)
    lists: dict[str, Any] = {"prompt": HISTORY, "output": HISTORY[::-1], "mask": bits}
    lists["bias"] = ([5, 0, 2, 9], values)
    same(
        sample(logits, **options, **lists),
        sample(
            logits,
            **options,
            prompt=torch.tensor(PADDED),
            output=torch.tensor(PADDED[::-1]),
            mask=torch.from_numpy(bits),
            bias=(torch.tensor([5, 0, -1, 2, 9]), torch.tensor([1.0, -2.0, 7.0, -np.inf, 1e-40])),
            **ENGINE,
        ),
    )


@each("at", [-1, 2, [0, -1, 2, 1, -3, 0], np.array([0, 1, 2, 0, 1, 2])])
def test_steps(at: Any) -> None:
    steps = np.random.default_rng(81).normal(size=(B, 3, V)).astype(np.float32)
    settings = {name: SETTINGS[name] for name in ("seed", "position", "stream")}
    found = sample(torch.from_numpy(steps), at=at, **tensors(settings), **ENGINE)
    assert found.tokens.tolist() == sample(steps, at=at, **seeds_of(settings)).tokens.tolist()


def test_scalars_that_are_tensors(logits: torch.Tensor) -> None:
    options = {"temperature": 0.7, "top_k": 9, "seed": 3, "position": 2, "stream": 5}
    on_device = {name: torch.tensor(value) for name, value in options.items()}
    # float32 tensors hold what the rule rounds to.
    same(sample(logits[0], **options), sample(logits[0], **on_device, **ENGINE))


def test_an_array_and_a_raising_call_take_the_engine(logits: torch.Tensor) -> None:
    options = {**USUAL, "seed": 3, "position": 1, "stream": "row"}
    expected = sample(logits, **options).tokens.tolist()
    assert sample(logits.numpy(), **options, engine="torch").tokens.tolist() == expected
    assert sample(logits, **options, engine="torch").tokens.tolist() == expected
    bad = logits.clone()
    bad[3, 5] = torch.nan
    with pytest.raises(ValueError, match="`logits` row 3 holds nan at token 5"):
        sample(bad, **options, engine="torch")


def test_a_sampler_takes_the_engine(logits: torch.Tensor) -> None:
    by_torch, by_other = (
        Sampler(seed=9, stream="row", engine=name, **USUAL) for name in ("torch", None)
    )
    for _ in range(4):
        assert by_torch(logits).tolist() == by_other(logits).tolist()


def test_a_sampler_refuses_a_device(logits: torch.Tensor) -> None:
    with pytest.raises(TypeError, match="must hold values, got a tensor on meta"):
        Sampler(seed=9)(logits.to("meta"))


def test_a_fresh_seed_is_in_the_result(logits: torch.Tensor) -> None:
    first = sample(logits, **ENGINE)
    again = sample(logits, seed=first.seed, position=0, stream="row")
    assert first.tokens.tolist() == again.tokens.tolist()


def test_out(logits: torch.Tensor) -> None:
    out = torch.full((2 * B,), -5)
    options = {"seed": 3, "position": 1, "stream": "row"}
    result = sample(logits, **options, **ENGINE, out=out[::2])
    assert result.tokens.data_ptr() == out.data_ptr()
    assert out[::2].tolist() == sample(logits, **options).tokens.tolist()
    assert out[1::2].tolist() == [-5] * B


def test_no_rows() -> None:
    result = sample(torch.zeros(0, 5), seed=1, position=0, stream="row", **ENGINE, logprobs=2)
    assert result.tokens.shape == (0,)
    assert result.top_tokens.shape == (0, 2)
    for temperature in ([], torch.ones(0)):
        none = sample(torch.zeros(0, 5), temperature=temperature, seed=1, position=0, **ENGINE)
        assert none.tokens.shape == (0,)


# ---------------------------------------------------------------- bad rows and bad numbers


def test_bad_rows_are_marked(logits: torch.Tensor) -> None:
    logits[0, 3], logits[1, 4], logits[2] = torch.nan, torch.inf, -torch.inf
    options = {
        **USUAL,
        "seed": 3,
        "position": 1,
        "stream": "row",
        "logprobs": 2,
        "logprobs_mode": MODES,
    }
    expected = sample(logits, **options, on_invalid="mark")
    found = sample(logits, **options, **ENGINE)
    same(expected, found)
    assert found.status.tolist() == expected.status.tolist() == [1, 1, 2, 0, 0, 0]
    assert found.status.dtype == torch.uint8


BAD: dict[str, Any] = {
    "temperature": [-1.0, np.nan, np.inf, 1e39],
    "top_p": [-0.1, 1.1, np.nan],
    "min_p": [-0.1, 1.1, np.nan],
    "typical_p": [-0.1, 1.1, np.nan],
    "epsilon_cutoff": [-0.1, 1.1, np.nan],
    "top_a": [-0.1, 1.1, np.nan],
    "top_n_sigma": [-0.1, np.inf, np.nan, 1e39],
    "top_k": [-2, -(2**63)],
    "min_keep": [0, -1],
    "repetition_penalty": [0.0, -1.0, np.inf, np.nan, 1e-50],
    "frequency_penalty": [np.inf, -np.inf, np.nan],
    "presence_penalty": [np.inf, np.nan],
    "position": [-1],
    "stream": [-1, 2**32],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_numbers_of_the_device_are_marked(logits: torch.Tensor, name: str) -> None:
    settings = seeds_of(SETTINGS)
    for number in BAD[name]:
        column = tensors(SETTINGS)[name]
        column[4] = number
        expected = sample(logits, **settings)
        found = sample(logits, **{**settings, name: column}, **ENGINE, kept_count=True)
        assert found.status.tolist() == [0, 0, 0, 0, Status.BAD_PARAM, 0], number
        assert found.tokens[4] == -1
        assert found.kept_count[4] == 0
        good = [0, 1, 2, 3, 5]
        assert found.tokens[good].tolist() == expected.tokens[good].tolist()


def test_bad_numbers_of_the_host_are_marked(logits: torch.Tensor) -> None:
    options = {**seeds_of(SETTINGS), "temperature": [1.0, -1.0, 1.0, 1.0, 1.0, 1.0]}
    assert sample(logits, **options, **ENGINE).status.tolist() == [0, 3, 0, 0, 0, 0]


def test_bad_lists_of_the_device_are_marked(logits: torch.Tensor) -> None:
    options = {"seed": 3, "position": 1, "stream": "row", "presence_penalty": 1.0}
    history = torch.tensor(PADDED)
    history[1, 0], history[2, 1] = V, -2
    assert sample(logits, **options, output=history, **ENGINE).status.tolist() == [0, 3, 3, 0, 0, 0]
    tokens = torch.arange(B * 2).view(B, 2)
    values = torch.zeros(B, 2)
    values[0, 1], values[1, 0], tokens[4, 1] = torch.inf, torch.nan, 8
    bias = (tokens, values)
    assert sample(logits, **options, bias=bias, **ENGINE).status.tolist() == [3, 3, 0, 0, 3, 0]


def test_a_filter_without_a_stage_is_marked(logits: torch.Tensor) -> None:
    options = {"seed": 3, "position": 1, "stream": "row", "stages": ("temperature",)}
    top_k = torch.tensor([0, -1, 4, 0, 0, 0])
    assert sample(logits, **options, top_k=top_k, **ENGINE).status.tolist() == [0, 0, 3, 0, 0, 0]


# ---------------------------------------------------------------- no synchronisation


class OfTheDevice(TorchDispatchMode):
    """Fails where an operation takes a tensor of the host too, which torch would wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        devices = {one.device.type for one in leaves if isinstance(one, torch.Tensor)}
        waits_not = func is torch.ops.aten._to_copy.default and kwargs.get("non_blocking")
        assert devices <= {"meta"} or devices == {"cpu"} or waits_not, (func, devices)
        assert "meta" not in str(kwargs.get("device")) or devices != {"cpu"} or waits_not, func
        self.count += 1
        return func(*args, **kwargs)


def full_request(
    ops: tuple[int, ...], of_host: torch.Tensor | None, method: DrawMethod
) -> TensorRequest:
    """A full request on a device without values; the numbers may be those of the host."""

    def there(*shape: int, dtype: Any = torch.int64) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    lists = there(B, 9)
    words = there(B, -(-V // 32), dtype=torch.int32)
    bias = there(B, 4, dtype=torch.float32)
    numbers = there(B, len(FIXED) + len(ops), dtype=torch.float64)
    rng_position = there(B, 3)
    if of_host is not None:
        numbers, rng_position = of_host, torch.ones(B, 3, dtype=torch.int64)
    return TensorRequest(
        values=there(B, V, dtype=torch.bfloat16),
        vocabulary=V,
        numbers=numbers,
        host_numbers=None,
        rng_position=rng_position,
        bad=None,
        processors=TensorProcessors(words, there(B, 4), bias, lists, lists, (-1, -3, 5)),
        ops=ops,
        draws=2,
        method=method,
        wanted=LogprobTokens(MODES, 1, 3),
    )


NUMBERS = {op: 0.3 for op in Op} | {Op.SCALE: 0.8}
CHAINS = (USUAL_OPS, (4, 1, 2, 3), (1,), (), (7, 1, 2, 3, 4, 8, 5, 6), (8, 2, 1, 8, 3))


@pytest.mark.parametrize("ops", CHAINS, ids=str)
@pytest.mark.parametrize("top_k", [None, 50, 1, 0])
@pytest.mark.parametrize("method", [DrawMethod.INVERSE, DrawMethod.RACE])
def test_no_synchronisation_with_the_host(
    ops: tuple[int, ...], top_k: int | None, method: DrawMethod
) -> None:
    """By numbers of the device, and by numbers of the host: for every path."""
    numbers = {**NUMBERS, Op.COUNT: top_k}
    row = [1.1, 0.1, 0.1, 0.8, 1.0, *(numbers[Op(op)] for op in ops)]
    of_host = None if top_k is None else torch.tensor([row] * B, dtype=torch.float64)
    request = full_request(ops, of_host, method)
    with OfTheDevice() as watch:
        output = sample_batch(request)
    assert watch.count > 100
    assert {one.device.type for one in output} == {"meta"}


def test_copies_from_the_host_are_counted() -> None:
    x = torch.empty(3, device="meta")
    for wait in (
        lambda: x + torch.ones(()),
        lambda: torch.ones(3).to("meta"),
    ):
        with pytest.raises(AssertionError), OfTheDevice():
            wait()


@pytest.mark.parametrize("outputs", [{}, {"logprobs": 2, "logprobs_mode": MODES}, {"n": 3}])
def test_shapes_are_those_of_the_values(logits: torch.Tensor, outputs: dict[str, Any]) -> None:
    options = {**USUAL, "seed": 3, "position": 1, "stream": "row", **outputs}
    real, shape = sample(logits, **options), sample(logits.to("meta"), **options)
    for name in ("tokens", "logprobs", "ranks", "top_tokens", "top_logprobs", "status"):
        expected, found = getattr(real, name), getattr(shape, name)
        if expected is not None:
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            assert found.device.type == "meta"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use is here")
def test_a_gpu_gives_the_same_tokens_without_synchronisation(logits: torch.Tensor) -> None:
    options = {
        **USUAL,
        "seed": 3,
        "position": 1,
        "stream": "row",
        "logprobs": 2,
        "logprobs_mode": MODES,
        "kept_count": True,
    }
    expected = sample(logits, **options)
    there = logits.cuda()
    sample(there, **options)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = sample(there, **options)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for name in ("tokens", "logprobs", "ranks", "top_tokens", "top_logprobs", "kept_count"):
        assert getattr(found, name).is_cuda
        assert torch.equal(getattr(found, name).cpu(), getattr(expected, name))


# ---------------------------------------------------------------- the operator


def arguments(top_k: int = 50, **changes: Any) -> tuple[Any, ...]:
    row = [1.1, 0.1, 0.1, 0.8, 1.0, 0.8, top_k, 0.95, 0.05]
    values = {
        "values": torch.randn(B, V, generator=torch.manual_seed(2)),
        "vocabulary": V,
        "numbers": torch.tensor([row] * B, dtype=torch.float64),
        "host_numbers": None,
        "rng_position": torch.arange(3 * B).view(B, 3),
        "bad": None,
        "mask": None,
        "bias_tokens": None,
        "bias": None,
        "prompt": None,
        "output": torch.tensor(PADDED),
        "scopes": [-1, -3, -3],
        "ops": list(USUAL_OPS),
        "draws": 1,
        "method": int(DrawMethod.INVERSE),
        "modes": [],
        "logprob_draws": 0,
        "top_count": 0,
        "logprob_tokens": None,
        "engine": "torch",
    }
    return tuple({**values, **changes}.values())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"modes": list(MODES), "logprob_draws": 1, "top_count": 3, "bad": torch.zeros(B) > 0},
        {"modes": ["raw"], "logprob_tokens": torch.arange(2 * B).view(B, 2)},
        {"draws": 3, "top_k": 0, "mask": torch.ones(1, V) > 0},
        {"draws": 3, "top_k": 0, "method": int(DrawMethod.RACE)},
    ],
)
@pytest.mark.parametrize("engine", ["torch", pytest.param("triton", marks=without_triton)])
def test_the_operator_passes_opcheck(engine: str, changes: dict[str, Any]) -> None:
    engines.resolve(engine)
    operator = torch.ops.fastsample.sample.default
    torch.library.opcheck(operator, arguments(engine=engine, **changes))


@pytest.mark.parametrize("ops", CHAINS, ids=str)
def test_the_operator_takes_every_chain(ops: tuple[int, ...]) -> None:
    row = [1.1, 0.1, 0.1, 0.8, 1.0, *(NUMBERS[Op(op)] for op in ops)]
    numbers = torch.tensor([row] * B, dtype=torch.float64)
    operator = torch.ops.fastsample.sample.default
    torch.library.opcheck(operator, arguments(numbers=numbers, ops=list(ops)))


def test_the_operator_is_the_engine() -> None:
    values, tokens = arguments()[0], torch.ops.fastsample.sample(*arguments())[0]
    plan = make_plan(B, **USUAL, seed=range(0, 3 * B, 3), position=range(1, 3 * B, 3))
    plan["stream"] = range(2, 3 * B, 3)
    plan["repetition_penalty"], plan["frequency_penalty"] = 1.1, 0.1
    plan["presence_penalty"] = 0.1
    request = make_request(values.numpy(), plan, output=csr(HISTORY))
    out = Engine("reference").run(request, make_output(B))
    assert tokens.tolist() == out.tokens.tolist()


def test_auto_never_takes_torch_for_the_cpu(logits: torch.Tensor) -> None:
    engines._resolve.cache_clear()
    fresh = {"seed": 1, "position": 0, "min_p": 0.0123}  # no call has prepared these
    with mock.patch.object(engines, "_load", wraps=engines._load) as load:
        assert fastsample.sample(logits, **fresh, stream="row").tokens.shape == (B,)
    loaded = {call.args[0] for call in load.call_args_list}
    assert loaded and not any(engines.ENGINES[name].takes_tensors for name in loaded)
