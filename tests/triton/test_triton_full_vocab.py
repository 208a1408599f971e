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
from fastsample.engines.torch import rows as of_torch  # noqa: E402
from fastsample.engines.torch.batch import Asked, status_of  # noqa: E402
from fastsample.engines.torch.filters import kept_of  # noqa: E402
from fastsample.engines.torch.from_numpy import PLACE, REALS, WHOLES, columns  # noqa: E402
from fastsample.engines.torch.full_vocab_path import Whole  # noqa: E402
from fastsample.engines.torch.int64_math import uniform  # noqa: E402
from fastsample.engines.torch.mass import SCALE_OF_ONE  # noqa: E402
from fastsample.engines.torch.penalties import Adjustments  # noqa: E402
from fastsample.engines.torch.prepare_params import Chain, Settings, chain_of, settings_of  # noqa: E402
from fastsample.engines.triton import batch  # noqa: E402
from fastsample.engines.triton import block_max as tops  # noqa: E402
from fastsample.engines.triton import full_vocab_path as whole  # noqa: E402
from fastsample.engines.triton import prepare_params as settle  # noqa: E402
from fastsample.engines.triton import topk_path as head  # noqa: E402
from fastsample.engines.triton.launch import bits_of  # noqa: E402
from fastsample.engines.triton.param_table import COLUMNS, blank  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZES = (1, 2, 63, 64, 65, 128, 200, 1000, 2100)
ORDERS = (0x4321, 0x1234, 0x1324, 0x3214, 0x431, 0x32, 0x1, 0x0, 0x4123)
"""Orders of stages, by their codes; the first to act is the lowest digit."""


def tensor_of(values: np.ndarray) -> torch.Tensor:
    if values.dtype == np.uint16:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)


