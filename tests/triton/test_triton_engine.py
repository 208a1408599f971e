"""The Triton engine gives native's bits: random requests, wide and recorded rows, and `sample`.

Without a GPU the kernels run in Triton's interpreter, which conftest.py asks for. Its time goes by
operations, so few rows of large vocabularies are compared, and more in nightly tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastsample
from fastsample import Sampler, engines, sample
from tests.support.against_native import (
    BASELINE,
    CHAINS,
    compare_chain,
    compare_largest,
    compare_recorded,
    compare_requests,
    compare_rows,
)
from tests.support.engines import (
    Engine,
    SampleRequest,
    differing,
    make_output,
    make_plan,
    make_request,
)
from tests.support.random_requests import restage
from tests.support.random_rows import Rng

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.triton

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import tests.support.fast_interpreter  # noqa: E402, F401
from fastsample.engines.torch.batch import TensorRequest  # noqa: E402
from fastsample.engines.torch.logprobs import NO_LOGPROBS, LogprobTokens  # noqa: E402
from fastsample.engines.torch.penalties import TensorProcessors  # noqa: E402
from fastsample.engines.triton import (  # noqa: E402
    batch,
    block_max,
    full_vocab_path,
    prepare_params,
    race,
    topk_path,
)
from fastsample.params.ops import DrawMethod, Op  # noqa: E402
from fastsample.params.table import STAGES  # noqa: E402

TRITON = Engine("triton")
SUPPORTED = [chain for chain in CHAINS if TRITON.has_stages(set(chain) & set(STAGES))]
COLUMNS = (1, 2, 63, 64, 65, 128, 200, 1000, 3001)
ENGINE: dict[str, Any] = {"engine": "triton", "on_invalid": "mark"}
RNG: dict[str, Any] = {"seed": 3, "position": 1, "stream": "row"}
USUAL = {"temperature": 0.8, "top_k": 50, "top_p": 0.95, "min_p": 0.05}
B, V = 6, 700


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Small rows: torch's threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def logits() -> Any:
    values = np.random.default_rng(94).normal(size=(B, V)).astype(np.float32) * 3
    return torch.from_numpy(values)


# ---------------------------------------------------------------- requests


ORDERS = (
    ("temperature", "top_k", "top_p", "min_p"),
    ("min_p", "temperature", "top_k", "top_p"),
    ("top_k", "min_p", "temperature", "top_p"),
    ("top_k", "top_p", "min_p", "temperature"),
)


def short(request: SampleRequest, rng: Rng) -> SampleRequest:
    """A request with small top_k, in every order of stages for which the top-k path is enough."""
    plan = request.plan.copy()
    borders = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256]
    top_k = rng.integers(1, rng.choice(borders), size=len(plan), endpoint=True)
    restage(plan, ORDERS[rng.integers(len(ORDERS))], top_k=top_k)
    plan["min_keep"] = np.minimum(plan["min_keep"], rng.integers(1, 9, len(plan)))
    return request._replace(plan=plan)


def test_requests_of_topk_path() -> None:
    compare_requests(TRITON, (91, 0), COLUMNS, 300, short)


def test_requests() -> None:
    compare_requests(TRITON, (92, 0), COLUMNS[:-1], 40)


def test_totals_and_kept_sets_are_native_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """W itself, of which a log-probability may not show the last bits."""
    drawn = []
    draw = batch.draw
    monkeypatch.setattr(batch, "draw", lambda *args: drawn.append(draw(*args)) or drawn[-1])
    values = np.random.default_rng(93).normal(size=(40, 500)).astype(np.float32) * 4
    for n_rows, top_k in ((40, 50), (4, 300)):
        temperatures = np.linspace(0.2, 3, n_rows)
        plan = make_plan(n_rows, seed=1, temperature=temperatures, top_k=top_k, top_p=0.97)
        request = make_request(values[:n_rows], plan)
        TRITON.run(request, make_output(n_rows))
        sets = BASELINE.kept_sets(request)
        expected = np.add.reduceat(sets.masses, sets.offsets[:-1])
        assert drawn.pop().total.tolist() == expected.tolist()
        assert differing(sets, TRITON.kept_sets(request)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(1, 5))
def test_more_requests(part: int) -> None:
    compare_requests(TRITON, (91, part), COLUMNS, 2_000, short)
    compare_requests(TRITON, (92, part), COLUMNS, 600)


# ---------------------------------------------------------------- large vocabularies


@pytest.mark.parametrize(
    "chain",
    [
        *SUPPORTED[1:3],
        *(pytest.param(chain, marks=pytest.mark.nightly) for chain in SUPPORTED),
    ],
    ids=str,
)
def test_every_path_on_wide_rows(chain: dict[str, Any]) -> None:
    compare_chain(TRITON, chain, np.float16)


@pytest.mark.nightly
def test_wide_rows() -> None:
    rng = np.random.default_rng(95)
    for _ in range(4):
        values = (rng.standard_normal((8, 262_144)) * rng.uniform(0.5, 8)).astype(np.float32)
        compare_rows(TRITON, values, rng)


# The chains without a search, which takes a minute for such a row where Triton is interpreted.
@pytest.mark.nightly
@pytest.mark.parametrize("chain", ({}, CHAINS[2], {"min_p": 0.01}), ids=str)
def test_the_largest_vocabulary(chain: dict[str, Any]) -> None:
    compare_largest(TRITON, chain)


@pytest.mark.nightly
def test_recorded_rows() -> None:
    compare_recorded(TRITON, 92, 64)


@pytest.mark.parametrize("size", [1, 63, 65, 4096])
def test_equal_logits_are_in_ascending_token_order(size: int) -> None:
    """Every cut falls among ties: the tokens that stay are the lowest."""
    rows = torch.zeros(9, size)
    k = torch.tensor([1, 2, 15, 16, 17, 63, 64, 65, 256])
    options = {"top_k": k.numpy(), **RNG, "n": 40, "kept_count": True}
    expected, found = sample(rows, **options), sample(rows, **options, **ENGINE)
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.kept_count.tolist() == k.clamp_max(size).tolist()


# ---------------------------------------------------------------- tensors


def same(one: Any, other: Any) -> None:
    """Compare two results, field by field."""
    for name in ("tokens", "logprobs", "ranks", "top_tokens", "top_logprobs", "kept_count"):
        expected, found = getattr(one, name), getattr(other, name)
        if expected is None:
            assert found is None
            continue
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
        assert found.numpy().tobytes() == expected.numpy().tobytes(), name


MODES = ("raw", "tempered", "processed")
OUTPUTS: list[dict[str, Any]] = [
    {},
    {"logprobs": 0, "logprobs_mode": MODES, "kept_count": True},
    {
        "logprobs": 2,
        "logprobs_mode": MODES,
        "bias": {3: 5.0},
        "output": [[1, 2]] * B,
        "valid_vocab": 690,
    },
    {"n": 70},
    {"top_k": [1, 50, 3, 0, 256, 300]},
    {"temperature": 0, "top_k": 0},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"top_k": 300, "top_p": 0.9, "stages": ("top_p", "temperature", "top_k", "min_p")},
]


@pytest.mark.parametrize("at", range(len(OUTPUTS)), ids=lambda at: str(OUTPUTS[at]))
def test_tensors(logits: Any, at: int) -> None:
    outputs = OUTPUTS[at]
    logits = logits.to((torch.float32, torch.bfloat16, torch.float16)[at % 3])
    options = {**USUAL, **RNG, **outputs, "presence_penalty": 0.5}
    same(sample(logits, **options), sample(logits, **options, **ENGINE))


def test_strided_and_repeated_rows(logits: Any) -> None:
    for rows in (logits.T.contiguous().T, logits[:, ::3], logits[1:2].expand(4, V), logits[::2]):
        same(sample(rows, **USUAL, **RNG), sample(rows, **USUAL, **RNG, **ENGINE))


def test_numbers_that_are_tensors(logits: Any) -> None:
    options: dict[str, Any] = {
        "temperature": torch.tensor([0.5, 0.0, 1.0, 2.0, 0.8, 1e-40]),
        "top_k": torch.tensor([3, -1, 0, 7, 2000, 50]),
        "top_p": torch.tensor([0.5, 0.75, 1.0, 0.25, 0.9, 0.99]),
        "min_p": torch.tensor([0.0, 0.1, 0.02, 0.0, 1.0, 0.001]),
        "min_keep": torch.tensor([1, 2, 3, 1, 9, 1]),
        "seed": torch.tensor([1, -2, 2**62, -(2**63), 5, 6]),
        "position": torch.tensor([0, 1, 2**40, 2**62, 4, 5]),
        "stream": torch.tensor([3, 2**32 - 1, 1, 0, 7, 8]),
    }
    same(sample(logits, **options), sample(logits, **options, **ENGINE))
    one = {name: value[3] for name, value in options.items()}
    same(sample(logits[3], **one), sample(logits[3], **one, **ENGINE))


def test_streams_and_seeds_by_row(logits: Any) -> None:
    for stream in ([5, 7, 9, 11, 13, 15], [5, 7, 9, 11, 13, 16], 2**32 - 1):
        options = {**USUAL, **RNG, "stream": stream}
        same(sample(logits, **options), sample(logits, **options, **ENGINE))


def test_bad_rows_and_numbers_are_marked(logits: Any) -> None:
    logits[0, 3], logits[1, 4], logits[2] = torch.nan, torch.inf, -torch.inf
    logits.view(torch.int32)[3, 9] = -0x3FFFFF  # a NaN below every number, by its bits
    options = {**USUAL, **RNG, "logprobs": 1, "logprobs_mode": MODES}
    options["top_p"] = [0.9, 0.9, 0.9, 0.9, 1.5, 0.9]
    for top_k in (50, 0):
        options["top_k"] = top_k
        expected = sample(logits, **options, on_invalid="mark")
        found = sample(logits, **options, **ENGINE)
        same(expected, found)
        assert found.status.tolist() == expected.status.tolist() == [1, 1, 2, 1, 3, 0]


def test_out_and_no_rows(logits: Any) -> None:
    out = torch.full((2 * B,), -5)
    result = sample(logits, **USUAL, **RNG, **ENGINE, out=out[::2])
    assert result.tokens.data_ptr() == out.data_ptr()
    assert out[::2].tolist() == sample(logits, **USUAL, **RNG).tokens.tolist()
    assert sample(logits[:0], **RNG, **ENGINE, logprobs=2).top_tokens.shape == (0, 2)


def test_arrays_raising_calls_and_samplers(logits: Any) -> None:
    expected = sample(logits, **USUAL, **RNG).tokens.tolist()
    assert sample(logits.numpy(), **USUAL, **RNG, engine="triton").tokens.tolist() == expected
    logits[3, 5] = torch.nan
    with pytest.raises(ValueError, match="`logits` row 3 holds nan at token 5"):
        sample(logits, **USUAL, **RNG, engine="triton")
    by_triton, by_other = (
        Sampler(seed=9, stream="row", engine=name, **USUAL) for name in ("triton", None)
    )
    for _ in range(3):
        assert by_triton(logits[:3]).tolist() == by_other(logits[:3]).tolist()


def test_softmax_is_torch_s(logits: Any) -> None:
    expected = fastsample.softmax(logits.numpy(), engine="torch")
    assert fastsample.softmax(logits.numpy(), engine="triton").tobytes() == expected.tobytes()


def test_the_host_chooses_the_topk_path(logits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to so many, rows are not read again."""
    seen = []
    draw = topk_path.draw
    monkeypatch.setattr(topk_path, "draw", lambda *args: (seen.append(args[4].topk), draw(*args)))
    for top_k in (1, topk_path.MAX_TOPK, topk_path.MAX_TOPK + 1):
        sample(logits, **{**USUAL, "top_k": top_k}, **RNG, **ENGINE, draw="inverse")
    assert seen == [1, topk_path.MAX_TOPK]


