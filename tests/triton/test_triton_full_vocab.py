"""Triton's full-vocabulary path: thresholds, ties and tokens, compared with the torch engine.

Other tests compare that engine with native and the reference. Compared: tokens, kept counts, W
and the status of rows. Without a GPU the kernels run in Triton's interpreter (conftest.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.engines import make_plan
from tests.support.random_requests import DTYPES
from tests.support.random_rows import random_draws, random_filters

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.triton

from fastsample.engines.reference.rows import OK  # noqa: E402
from fastsample.engines.torch import from_numpy, ordinal  # noqa: E402
from fastsample.engines.torch.batch import TensorRequest, status_of  # noqa: E402
from fastsample.engines.torch.draw import uniform_words  # noqa: E402
from fastsample.engines.torch.full_vocab_path import AllTokens  # noqa: E402
from fastsample.engines.torch.mass import SCALE_OF_ONE  # noqa: E402
from fastsample.engines.torch.penalties import TensorProcessors  # noqa: E402
from fastsample.engines.torch.prepare_params import Chain, RowParams, chain_of  # noqa: E402
from fastsample.engines.torch.select import select  # noqa: E402
from fastsample.engines.triton import (  # noqa: E402
    batch,
    block_max,
    full_vocab_path,
    prepare_params,
    race,
    topk_path,
)
from fastsample.engines.triton.launch import bits_of  # noqa: E402
from fastsample.engines.triton.param_table import COLUMNS, make_buffers  # noqa: E402
from fastsample.params.ops import DrawMethod, Op  # noqa: E402
from fastsample.params.table import MAX_STAGES  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZES = (1, 2, 63, 64, 65, 128, 200, 1000, 2100)
USUAL = ("temperature", "top_k", "top_p", "min_p")
ORDERS = (
    USUAL,
    USUAL[::-1],
    ("min_p", "top_k", "temperature", "top_p"),
    ("min_p", "top_p", "top_k"),
    ("temperature",),
    (),
    ("top_p", "temperature", "top_k", "min_p"),
)
THRESHOLDS = (Op.THRESHOLD, Op.THRESHOLD_OF_TOTAL, Op.THRESHOLD_OF_TOP_SHARE)


def tensor_of(values: np.ndarray) -> torch.Tensor:
    if values.dtype == np.uint16:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)


def request_of(
    values: torch.Tensor, plan: np.ndarray, vocabulary: int, draws: int = 1
) -> TensorRequest:
    """A request of tokens alone."""
    return TensorRequest(
        values=values,
        vocabulary=vocabulary,
        numbers=torch.from_numpy(from_numpy.numbers_of(plan)),
        host_numbers=None,
        rng_position=torch.from_numpy(from_numpy.rng_position_of(plan)),
        bad=None,
        processors=TensorProcessors(None, None, None, None, None, (-1, -3, -3)),
        ops=from_numpy.ops_of(plan),
        draws=draws,
        method=DrawMethod.INVERSE,
    )


def table_of(params: RowParams, rng_position: torch.Tensor) -> torch.Tensor:
    """The table as triton/param_table.py describes it."""
    stages = [
        part.view(torch.int64) if part.is_floating_point() else part for part in params.stages
    ]
    parts = [
        params.scale.view(torch.int32),
        params.min_keep,
        params.is_greedy,
        torch.zeros_like(params.is_greedy),
        rng_position,
        *stages,
        torch.zeros((len(rng_position), MAX_STAGES - len(stages) + 1)),
    ]
    return torch.cat([part.to(torch.int64) for part in parts], 1).to(DEVICE)


def check(
    values: torch.Tensor, plan: np.ndarray, vocabulary: int, draws: int = 1, known: bool = True
) -> None:
    """Compare the draws of a batch with the torch engine's.

    `known` is whether the host has the numbers, and not the device alone.
    """
    request = request_of(values, plan, vocabulary, draws)
    params = request.params
    chain = request.chain._replace(topk=0) if known else chain_of(request.ops, None)
    rows = ordinal.rows_of(ordinal.read(values, vocabulary))
    status = status_of(rows, None)
    tokens = AllTokens(rows)
    kept = select(tokens, chain, params)
    words = uniform_words(request.rng_position, draws, values.device)
    drawn, total = tokens.draw(kept, words)

    out = make_buffers(len(values), draws, DEVICE)
    maxima = ordinal.ordinals(rows.block_max).masked_fill(rows.block_max.isnan(), 0x7FC00000)
    table = table_of(params, request.rng_position)
    bits = bits_of(values.to(DEVICE))
    full_vocab_path.draw(bits, vocabulary, maxima.to(DEVICE), table, chain, out)
    good = (status == OK)[:, 0]
    assert out.status.tolist() == status[:, 0].tolist()
    assert out.kept_count.cpu()[good].tolist() == kept.count[good, 0].tolist()
    assert out.total.cpu()[good].tolist() == total[good, 0].tolist()
    assert out.tokens.cpu()[good].tolist() == drawn[good].tolist()
    assert (out.tokens.cpu()[~good] == -1).all() and (out.kept_count.cpu()[~good] == 0).all()


def test_the_parameter_table_is_torch_s() -> None:
    """Numbers at their ends, per row; and of single rows, as arguments of the launch."""
    tiny = [0.0, 1e-45, 1e-40, 2.0**-150, 2.0**-126, 2.0**-60, 2.0**-59, 2.0**-31, 2.0**-21]
    shares = [*tiny, 0.05, 0.95, 1 - 2.0**-24, 1.0, *np.random.default_rng(102).random(50)]
    temperatures = [*tiny, 0.8, 1 + 2.0**-24, 3e38]
    counts = [1.0, 50.0, 2.0**22, 2.0**53, 2.0**63, 0.0]
    columns = [[0.5], [0.5], [0.5], temperatures, counts[:-1], counts, *[shares] * 4]
    numbers = torch.from_numpy(np.stack([np.resize(column, 64) for column in columns], 1))
    rng_position = torch.arange(3 * 64).view(64, 3) * 5 - 9
    for rows in (slice(None), *(slice(at, at + 1) for at in range(14))):
        request = request_of(torch.zeros(64, 5)[rows], make_plan(64)[rows], 5)._replace(
            numbers=numbers[rows],
            rng_position=rng_position[rows],
            ops=(Op.COUNT, Op.MASS, *THRESHOLDS),
        )
        used = 7 + len(request.ops)
        expected = table_of(request.params, request.rng_position)[:, :used]
        assert prepare_params.prepare_params(request)[:, :used].tolist() == expected.tolist()


def random_plan(
    rng: np.random.Generator, n_rows: int, vocabulary: int, stages: tuple[str, ...]
) -> np.ndarray:
    """A plan of these stages; the threshold of min_p is now and then another op's."""
    rows = [random_filters(rng, vocabulary) for _ in range(n_rows)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    plan = make_plan(n_rows, **columns, **random_draws(rng, n_rows), stages=stages)
    few = rng.random(n_rows) < 0.3
    plan["min_keep"] = np.where(few, rng.integers(1, vocabulary + 2, n_rows), 1)
    ops = bytes(plan["ops"][0])
    plan["ops"] = ops.replace(bytes([Op.THRESHOLD]), bytes([rng.choice(THRESHOLDS)]))
    return plan


def check_batch(seed: tuple[int, ...]) -> int:
    """Compare a random batch: rows of every kind, each with its own settings, any order."""
    rng = np.random.default_rng(seed)
    n_rows, size = int(rng.integers(1, 5)), int(rng.choice(SIZES))
    values = list(DTYPES.values())[rng.integers(3)](rng, n_rows, size)
    tensor = tensor_of(values)
    if rng.random() < 0.3:
        tensor = tensor.repeat_interleave(3, 1)[:, ::3]
    vocabulary = size if rng.random() < 0.8 else int(rng.integers(1, size + 1))
    order = ORDERS[0] if rng.random() < 0.5 else ORDERS[rng.integers(len(ORDERS))]
    plan = random_plan(rng, n_rows, vocabulary, order)
    known = bool(rng.random() < 0.5)
    check(tensor, plan, vocabulary, draws=int(rng.choice([1, 1, 3])), known=known)
    return n_rows


def check_batches(first: int, cases: int) -> None:
    done, seed = 0, 0
    while done < cases:
        done += check_batch((95, first, seed))
        seed += 1
    print(f"{done} cases equal in Triton and torch")


def test_random_batches() -> None:
    check_batches(0, 12)


@pytest.mark.nightly
def test_more_random_batches() -> None:
    check_batches(1, 300)


def test_the_tiles_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few parts, many launches: the interpreter has other tiles, for speed."""
    monkeypatch.setattr(full_vocab_path, "_tiles_of", lambda n_blocks: full_vocab_path._TILES)
    rng = np.random.default_rng(96)
    values = torch.from_numpy((rng.standard_normal((2, 1_100)) * 3).astype(np.float32))
    values[1] = torch.round(values[1])
    plan = make_plan(2, top_k=[400, 0], top_p=0.8, min_p=0.001, min_keep=[1, 700], seed=[1, 2])
    check(values, plan, 1_100)


# ---------------------------------------------------------------- ties and borders


@pytest.mark.parametrize("size", [1, 63, 64, 65, 129])
def test_constant_rows(size: int) -> None:
    """Every token is a tie: the first of them are kept."""
    n_rows = 4
    plan = make_plan(
        n_rows,
        top_k=[1, max(1, size // 2), size, 0],
        top_p=[1.0, 0.5, 0.3, 0.999],
        seed=np.arange(n_rows),
    )
    check(torch.full((n_rows, size), -2.5), plan, size, draws=3)


def test_ties_that_a_cut_divides_across_blocks() -> None:
    rng = np.random.default_rng(97)
    values = torch.from_numpy(rng.integers(0, 3, (4, 400)).astype(np.float32))
    plan = make_plan(4, top_k=[0, 130, 270, 399], top_p=0.9, seed=np.arange(4))
    check(values, plan, 400, draws=2)
    late = ("top_p", "min_p", "top_k", "temperature")
    plan = make_plan(4, top_k=[0, 130, 270, 399], top_p=0.9, seed=np.arange(4), stages=late)
    check(values, plan, 400, draws=2)


def test_ranks_next_to_each_other() -> None:
    """Ties of neighbouring float32: the last launches of a search distinguish them."""
    ranks = np.random.default_rng(94).integers(0, 6, (4, 150)) + np.float32(3).view(np.int32)
    values = torch.from_numpy(ranks.astype(np.int32)).view(torch.float32)
    plan = make_plan(4, top_k=[5, 60, 0, 100], top_p=[1, 1, 0.3, 0.6], seed=np.arange(4))
    check(values, plan, 150)


def test_a_nucleus_that_ends_with_a_token_s_full_mass() -> None:
    """A share of exactly a half of 64 equal tokens; one unit more needs one token more."""
    plan = make_plan(1, top_p=0.5 + 2.0**-21, seed=1)
    check(torch.zeros(1, 64), plan, 64)


def test_ties_at_the_least_logit_that_min_p_keeps() -> None:
    plan = make_plan(1, min_p=0.25, seed=1)
    params = request_of(torch.zeros(1, 28), plan, 28).params
    y = params.stages[0][0, 0].to(torch.float32)
    nearest = ordinal.ordinals(y / np.float32(SCALE_OF_ONE))
    around = nearest + torch.arange(-4, 5, dtype=torch.int32)
    values = torch.cat([torch.zeros(1), ordinal.logits_of(around).repeat(3)])[None]
    check(values, plan, 28)


@pytest.mark.parametrize("op", THRESHOLDS[1:])
def test_thresholds_of_the_total(op: Op) -> None:
    """After top_p, whose total counts; where the first token is enough, and where it is not."""
    values = torch.from_numpy(np.random.default_rng(101).normal(size=(3, 200)).astype(np.float32))
    plan = make_plan(3, top_p=0.9, min_p=[0.02, 0.005, 1.0], seed=np.arange(3))
    plan["ops"] = bytes([Op.MASS, op])
    check(values, plan, 200)
    plan["min_keep"] = [1, 9, 5]
    check(values, plan, 200)


def test_greedy_bad_and_sampled_rows_in_one_batch() -> None:
    values = torch.from_numpy(np.random.default_rng(98).normal(size=(6, 200)).astype(np.float32))
    values[1, 70], values[2, 130], values[3] = torch.nan, torch.inf, -torch.inf
    values[5, 3:] = -torch.inf
    plan = make_plan(6, temperature=[0, 0, 1, 1, 0.7, 1], top_p=0.9, min_p=0.01, seed=5)
    check(values, plan, 200, draws=2)


def test_filters_that_may_not_keep_too_few() -> None:
    values = torch.from_numpy(np.random.default_rng(99).normal(size=(5, 150)).astype(np.float32))
    values[2] = torch.round(values[2])
    plan = make_plan(5, top_k=3, top_p=0.5, min_p=0.9, min_keep=[1, 2, 64, 150, 10**6], seed=5)
    check(values, plan, 150)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.nightly)]
)
def test_a_wide_row(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(100)
    values = torch.from_numpy((rng.standard_normal((1, 151_936)) * 3).astype(np.float32)).to(dtype)
    plan = make_plan(1, temperature=0.8, top_p=0.9, seed=7, position=3)
    check(values, plan, 151_936)


@pytest.mark.nightly
def test_the_heaviest_row_there_is() -> None:
    """2**22 equal logits weigh 2**62."""
    plan = make_plan(1, seed=7, position=3)
    check(torch.zeros(1, 2**22), plan, 2**22, draws=3)


def test_no_rows() -> None:
    plan = make_plan(0)
    check(torch.zeros(0, 5), plan, 5)


@pytest.mark.parametrize(
    ("settings", "known", "launches"),
    [
        ({"top_k": 50, "top_p": 0.9, "min_p": 0.1, "temperature": 0.8}, True, 3),
        ({"temperature": 0.8}, True, 5),
        ({"top_p": 0.9}, True, 16),
        ({"min_p": 0.1}, True, 7),
        ({"epsilon_cutoff": 0.1}, True, 8),
        ({"top_a": 0.1}, True, 8),
        ({"min_p": 0.1, "min_keep": 2}, True, 15),
        ({"top_k": 1_000}, True, 15),
        ({"top_k": 1_000, "top_p": 0.9, "min_p": 0.1, "temperature": 0.8}, False, 36),
        ({"top_k": 50, "temperature": 0.8, "draw": "race"}, True, 3),
        ({"temperature": 0.8, "draw": "race"}, True, 9),
        ({"top_p": 0.9, "draw": "race"}, True, 20),
        ({"top_p": 0.4, "draw": "race"}, True, 19),
        ({"top_p": 0.9, "draw": "race"}, False, 20),
    ],
    ids=str,
)
def test_a_draw_is_so_many_launches(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], known: bool, launches: int
) -> None:
    """As docs/gpu.md says, with the tiles of a device; the last is of numbers on the device."""
    made: list[Any] = []
    for module in (topk_path, prepare_params, block_max, full_vocab_path, race):
        monkeypatch.setattr(module, "launch", lambda kernel, *rest, **options: made.append(kernel))
    monkeypatch.setattr(full_vocab_path, "_tiles_of", lambda n_blocks: full_vocab_path._TILES)
    plan = make_plan(1, **settings)
    request = request_of(torch.zeros(1, 9_000), plan, 9_000)._replace(
        method=from_numpy.method_of(plan)
    )
    chain = request.chain if known else chain_of(request.ops, None)
    batch.draw(request, request.values, chain)
    assert len(made) == launches


def test_one_compiled_kernel_serves_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """All work begins at 16 bytes: Triton compiles a kernel anew for what does not."""
    rests = set()

    def launch(kernel: Any, grid: Any, *args: Any, **_: Any) -> None:
        rests.update(part.data_ptr() % 16 for part in args if isinstance(part, torch.Tensor))

    monkeypatch.setattr(full_vocab_path, "launch", launch)
    cpu = torch.device("cpu")
    chain = Chain(((Op.MASS, 0),), False, 0, False)
    for n_rows in (1, 2, 3):
        maxima = torch.zeros((n_rows, 2), dtype=torch.int32)
        table = torch.zeros((n_rows, COLUMNS.value), dtype=torch.int64)
        out = make_buffers(n_rows, 1, cpu)
        full_vocab_path.draw(torch.zeros((n_rows, 65)), 65, maxima, table, chain, out)
    assert rests == {0}


def test_programs_leave_no_processor_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card:
        multi_processor_count = 132

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    card = torch.device("cuda", 0)
    found = [full_vocab_path.programs_of(rows, 2_374, card) for rows in (1, 8, 64, 512, 4096)]
    assert found == [148, 66, 9, 2, 1]
    assert full_vocab_path.programs_of(1, 3, card) == 1
