"""Parameters: what is accepted, what it becomes, and how it is laid out for the engines."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SETTINGS as KERNEL_LAYOUT

from fastsample import SamplingParams
from fastsample.params import SETTINGS, make_plan, place_draw

# ---------------------------------------------------------------- SamplingParams


def test_defaults_switch_every_filter_off() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (1.0, 0, 1.0, 0.0)
    assert params.seed is None


def test_numpy_scalars_become_python_numbers() -> None:
    params = SamplingParams(
        np.float32(0.5), np.int16(50), np.float64(0.75), np.float16(0.25), np.uint64(2**64 - 1)
    )
    assert params == SamplingParams(0.5, 50, 0.75, 0.25, 2**64 - 1)
    assert [type(getattr(params, name)) for name in params.__slots__] == [
        float,
        int,
        float,
        float,
        int,
    ]


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
    params = SamplingParams(0.8, 50, 0.95, 0.05, 7)
    assert pickle.loads(pickle.dumps(params, protocol)) == params
    assert copy.deepcopy(params) == copy.copy(params) == params


def test_help_shows_defaults_and_off_values() -> None:
    assert SamplingParams.__doc__ is not None
    for name in SamplingParams.__slots__:
        assert f"    {name:<11}  {getattr(SamplingParams(), name)}" in SamplingParams.__doc__


# ---------------------------------------------------------------- the float32 value decides


def in_range(name: str, value: float) -> bool:
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.float32(value)
    if name == "temperature":
        return bool(np.isfinite(rounded) and rounded >= 0)
    return bool(0 <= rounded <= 1)


def accepted(name: str, value: Any) -> bool:
    try:
        make_plan(np.size(value), **{name: value})
    except ValueError:
        return False
    return True


@given(st.sampled_from(["temperature", "top_p", "min_p"]), st.floats())
def test_any_float(name: str, value: float) -> None:
    assert accepted(name, value) == in_range(name, value)
    assert accepted(name, np.array([0.5, value])) == in_range(name, value)
    assert accepted(name, [0.5, value]) == in_range(name, value)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
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
    assert SETTINGS == KERNEL_LAYOUT
    assert SETTINGS.itemsize == 56


def test_scalars_fill_every_row() -> None:
    plan = make_plan(
        3,
        temperature=0.5,
        top_k=7,
        top_p=0.9,
        min_p=0.1,
        seed=2**64 - 1,
        position=5,
        stream=2**32 - 1,
    )
    assert plan.dtype == SETTINGS
    assert plan.flags.c_contiguous
    assert plan.tolist() == [(0.5, 0.9, 0.1, 7, 2**64 - 1, 5, 2**32 - 1, 0)] * 3


def test_no_rows() -> None:
    plan = make_plan(0, temperature=[], seed=np.array([], dtype=np.uint64), stream="row")
    assert plan.shape == (0,)
    assert plan.dtype == SETTINGS


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.int8, np.uint64])
def test_real_columns_of_any_dtype(dtype: Any) -> None:
    plan = make_plan(2, temperature=np.array([0, 1], dtype=dtype))
    assert plan["temperature"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("form", [list, tuple, np.array, lambda k: np.array([0, *k])[1:]])
def test_top_k_columns_read_minus_one_as_off(form: Any) -> None:
    assert make_plan(3, top_k=form([-1, 0, 5]))["top_k"].tolist() == [0, 0, 5]


def test_lists_hold_what_a_scalar_may_be() -> None:
    plan = make_plan(3, top_k=[None, np.int32(4), -1], seed=[2**64 - 1, np.int64(-2), 0])
    assert plan["top_k"].tolist() == [0, 4, 0]
    assert plan["seed"].tolist() == [2**64 - 1, 2**64 - 2, 0]


def test_arrays_without_dimensions_are_scalars() -> None:
    plan = make_plan(2, top_p=np.array(0.5), top_k=np.array(3), seed=np.array(-1))
    assert plan["top_p"].tolist() == [0.5, 0.5]
    assert plan["top_k"].tolist() == [3, 3]
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


# ---------------------------------------------------------------- seed, position, stream left out


def test_a_fresh_seed_draws_by_row_from_position_0() -> None:
    seed, position, stream = place_draw(3, None, None, None)
    assert 0 <= seed < 2**64
    assert (position, stream) == (0, "row")
    assert place_draw(3, None, None, None)[0] != seed


def test_a_fresh_seed_keeps_what_is_given() -> None:
    assert place_draw(2, None, 4, [5, 6])[1:] == (4, [5, 6])


@pytest.mark.parametrize("n_rows", [0, 1])
def test_one_row_draws_on_stream_0(n_rows: int) -> None:
    assert place_draw(n_rows, 7, 1, None) == (7, 1, 0)


def test_seeds_by_row_draw_on_stream_0() -> None:
    seed, _, stream = place_draw(2, [7, 8], 1, None)
    assert seed.dtype == np.uint64
    assert stream == 0