def test_auto_is_torch(logits: Any) -> None:
    """Triton is chosen by name alone."""
    assert engines.resolve("triton").name == "triton"
    assert sample(logits.to("meta"), **RNG).tokens.device.type == "meta"


MODULES = (prepare_params, block_max, topk_path, full_vocab_path, race)
USUAL_OPS = (Op.SCALE, Op.COUNT, Op.MASS, Op.THRESHOLD)
DRAWN = (DrawMethod.INVERSE, DrawMethod.RACE)
NUMBERS = {Op.SCALE: 0.8, Op.MASS: 0.9, Op.THRESHOLD: 0.05, Op.THRESHOLD_OF_TOTAL: 0.01}


def request_of(
    values: Any,
    ops: tuple[int, ...],
    numbers: Any,
    rng_position: Any,
    processors: TensorProcessors,
    **changes: Any,
) -> TensorRequest:
    """A request of two draws, and of log-probabilities where there are logits processors."""
    request = TensorRequest(
        values=values,
        vocabulary=V,
        numbers=numbers,
        host_numbers=None,
        rng_position=rng_position,
        bad=None,
        processors=processors,
        ops=ops,
        draws=2,
        method=DrawMethod.INVERSE,
        wanted=NO_LOGPROBS if processors.are_none else LogprobTokens(MODES, 2, 3),
    )
    return request._replace(**changes)


