"""The torch engine races as the reference: random rows and settings, borders, open races."""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from fastsample import sample
from fastsample.engines import reference
from fastsample.engines.reference import clocks as reference_clocks
from fastsample.engines.reference import race as reference_race
from fastsample.engines.reference.draw import words
from fastsample.params.ops import DrawMethod
from fastsample.params.table import BY_NAME
from tests.support.case_loop import each
from tests.support.engines import Engine, make_output, make_plan, make_request
from tests.support.race_cases import KINDS, compare_races, make_race_row, race_of, random_race_batch
from tests.support.race_ties import CLOCKS, compare_equal_times
from tests.support.random_rows import pick

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from fastsample.engines.torch import batch, clocks, draw, listing, mass, race  # noqa: E402
from fastsample.engines.torch.engine import _part  # noqa: E402
from fastsample.engines.torch.prepare_params import FIXED  # noqa: E402

REFERENCE, TORCH = Engine("reference"), Engine("torch")
RACE = int(DrawMethod.RACE)
MODES = ("raw", "tempered", "processed")
ENGINE: dict[str, Any] = {"engine": "torch", "on_invalid": "mark"}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    """Small rows: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class OnDevice:
    """Tensors of the CPU that say that they are not: the engine then reads no value."""

    def __enter__(self) -> None:
        self._patch = mock.patch.object(torch.Tensor, "is_cpu", False)
        self._patch.__enter__()

    def __exit__(self, *args: Any) -> None:
        self._patch.__exit__(*args)


compare = partial(compare_races, TORCH)


# ---------------------------------------------------------------- random cases


@pytest.mark.parametrize(
    "n_batches", [250, pytest.param(5_000, marks=pytest.mark.nightly)], ids=["2000", "40k"]
)
def test_random_cases(n_batches: int) -> None:
    """Of 8 rows with two draws each: batches of listed rows, of others, and of both."""
    rng = np.random.default_rng(n_batches)
    for _ in range(n_batches):
        rows, settings = random_race_batch(rng, 8)
        compare(rows, modes=MODES if rng.random() < 0.2 else (), **settings)


@pytest.mark.parametrize("knows", [False, True])
def test_random_cases_as_on_a_device(knows: bool) -> None:
    """No value is read: all arrivals of the tail, all clocks of rows that may be listed."""
    rng = np.random.default_rng(91)
    for _ in range(12):
        rows, settings = random_race_batch(rng, 4)
        expected = compare(rows, **settings)
        request = part_of(rows, 2, **settings)
        host = request.numbers.clone() if knows else None
        with OnDevice():
            found = batch.sample(request._replace(host_numbers=host))
        assert found.tokens.tolist() == expected.tolist(), settings


def part_of(rows: np.ndarray, draws: int, **settings: Any) -> Any:
    plan = make_plan(len(rows), draw=RACE, **settings)
    status = np.zeros(len(rows), dtype=np.uint8)
    return _part(make_request(rows, plan), np.arange(len(rows)), status, draws)


# ---------------------------------------------------------------- borders


@each("settings", [{}, {"top_p": 0.9}, {"top_k": 200, "temperature": 1.3}, {"top_k": 50}])
@each("v", (1, 2, 3, 4, 5, 6, 9, 12, 16, 17))
def test_sizes_on_both_sides_of_a_power_of_two(v: int, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(v)
    for size in sorted({max(1, 2**v - 1), 2**v, 2**v + 1}):
        rows = np.stack([make_race_row(rng, kind, size) for kind in KINDS])
        compare(rows, seed=range(len(rows)), **settings)


def test_levels() -> None:
    """Every q: H heavy tokens against H + 1, at each height, and both sides of 2^40."""
    for v in (6, 10, 14):
        most = math.isqrt(2**v >> 5)
        for down in (0.0, 4.2995672799861495e-08, 4.2995676352575174e-08, 0.5, 1.0, 1.0000001, 9.0):
            rows = np.full((3, 2**v), -12.0, dtype=np.float32)
            for row, heavy in zip(rows, (most - 1, most, most + 1), strict=True):
                row[: heavy + 1] = -down / mass.SCALE_OF_ONE
                row[0] = 0
            compare(rows, seed=3, stream=range(3))


def test_masses_of_one_length_are_a_prefix() -> None:
    """The mass is 2^40 down to one y, and 2^39 or more down to another: none below them."""
    for border, exponent, near in ((4.2995672799861495e-08, 40, 2.0**-14), (1.0, 39, 1.001)):
        first = np.float32(border).view(np.int32)
        last = np.float32(near).view(np.int32)
        size = torch.arange(first - 100_000, min(last, first + 2**22), dtype=torch.int32)
        is_heavy = mass.masses(-size.view(torch.float32)) >= 2**exponent
        assert is_heavy.tolist() == [True] * 100_001 + [False] * (len(size) - 100_001)


def test_kept_tokens_outside_of_c_have_clocks() -> None:
    """`min_keep` keeps more tokens than a threshold, and more than H, above 2^q."""
    row = np.float32(np.linspace(0, -3, 1000))
    for keep in (3, 30, 300, 5000):
        compare(row[None], 20, min_p=0.995, min_keep=keep, seed=5)
        compare(row[None], 20, min_p=0.995, min_keep=keep, top_k=200, seed=6)


def test_each_row_of_a_call_draws_its_way() -> None:
    """A plan may hold races and draws by the inverse method."""
    rows = np.random.default_rng(4).normal(size=(6, 300)).astype(np.float32)
    plan = make_plan(6, temperature=1.5, seed=range(6))
    plan["draw"] = [RACE, 0, RACE, RACE, 0, 0]
    request = make_request(rows, plan)
    expected, found = (one.run(request, make_output(6, 3)) for one in (REFERENCE, TORCH))
    assert expected.tokens.tolist() == found.tokens.tolist()


def test_many_draws_and_a_mask() -> None:
    row = np.random.default_rng(5).normal(size=(1, 700)).astype(np.float32)
    for settings in ({"temperature": 2.0}, {"top_p": 0.4}, {"top_k": 300}, {"typical_p": 0.5}):
        options = {
            "seed": 1,
            "position": 2,
            "draw": "race",
            "n": 300,
            "valid_vocab": 600,
            **settings,
        }
        options["mask"] = np.arange(600) % 3 > 0
        expected = sample(row, engine="reference", **options).tokens
        assert sample(row, engine="torch", **options).tokens.tolist() == expected.tolist()
        assert len(set(expected[0].tolist())) > 30


def test_no_rows() -> None:
    none = torch.zeros(0, 5)
    for settings in ({}, {"temperature": torch.ones(0)}):
        drawn = sample(none, seed=1, position=0, stream=0, draw="race", **settings, **ENGINE)
        assert drawn.tokens.shape == (0,)


def test_bad_rows_are_marked() -> None:
    rows = np.random.default_rng(8).normal(size=(4, 300)).astype(np.float32)
    rows[1, 5], rows[2] = np.nan, -np.inf
    options = {"seed": 1, "position": 2, "stream": "row", "draw": "race", "logprobs": 2}
    for settings in ({}, {"top_p": 0.4}, {"top_k": 40}, {"top_k": 200, "min_p": 0.1}):
        expected = sample(rows, engine="reference", on_invalid="mark", **options, **settings)
        found = sample(torch.from_numpy(rows), **options, **settings, **ENGINE)
        assert found.tokens.tolist() == expected.tokens.tolist()
        assert found.status.tolist() == expected.status.tolist() == [0, 1, 2, 0]


# ---------------------------------------------------------------- open races


@each("limit", (1, 40, 700))
def test_open_races_are_drawn_by_the_inverse_method(limit: int) -> None:
    rows = np.zeros((2, 4096), dtype=np.float32)
    rows[1] = -30
    rows[1, [99, 777, 2000]] = 0
    with mock.patch.object(race, "LIMIT", limit), mock.patch.object(reference_race, "LIMIT", limit):
        for settings in ({"top_k": 128}, {"top_p": 0.99999}, {}):
            expected = compare(rows, 50, modes=("processed",), seed=limit, **settings)
            request = part_of(rows, 50, seed=limit, **settings)
            with OnDevice():
                assert batch.sample(request).tokens.tolist() == expected.tolist()


def test_the_limit_is_the_reference_s() -> None:
    assert race.LIMIT == reference_race.LIMIT


# ---------------------------------------------------------------- parts


def test_clocks_are_the_reference_s() -> None:
    rng = np.random.default_rng(92)
    k = rng.integers(0, 2**64, 100_000, dtype=np.uint64)
    k[:6] = 0, 2**12 - 1, 2**12, 2**63, 2**64 - 2**12, 2**64 - 1
    parts = [
        torch.from_numpy((k >> np.uint64(shift) & np.uint64(2**32 - 1)).astype(np.int64))
        for shift in (0, 32)
    ]
    found = clocks.clock((*parts, *parts))
    expected = reference_clocks.clock(k)
    assert found.numpy().tobytes() == expected.tobytes()
    steps = clocks.in_steps(found).numpy()
    assert steps.tobytes() == reference_clocks.in_steps(expected).tobytes()


def test_equal_times_go_to_the_tail_then_to_the_lower_token() -> None:
    rows = np.zeros((3, 300), dtype=np.float32)
    rows[1, [70, 140, 250]], rows[2, 100:] = 2, 3
    ours = mock.patch.object(race, "clock", lambda words: words[0].double() * 0.0 + 0.5)
    theirs = mock.patch.object(reference_race, "clock", lambda k: np.full(len(k), 0.5))
    with ours, theirs:
        for settings in ({"top_k": 40}, {"top_p": 0.4}, {"min_p": 0.5}, {}):
            compare(rows, 4, seed=range(3), **settings)


def test_equal_times_and_the_least_times() -> None:
    by_two_bits = torch.tensor(CLOCKS, dtype=torch.float64)
    with mock.patch.object(race, "clock", lambda words: by_two_bits[words[1] >> 30]):
        compare_equal_times(TORCH, race)


def test_words_are_philox_at_every_index() -> None:
    index = np.array([0, 1, 32_767, 2**22 - 1], dtype=np.uint64)
    place = (2**64 - 5, 2**63 + 9, 2**32 - 1)
    columns = [torch.from_numpy(np.array([[one]], dtype=np.uint64).view(np.int64)) for one in place]
    for purpose in (1, 2):
        last = torch.from_numpy(index.view(np.int64)) * 256 + purpose
        w0, w1, w2, w3 = (
            one[0].numpy().view(np.uint64) for one in draw.words(*columns, last[None])
        )
        low, high = words(*place, purpose, index)
        assert (w0 + (w1 << np.uint64(32))).tolist() == low.tolist()
        assert (w2 + (w3 << np.uint64(32))).tolist() == high.tolist()


def test_arrivals_are_the_reference_s() -> None:
    """Their times, in parts and as a whole, and whether one whose mass is its height counts."""
    row = np.random.default_rng(94).normal(size=(1, 500)).astype(np.float32)
    place = reference.Place(2**63 + 9, 3, 4)
    expected = reference_race.tail(race_of(row[0]), place, 1500)
    prepared: list[Any] = []
    look = mock.patch.object(
        race, "_look", side_effect=lambda *args: prepared.append(args) or look_at(*args)
    )
    look_at = race._look
    with look:
        compare(row, 1, seed=place.seed, position=place.position, stream=place.stream)
    state, draws, *_ = prepared[0]
    unit = 2.0 ** -(state.v + int(state.q))
    draws = draws._replace(elapsed=torch.zeros_like(draws.bound))
    for start in (0, 500, 1000):
        found = look_at(state, draws, start, 500)
        draws = draws._replace(elapsed=found[1])
        assert float(found[1]) * unit == expected.times[start + 499]
    heights = torch.from_numpy(expected.heights[None].view(np.int64))
    for more, token in ((0, race._OPEN), (1, int(expected.tokens[0]))):
        draws = draws._replace(elapsed=torch.zeros_like(draws.bound), bound=draws.bound + torch.inf)
        with mock.patch.object(race, "_mass_at", lambda *_: heights[:, :9] + more):  # noqa: B023
            assert int(look_at(state, draws, 0, 9)[0]) == token
    # The last of these: all arrivals count. Of equal times the tail's is first.
    equal = draws._replace(bound=torch.full_like(draws.bound, expected.times[0]))
    earlier = draws._replace(bound=torch.full_like(draws.bound, expected.times[0] * (1 - 2.0**-40)))
    with mock.patch.object(race, "_mass_at", lambda *_: heights[:, :9] + 1):
        assert int(look_at(state, equal, 0, 9)[0]) == int(expected.tokens[0])
        assert int(look_at(state, earlier, 0, 9)[0]) == race._BY_CLOCK


def test_rows_that_are_listed() -> None:
    rng = np.random.default_rng(93)
    pools = {
        "temperature": (1.0, 0.8, 1 + 2.0**-30),
        "top_k": (0, 1, 127, 128, 199, 200, 500),
        "top_p": (1.0, 0.5 - 2.0**-25, 0.5 - 2.0**-27, 0.5, 0.9),
        "min_p": (0.0, 2.0**-60, 2.0**-59, 0.1),
        "epsilon_cutoff": (0.0, 2.0**-60, 0.1),
        "top_n_sigma": (0.0, 2.0**-61, 2.0),
        "typical_p": (1.0, 0.9),
    }
    seen = set()
    for _ in range(400):
        stages = tuple(rng.permutation(list(pools))[: rng.integers(1, 5)].tolist())
        values = {name: pick(rng, pools[name]) for name in stages}
        ops = tuple(int(BY_NAME[name].op) for name in stages)
        numbers = torch.zeros(1, len(FIXED) + len(ops), dtype=torch.float64)
        numbers[0, len(FIXED) :] = torch.tensor(
            [float(values[name]) for name in stages], dtype=torch.float64
        )
        found = bool(listing.is_listed(numbers, ops, 200))
        assert found == reference.is_listed(200, stages=stages, **values), values
        seen.add(found)
    assert seen == {False, True}


# ---------------------------------------------------------------- tensors, and compiled code


@pytest.mark.parametrize("names", [("temperature",), ("top_k", "top_p"), ("seed", "position")])
def test_settings_that_are_tensors(names: tuple[str, ...]) -> None:
    logits = torch.randn(4, 700, generator=torch.manual_seed(3)) * 2
    settings: dict[str, Any] = {
        "temperature": [0.7, 1.0, 0.0, 2.0],
        "top_k": [50, 0, 300, 128],
        "top_p": [1.0, 0.4, 0.9, 0.8],
        "seed": [1, 2, 3, 4],
        "position": [5, 6, 7, 8],
    }
    expected = sample(logits, **settings, draw="race", engine="reference").tokens
    floats = ("temperature", "top_p")
    tensors = {
        name: torch.tensor(settings[name], dtype=torch.float64 if name in floats else torch.int64)
        for name in names
    }
    found = sample(logits, **{**settings, **tensors}, draw="race", **ENGINE).tokens
    assert found.tolist() == expected.tolist()


def test_a_method_that_is_a_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="`draw` must be"):
        sample(torch.zeros(5), seed=1, position=0, draw=torch.tensor(1), **ENGINE)


def test_compiled_code_races() -> None:
    torch._dynamo.reset()

    def function(logits: torch.Tensor) -> torch.Tensor:
        options = {"seed": 3, "position": 1, "stream": "row", "draw": "race", "top_p": 0.9}
        return sample(logits * 2, **options, **ENGINE).tokens

    logits = torch.randn(5, 300, generator=torch.manual_seed(3))
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert compiled(logits).tolist() == function(logits).tolist()