def table_of(settings: Settings, bad: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The table of settings as triton_rule/table.py describes it."""
    parts = [
        settings.scale.view(torch.int32),
        settings.threshold.view(torch.int32),
        *(settings.share, settings.top_k, settings.min_keep, settings.is_greedy, bad),
    ]
    return torch.cat([*(part.to(torch.int64) for part in parts), place], 1).to(DEVICE)


def chain_with(stages: int, plan: np.ndarray, known: bool) -> Chain:
    """What may act, where the host has the numbers, or where only the device has them."""
    seen = (columns(plan, names) if known else None for names in (REALS, WHOLES))
    return chain_of(stages, *seen)._replace(head=0)


def check(
    values: torch.Tensor, plan: np.ndarray, vocabulary: int, chain: Chain, draws: int = 1
) -> None:
    """Hold draws from a batch to the torch engine's."""
    settings, bad = settings_of(columns(plan, REALS), columns(plan, WHOLES))
    place = columns(plan, PLACE)
    rows = of_torch.rows_of(of_torch.widened(values, vocabulary))
    status = status_of(rows, bad)
    tokens = Whole(rows)
    kept, scale = kept_of(tokens, chain, settings)
    seed, position, stream = place.unsqueeze(2).unbind(1)
    words = uniform(seed, position, stream + torch.arange(draws))
    drawn, total = tokens.draw(kept, scale, words)

    out = blank(len(values), draws, DEVICE)
    block_ranks = of_torch.ranks(rows.block_tops).masked_fill(rows.block_tops.isnan(), 0x7FC00000)
    whole.draw(
        *(bits_of(values.to(DEVICE)), vocabulary, block_ranks.to(DEVICE)),
        *(table_of(settings, bad, place), chain, out),
    )
    good = (status == OK)[:, 0]
    assert out.status.tolist() == status[:, 0].tolist()
    assert out.kept_count.cpu()[good].tolist() == kept[good, 0].tolist()
    assert out.total.cpu()[good].tolist() == total[good, 0].tolist()
    assert out.tokens.cpu()[good].tolist() == drawn[good].tolist()
    assert (out.tokens.cpu()[~good] == -1).all() and (out.kept_count.cpu()[~good] == 0).all()


def random_plan(rng: np.random.Generator, n_rows: int, vocabulary: int) -> np.ndarray:
    rows = [random_filters(rng, vocabulary) for _ in range(n_rows)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    plan = make_plan(n_rows, **columns, **random_draws(rng, n_rows))
    few = rng.random(n_rows) < 0.3
    plan["min_keep"] = np.where(few, rng.integers(1, vocabulary + 2, n_rows), 1)
    return plan


def check_batch(seed: tuple[int, ...]) -> int:
    """Hold a random batch: rows of every kind, settings of their own, any order of stages."""
    rng = np.random.default_rng(seed)
    n_rows, size = int(rng.integers(1, 5)), int(rng.choice(SIZES))
    values = list(DTYPES.values())[rng.integers(3)](rng, n_rows, size)
    tensor = tensor_of(values)
    if rng.random() < 0.3:
        tensor = tensor.repeat_interleave(3, 1)[:, ::3]
    vocabulary = size if rng.random() < 0.8 else int(rng.integers(1, size + 1))
    plan = random_plan(rng, n_rows, vocabulary)
    stages = ORDERS[0] if rng.random() < 0.5 else int(rng.choice(ORDERS))
    chain = chain_with(stages, plan, known=bool(rng.random() < 0.5))
    check(tensor, plan, vocabulary, chain, draws=int(rng.choice([1, 1, 3])))
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
    """Few ways, many launches: the interpreter takes other numbers, for speed."""
    monkeypatch.setattr(whole, "_tiles_of", lambda n_blocks: whole._TILES)
    rng = np.random.default_rng(96)
    values = torch.from_numpy((rng.standard_normal((2, 1_100)) * 3).astype(np.float32))
    values[1] = torch.round(values[1])
    plan = make_plan(2, top_k=[400, 0], top_p=0.8, min_p=0.001, min_keep=[1, 700], seed=[1, 2])
    check(values, plan, 1_100, chain_with(ORDERS[0], plan, known=True))


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
    chain = chain_with(ORDERS[0], plan, known=True)
    check(torch.full((n_rows, size), -2.5), plan, size, chain, draws=3)


def test_ties_that_a_cut_divides_across_blocks() -> None:
    rng = np.random.default_rng(97)
    values = torch.from_numpy(rng.integers(0, 3, (4, 400)).astype(np.float32))
    plan = make_plan(4, top_k=[0, 130, 270, 399], top_p=0.9, seed=np.arange(4))
    check(values, plan, 400, chain_with(ORDERS[0], plan, known=True), draws=2)
    check(values, plan, 400, chain_with(0x1243, plan, known=True), draws=2)


def test_ranks_next_to_each_other() -> None:
    """Ties of neighbouring float32: the last launches of a search distinguish them."""
    ranks = np.random.default_rng(94).integers(0, 6, (4, 150)) + np.float32(3).view(np.int32)
    values = torch.from_numpy(ranks.astype(np.int32)).view(torch.float32)
    plan = make_plan(4, top_k=[5, 60, 0, 100], top_p=[1, 1, 0.3, 0.6], seed=np.arange(4))
    check(values, plan, 150, chain_with(ORDERS[0], plan, known=True))


def test_a_nucleus_that_ends_with_a_token_s_full_mass() -> None:
    """A share of exactly a half of 64 equal tokens; one unit more needs one token more."""
    plan = make_plan(1, top_p=0.5 + 2.0**-21, seed=1)
    check(torch.zeros(1, 64), plan, 64, chain_with(ORDERS[0], plan, known=True))


def test_ties_at_the_least_logit_that_min_p_keeps() -> None:
    plan = make_plan(1, min_p=0.25, seed=1)
    y = settings_of(columns(plan, REALS), columns(plan, WHOLES))[0].threshold[0, 0]
    around = of_torch.ranks(y / np.float32(SCALE_OF_ONE)) + torch.arange(-4, 5, dtype=torch.int32)
    values = torch.cat([torch.zeros(1), of_torch.logits_of(around).repeat(3)])[None]
    check(values, plan, 28, chain_with(ORDERS[0], plan, known=True))


def test_greedy_bad_and_sampled_rows_in_one_batch() -> None:
    values = torch.from_numpy(np.random.default_rng(98).normal(size=(6, 200)).astype(np.float32))
    values[1, 70], values[2, 130], values[3] = torch.nan, torch.inf, -torch.inf
    values[5, 3:] = -torch.inf
    plan = make_plan(6, temperature=[0, 0, 1, 1, 0.7, 1], top_p=0.9, min_p=0.01, seed=5)
    check(values, plan, 200, chain_with(ORDERS[0], plan, known=True), draws=2)


def test_filters_that_may_not_keep_too_few() -> None:
    values = torch.from_numpy(np.random.default_rng(99).normal(size=(5, 150)).astype(np.float32))
    values[2] = torch.round(values[2])
    plan = make_plan(5, top_k=3, top_p=0.5, min_p=0.9, min_keep=[1, 2, 64, 150, 10**6], seed=5)
    check(values, plan, 150, chain_with(ORDERS[0], plan, known=True))


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.nightly)]
)
def test_a_wide_row(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(100)
    values = torch.from_numpy((rng.standard_normal((1, 151_936)) * 3).astype(np.float32)).to(dtype)
    plan = make_plan(1, temperature=0.8, top_p=0.9, seed=7, position=3)
    check(values, plan, 151_936, chain_with(ORDERS[0], plan, known=True))


@pytest.mark.nightly
def test_the_heaviest_row_there_is() -> None:
    """2**22 equal logits weigh 2**62."""
    plan = make_plan(1, seed=7, position=3)
    chain = chain_with(ORDERS[0], plan, known=True)
    check(torch.zeros(1, 2**22), plan, 2**22, chain, draws=3)


def test_no_rows() -> None:
    plan = make_plan(0)
    check(torch.zeros(0, 5), plan, 5, Chain((1,), False, 0, False))


@pytest.mark.parametrize(
    ("settings", "known", "launches"),
    [
        ({"top_k": 50, "top_p": 0.9, "min_p": 0.1, "temperature": 0.8}, True, 3),
        ({"temperature": 0.8}, True, 5),
        ({"top_p": 0.9}, True, 16),
        ({"min_p": 0.1}, True, 7),
        ({"min_p": 0.1, "min_keep": 2}, True, 15),
        ({"top_k": 1_000}, True, 15),
        ({}, False, 36),
    ],
    ids=str,
)
def test_a_draw_is_so_many_launches(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], known: bool, launches: int
) -> None:
    """As docs/gpu.md says, with the tiles of a device; the last is of settings that lie there."""
    made: list[Any] = []
    for module in (head, settle, tops, whole):
        monkeypatch.setattr(module, "launch", lambda kernel, *rest, **how: made.append(kernel))
    monkeypatch.setattr(whole, "_tiles_of", lambda n_blocks: whole._TILES)
    plan = make_plan(1, **settings)
    chain = chain_of(ORDERS[0], *(columns(plan, n) if known else None for n in (REALS, WHOLES)))
    monkeypatch.setattr(batch.by_torch, "known_chain", lambda request: chain)
    none = Adjustments(None, None, None, None, None, (-1, -3, -3))
    parts = (columns(plan, names) for names in (REALS, WHOLES, PLACE))
    rows = torch.zeros(1, 9_000)
    batch.draw(Asked(rows, 9_000, *parts, None, none, ORDERS[0], 1, (), 0), rows)
    assert len(made) == launches


def test_one_compiled_kernel_serves_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """All work begins at 16 bytes: Triton compiles a kernel anew for what does not."""
    rests = set()

    def launch(kernel: Any, grid: Any, *args: Any, **_: Any) -> None:
        rests.update(part.data_ptr() % 16 for part in args if isinstance(part, torch.Tensor))

    monkeypatch.setattr(whole, "launch", launch)
    cpu = torch.device("cpu")
    for n_rows in (1, 2, 3):
        ranks = torch.zeros((n_rows, 2), dtype=torch.int32)
        table = torch.zeros((n_rows, COLUMNS.value), dtype=torch.int64)
        out = blank(n_rows, 1, cpu)
        whole.draw(torch.zeros((n_rows, 65)), 65, ranks, table, Chain((3,), False, 0, False), out)
    assert rests == {0}


def test_programs_leave_no_processor_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card:
        multi_processor_count = 132

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    card = torch.device("cuda", 0)
    found = [whole.programs_of(rows, 2_374, card) for rows in (1, 8, 64, 512, 4096)]
    assert found == [148, 66, 9, 2, 1]
    assert whole.programs_of(1, 3, card) == 1