@pytest.mark.parametrize("ops", [USUAL_OPS, (3, 2, 4, 1), (1, 5), ()], ids=str)
@pytest.mark.parametrize("top_k", [None, 50, 0])
@pytest.mark.parametrize("method", DRAWN)
def test_kernels_are_launched_without_synchronisation(
    method: DrawMethod, top_k: int | None, ops: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their arguments are on the device, and no value is read: "meta" has none."""
    launched = []

    def launch(kernel: Any, grid: Any, *args: Any, **_: Any) -> None:
        parts = [part for part in args if isinstance(part, torch.Tensor)]
        launched.append({part.device.type for part in parts})

    for module in MODULES:
        monkeypatch.setattr(module, "launch", launch)
    monkeypatch.setattr(batch, "check_device", lambda device: None)

    def there(*shape: int, dtype: Any = torch.int64) -> Any:
        return torch.empty(shape, dtype=dtype, device="meta")

    numbers, rng_position = there(B, 5 + len(ops), dtype=torch.float64), there(B, 3)
    if top_k is not None:
        stages = {**NUMBERS, Op.COUNT: top_k}
        row = [1.0, 0.0, 0.0, 0.8, 1.0, *(stages[Op(op)] for op in ops)]
        numbers = torch.tensor([row] * B, dtype=torch.float64)
        rng_position = torch.arange(B)[:, None].expand(B, 3) * 0
    lists = there(B, 9)
    values = there(B, V, dtype=torch.bfloat16)
    for processors in (
        TensorProcessors(None, None, None, None, None, (-1, -3, -3)),
        TensorProcessors(there(B, 22, dtype=torch.int32), None, None, lists, lists, (-1, -3, 5)),
    ):
        request = request_of(values, ops, numbers, rng_position, processors, method=method)
        output = batch.sample(request)
        assert {part.device.type for part in output} == {"meta"}
    assert len(launched) >= 6
    assert launched == [{"meta"}] * len(launched)


class Copies(TorchDispatchMode):
    """Notes what is copied from the host to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and args[0].is_cpu and not out.is_cpu:
            self.seen.append(args[0])
        return out


@pytest.mark.parametrize("rows", [1, B])
@pytest.mark.parametrize("method", DRAWN)
def test_numbers_that_rows_share_are_not_copied(
    method: DrawMethod, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CUDA graph takes no copy of memory that the host may give to others before the replay."""
    for module in MODULES:
        monkeypatch.setattr(module, "launch", lambda *args, **_: None)
    monkeypatch.setattr(batch, "check_device", lambda device: None)
    lists = torch.empty((rows, 9), dtype=torch.int64, device="meta")
    request = request_of(
        torch.empty((rows, V), device="meta"),
        USUAL_OPS,
        torch.tensor([[1.2, 0.5, 0.25, 0.8, 1, 0.8, 50, 0.9, 0.05]] * rows, dtype=torch.float64),
        torch.tensor([[1, 2, 3]] * rows),
        TensorProcessors(None, None, None, lists, lists, (-1, -3, 5)),
        bad=torch.zeros(rows, dtype=torch.bool),
        method=method,
    )
    with Copies() as copies:
        batch.sample(request)
    assert copies.seen == []


@pytest.mark.filterwarnings("ignore")  # torch warns of its own parts
def test_compiled_code_takes_the_engine(logits: Any) -> None:
    def step(rows: Any, position: Any) -> Any:
        return sample(rows, **USUAL, **{**RNG, "position": position}, **ENGINE).tokens

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for position in (torch.zeros(B, dtype=torch.int64), torch.arange(B)):
        assert compiled(logits, position).tolist() == step(logits, position).tolist()
