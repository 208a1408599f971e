"""Parameters: what is accepted, what it becomes, and how it is laid out for the engines."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsample import Sampler, SamplingParams, kept_set, sample
from fastsample.engines import plan as plans
from fastsample.engines.plan import CHOICES, PLAN, make_plan
from fastsample.params.ops import Op
from fastsample.params.parameters import resolve_rng_position
from fastsample.params.stages import is_on
from fastsample.params.table import BY_NAME, STAGE_PARAMETERS, STAGES
from fastsample.params.validation import FloatParameter, Parameter
from fastsample.verification.flush import flushing
from tests.support.case_loop import each
from tests.support.engines import PLAN_LAYOUT, column_of

# ---------------------------------------------------------------- SamplingParams


def test_defaults_switch_every_filter_off() -> None:
    params = SamplingParams()
    for one in STAGE_PARAMETERS:
        assert getattr(params, one.name) == one.default == one.off[0]
    assert params.seed is None


@pytest.mark.parametrize("make", [SamplingParams, Sampler, Sampler([]).add])
@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("tempreature", "did you mean `temperature`?"),
        ("topp", "did you mean `top_p`?"),
        ("typical", "did you mean `typical_p`?"),
        ("beams", "the fields: temperature, top_k, top_p, "),
        ("stop", "compare the decoded text in the loop, and end it there"),
        ("logit_bias", "pass bias= to each draw"),
    ],
)
def test_an_unknown_field_is_answered_with_a_way_out(
    make: Callable[..., Any], name: str, way_out: str
) -> None:
    message = f"`{name}` must be a field of SamplingParams, and is not ({way_out}"
    with pytest.raises(TypeError, match=re.escape(message)):
        make(**{name: 1})


def test_the_signature_names_the_fields() -> None:
    parameters = inspect.signature(SamplingParams).parameters
    assert [*parameters] == [field.name for field in fields(SamplingParams)]


def test_numpy_scalars_become_python_numbers() -> None:
    params = SamplingParams(
        np.float32(0.5), np.int16(50), np.float64(0.75), np.float16(0.25), seed=np.uint64(2**64 - 1)
    )
    assert params == SamplingParams(0.5, 50, 0.75, 0.25, seed=2**64 - 1)
    names = ("temperature", "top_k", "top_p", "min_p", "seed")
    assert [type(getattr(params, name)) for name in names] == [float, int, float, float, int]


def test_penalties_become_python_numbers() -> None:
    params = SamplingParams(
        repetition_penalty=np.float32(2), frequency_penalty=1, min_keep=np.int8(3)
    )
    assert type(params.repetition_penalty) is type(params.frequency_penalty) is float
    assert (params.repetition_penalty, params.frequency_penalty, params.min_keep) == (2.0, 1.0, 3)
    assert type(params.min_keep) is int


def test_scopes_keep_their_values() -> None:
    params = SamplingParams(repetition_scope=np.int64(64), frequency_scope="prompt")
    assert type(params.repetition_scope) is int
    assert (params.repetition_scope, params.frequency_scope) == (64, "prompt")


def test_stages_become_a_tuple() -> None:
    params = SamplingParams(stages=["top_p", "temperature"])
    assert params.stages == ("top_p", "temperature")
    assert hash(params) == hash(SamplingParams(stages=("top_p", "temperature")))


def test_an_integer_temperature_is_a_float() -> None:
    assert type(SamplingParams(temperature=1).temperature) is float


def test_equal_parameters_have_equal_hashes() -> None:
    assert len({SamplingParams(top_k=k) for k in (0, None, -1, np.int64(-1))}) == 1


def test_int64_seeds_are_bits() -> None:
    assert SamplingParams(seed=np.int64(-1)).seed == 2**64 - 1


def test_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        SamplingParams().top_k = 3  # type: ignore[misc]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_and_copies(protocol: int) -> None:
    filters = {one.name: one.plain(1) for one in STAGE_PARAMETERS}
    params = SamplingParams(
        **filters,
        seed=7,
        presence_penalty=0.3,
        frequency_scope="prompt",
        presence_scope=2,
        min_keep=3,
        stages=tuple(reversed(STAGES)),
    )
    assert pickle.loads(pickle.dumps(params, protocol)) == params
    assert copy.deepcopy(params) == copy.copy(params) == params


def test_help_shows_defaults_and_off_values() -> None:
    assert SamplingParams.__doc__ is not None
    for name in SamplingParams.__slots__:
        default = getattr(SamplingParams(), name) if name != "stages" else "(below)"
        assert f"    {name:<18}  {default!s:<8}  " in SamplingParams.__doc__
    text = " ".join(SamplingParams.__doc__.split())
    assert str(SamplingParams().stages).replace("'", '"') in text


# ---------------------------------------------------------------- the float32 value decides


def in_range(name: str, value: float) -> bool:
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.float32(value)
    return bool(np.isfinite(rounded) and RANGES[BY_NAME[name].rule](rounded))


RANGES: dict[str, Callable[[Any], bool]] = {
    "in [0, 1]": lambda x: 0 <= x <= 1,
    "0 or a finite number > 0": lambda x: x >= 0,
    "a finite number >= 0": lambda x: x >= 0,
    "a finite number > 0": lambda x: x > 0,
    "a finite number": lambda x: True,
}


def accepted(name: str, value: Any) -> bool:
    try:
        make_plan(np.size(value), **{name: value})
    except ValueError:
        return False
    return True


REALS = [name for name, one in BY_NAME.items() if isinstance(one, FloatParameter)]


@given(st.sampled_from(REALS), st.floats())
def test_any_float(name: str, value: float) -> None:
    assert accepted(name, value) == in_range(name, value)
    assert accepted(name, np.array([0.5, value])) == in_range(name, value)
    assert accepted(name, [0.5, value]) == in_range(name, value)


@each("name", REALS)
@pytest.mark.parametrize(
    "border", [-(2.0**-150), 2.0**-150, 1 + 2.0**-24, 2.0**128 - 2.0**103, 3.4028234663852886e38]
)
def test_floats_around_a_border(name: str, border: float) -> None:
    for value in (math.nextafter(border, -math.inf), border, math.nextafter(border, math.inf)):
        assert accepted(name, value) == in_range(name, value), value


def test_an_integer_past_every_float_is_out_of_range() -> None:
    assert not accepted("temperature", 10**400)
    assert not accepted("top_p", -(10**400))


# ---------------------------------------------------------------- the plan


def test_layout_is_the_kernels() -> None:
    assert PLAN == PLAN_LAYOUT
    assert PLAN.itemsize == 248


def test_scalars_fill_every_row() -> None:
    plan = make_plan(
        3,
        temperature=0.5,
        top_k=7,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.1,
        frequency_penalty=-0.2,
        presence_penalty=0.3,
        repetition_scope="prompt",
        frequency_scope=64,
        presence_scope="all",
        min_keep=2,
        stages=("min_p", "top_k", "temperature", "top_p"),
        seed=2**64 - 1,
        position=5,
        stream=2**32 - 1,
        draw="race",
    )
    assert plan.dtype == PLAN
    assert plan.flags.c_contiguous
    assert plan.flags.writeable
    numbers = (0.5, 1.1, -0.2, 0.3, 2, -2, 64, -1, 2**64 - 1, 5, 2**32 - 1, 1)
    ops = bytes((Op.THRESHOLD, Op.COUNT, Op.SCALE, Op.MASS))
    codes = bytes(1 + STAGES.index(name) for name in ("min_p", "top_k", "temperature", "top_p"))
    assert [row[:-1] for row in plan.tolist()] == [(*numbers, ops, codes)] * 3
    assert plan["values"].tolist() == [[0.1, 7.0, 0.5, 0.9, *[0.0] * 12]] * 3


def test_defaults_of_a_plan_are_those_of_the_parameters() -> None:
    params = SamplingParams()
    fields = {
        name: getattr(params, name) for name in params.__slots__ if name in (*CHOICES, "stages")
    }
    assert make_plan(1).tobytes() == make_plan(1, **fields).tobytes()
    assert make_plan(1)[0]["stages"] == b""


@pytest.mark.parametrize(
    ("stages", "names"),
    [((), ()), (("top_p",), ("top_p",)), (["min_p", "top_k"], ("min_p", "top_k"))],
)
def test_stages_may_be_left_out(stages: Any, names: tuple[str, ...]) -> None:
    values = {"top_k": 4, "top_p": 0.5, "min_p": 0.5}
    plan = make_plan(2, stages=stages, **{name: values[name] for name in names})
    assert plan["stages"].tolist() == [bytes(1 + STAGES.index(name) for name in names)] * 2


def test_a_stage_that_is_off_in_every_row_is_left_out() -> None:
    plan = make_plan(2, top_k=[0, 5], min_p=[0.0, 1e-50], top_p=1 + 1e-9, temperature=1)
    assert plan["ops"].tolist() == [bytes([Op.COUNT])] * 2
    assert plan["values"][:, 0].tolist() == [0.0, 5.0]


def test_a_chain_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_STAGES", 3)
    on = {"temperature": 0.5, "top_k": [3], "top_p": 0.5}
    make_plan(1, **on)
    with pytest.raises(ValueError, match="at most 3 stages that are on, got 4"):
        make_plan(1, **on, min_p=0.5)


def test_a_filter_needs_its_stage() -> None:
    on = {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.5}
    for name, value in on.items():
        rest = tuple(stage for stage in on if stage != name)
        make_plan(1, stages=rest, **{other: on[other] for other in rest})
        for wrong in (value, [value], np.array([value])):
            with pytest.raises(ValueError, match=f"`stages` must hold '{name}'"):
                make_plan(1, stages=rest, **{name: wrong})
    make_plan(2, stages=(), temperature=[1.0, 1 + 1e-9], top_k=[0, None], top_p=1 + 1e-9)


@pytest.mark.torch
def test_float32_denormals_survive_flushing() -> None:
    """Read as 0, such a temperature would be greedy. float32 in every form, after a real 0."""
    torch = pytest.importorskip("torch")
    tiny, zero = np.float32(1e-40), np.float32(0)
    exact, many = float(tiny), np.array([tiny, zero, -zero, 0.5], np.float32)
    scalars = (tiny, np.array(tiny), torch.tensor(tiny), torch.tensor(tiny).requires_grad_())
    columns = (many, list(many), torch.from_numpy(many), many[::-1].copy()[::-1])
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        greedy = make_plan(4, temperature=zero)["temperature"].tolist()
        by_scalar = [make_plan(4, temperature=one)["temperature"].tolist() for one in scalars]
        by_row = [make_plan(4, temperature=column)["temperature"].tolist() for column in columns]
        params = SamplingParams(temperature=tiny, repetition_penalty=tiny)
        penalties = make_plan(4, repetition_penalty=np.full(4, tiny))["repetition_penalty"]
        drawn = sample(np.zeros(1000, np.float32), temperature=tiny, seed=1, position=0).tokens
    finally:
        torch.set_flush_denormal(False)
    assert greedy == [0.0] * 4
    assert by_scalar == [[exact] * 4] * 4
    assert by_row == [[exact, 0.0, 0.0, 0.5]] * 4
    assert (params.temperature, params.repetition_penalty) == (exact, exact)
    assert penalties.tolist() == [exact] * 4
    assert drawn == sample(np.zeros(1000, np.float32), seed=1, position=0).tokens != 0


@pytest.mark.torch
def test_bfloat16_denormals_survive_flushing() -> None:
    torch = pytest.importorskip("torch")
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    exact = 2.0**-130
    tensor, number = torch.tensor(exact, dtype=torch.bfloat16), bfloat16(exact)
    scalars = (tensor, tensor.clone().requires_grad_(), number, np.array(-number))
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        found = [make_plan(1, presence_penalty=one)["presence_penalty"][0] for one in scalars]
    finally:
        torch.set_flush_denormal(False)
    assert found == [exact, exact, exact, -exact]


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("parameter", STAGE_PARAMETERS, ids=STAGES)
def test_what_float32_rounds_to_an_off_value_is_off(parameter: Parameter, at: int) -> None:
    """Decided alike where denormals are flushed to zero: rounding would make 1e-40 one."""
    ends = {0: (-(2.0**-150), 2.0**-150), 1: (1 - 2.0**-25, 1 + 2.0**-24)}[parameter.off[0]]
    inside, outside = ends[at], math.nextafter(ends[at], math.inf if at else -math.inf)
    with flushing():
        found = [bool(is_on(parameter, one)) for one in (inside, outside, np.array(outside))]
    assert np.float32(inside) == parameter.off[0] != np.float32(outside)
    assert found == [False, True, True]


def test_a_filter_of_a_denormal_value_acts_while_denormals_are_flushed() -> None:
    row = np.array([2.0, 1.9, 1.8, 0.0], np.float32)
    with flushing():
        for value in (1.1e-40, [1.1e-40]):
            assert len(kept_set(row[None], top_n_sigma=value).tokens) == 1


def test_no_rows() -> None:
    plan = make_plan(0, temperature=[], seed=np.array([], dtype=np.uint64), stream="row")
    assert plan.shape == (0,)
    assert plan.dtype == PLAN


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.int8, np.uint64])
def test_real_columns_of_any_dtype(dtype: Any) -> None:
    plan = make_plan(2, temperature=np.array([0, 1], dtype=dtype))
    assert plan["temperature"].tolist() == [0.0, 1.0]


NUMBERS = {
    "temperature": [0.5, 0.0, 2.0],
    "top_k": [1, 0, 7],
    "top_p": [0.5, 1.0, 0.0],
    "min_p": [0.5, 0.0, 1.0],
    "repetition_penalty": [1.5, 1.0, 0.5],
    "frequency_penalty": [-0.5, 0.0, 2.0],
    "presence_penalty": [0.5, -3.0, 2.0],
    "min_keep": [1, 2, 2**40],
    "seed": [0, 2**63, 2**64 - 1],
    "position": [0, 2**63, 2**64 - 1],
    "stream": [0, 1, 2**32 - 1],
}


@each("name", NUMBERS)
@each("form", [list, tuple, np.array])
def test_every_number_may_be_given_per_row(name: str, form: Any) -> None:
    given = (
        np.array(NUMBERS[name], BY_NAME[name].dtype) if form is np.array else form(NUMBERS[name])
    )
    plan = make_plan(3, **{name: given})
    assert column_of(plan, name).tolist() == NUMBERS[name]
    for other in BY_NAME:
        if other != name:
            assert column_of(plan, other).tolist() == column_of(make_plan(3), other).tolist()


def test_what_is_remembered_is_not_mixed_up() -> None:
    make_plan(1, temperature=1, top_k=1)
    for wrong in ({"temperature": True}, {"top_k": True}, {"top_k": 1.0}):
        with pytest.raises(TypeError):
            make_plan(1, **wrong)
    box = np.array(0.5)
    assert make_plan(1, temperature=box)[0]["temperature"] == 0.5
    box[()] = 0.25
    assert make_plan(1, temperature=box)[0]["temperature"] == 0.25
    make_plan(1)["temperature"] = 7.0
    assert make_plan(1)[0]["temperature"] == 1.0


@pytest.mark.parametrize("form", [list, tuple, np.array, lambda k: np.array([0, *k])[1:]])
def test_top_k_columns_read_minus_one_as_off(form: Any) -> None:
    assert column_of(make_plan(3, top_k=form([-1, 0, 5])), "top_k").tolist() == [0, 0, 5]


def test_lists_hold_what_a_scalar_may_be() -> None:
    plan = make_plan(3, top_k=[None, np.int32(4), -1], seed=[2**64 - 1, np.int64(-2), 0])
    assert column_of(plan, "top_k").tolist() == [0, 4, 0]
    assert plan["seed"].tolist() == [2**64 - 1, 2**64 - 2, 0]


def test_arrays_without_dimensions_are_scalars() -> None:
    plan = make_plan(2, top_p=np.array(0.5), top_k=np.array(3), seed=np.array(-1))
    assert column_of(plan, "top_p").tolist() == [0.5, 0.5]
    assert column_of(plan, "top_k").tolist() == [3, 3]
    assert plan["seed"].tolist() == [2**64 - 1] * 2
    assert make_plan(1, seed=np.array(-1, dtype=">i8"))["seed"].tolist() == [2**64 - 1]


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, ">i8"])
def test_seed_columns_keep_their_bits(dtype: Any) -> None:
    seeds = np.array([2**63, 2**64 - 1, 3], dtype=np.uint64)
    as_given = seeds.view(np.int64).astype(dtype) if dtype != np.uint64 else seeds
    assert make_plan(3, seed=as_given[::-1])["seed"].tolist() == seeds[::-1].tolist()


def test_positions_reach_the_end() -> None:
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert make_plan(2, position=ends)["position"].tolist() == ends.tolist()


def test_stream_by_row() -> None:
    assert make_plan(4, stream="row")["stream"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("stream", "first"), [("row", [0, 5, 10]), (7, [7] * 3), ([0, 2**32 - 5, 1], [0, 2**32 - 5, 1])]
)
def test_streams_of_several_draws(stream: Any, first: list[int]) -> None:
    assert make_plan(3, stream=stream, draws=5)["stream"].tolist() == first


# ---------------------------------------------------------------- rows that are marked

BAD = {
    "temperature": (-1.0, math.nan, math.inf),
    "top_k": (-2, 2**63 - 1 + 1),
    "top_p": (1.5, -0.1, math.nan),
    "min_p": (1.5, -0.1, math.nan),
    "repetition_penalty": (0.0, -1.0, math.inf, 1e-50),
    "frequency_penalty": (math.inf, math.nan),
    "presence_penalty": (-math.inf, 1e39),
    "min_keep": (0, -1),
    "position": (-1, 2**64),
    "stream": (-1, 2**32),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_numbers_of_a_row_mark_it(name: str) -> None:
    for value in BAD[name]:
        bad = np.zeros(3, bool)
        plan = make_plan(3, **{name: [1, value, 1]}, bad=bad)
        assert bad.tolist() == [False, True, False]
        assert column_of(plan, name).tolist() == [1] * 3
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            make_plan(3, **{name: value}, bad=bad)


def test_marks_add_up() -> None:
    bad = np.zeros(4, bool)
    make_plan(4, temperature=np.array([1, -1, 1, 1.0]), top_p=[1, 1, 1, 2], bad=bad)
    make_plan(4, stream=[2**32 - 1, 0, 0, 0], draws=2, bad=bad)
    assert bad.tolist() == [True, True, False, True]


def test_a_missing_stage_marks_rows() -> None:
    bad = np.zeros(3, bool)
    make_plan(3, top_k=[0, 5, 0], stages=("temperature",), bad=bad)
    assert bad.tolist() == [False, True, False]


def test_bad_seeds_mark_rows() -> None:
    bad = np.zeros(3, bool)
    seed, _, _ = resolve_rng_position(3, [5, -1, 2**64], 0, None, bad)
    assert bad.tolist() == [False, True, True]
    assert seed.dtype == np.uint64
    assert seed[0] == 5


# ---------------------------------------------------------------- seed, position, stream left out


def test_a_fresh_seed_draws_by_row_from_position_0() -> None:
    seed, position, stream = resolve_rng_position(3, None, None, None)
    assert 0 <= seed < 2**64
    assert (position, stream) == (0, "row")
    assert resolve_rng_position(3, None, None, None)[0] != seed


def test_a_fresh_seed_keeps_position_and_stream() -> None:
    assert resolve_rng_position(2, None, 4, [5, 6])[1:] == (4, [5, 6])


@pytest.mark.parametrize("n_rows", [0, 1])
def test_one_row_draws_on_stream_0(n_rows: int) -> None:
    assert resolve_rng_position(n_rows, 7, 1, None) == (7, 1, 0)


def test_seeds_by_row_draw_on_stream_0() -> None:
    seed, _, stream = resolve_rng_position(2, [7, 8], 1, None)
    assert seed.dtype == np.uint64
    assert stream == 0
