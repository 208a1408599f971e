"""Tensors that prepared calls read by DLPack's C exchange API, and those that they decline."""

from __future__ import annotations

import copy
import ctypes
import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsample import Sampler, SamplingParams, sample
from fastsample.inputs.dlpack import DLTensor
from tests.support.case_loop import each
from tests.support.prepared_calls import refuse
from tests.support.sampler_steps import prepared_tokens

torch = pytest.importorskip("torch")
pytest.importorskip("fastsample._native", reason="fastsample._native is not built")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
        reason="this torch has no C exchange API",
    ),
]

ROOT = Path(__file__).parents[2]
VALUES = (np.random.default_rng(8).normal(size=(3, 4, 50)) * 3).astype(np.float32)


def without_step(sampler: Sampler) -> Sampler:
    sampler._step = None
    return sampler


def made() -> Sampler:
    return Sampler([SamplingParams(seed=seed, temperature=1.5) for seed in range(3)])


def forbid_other_paths(patch: pytest.MonkeyPatch) -> None:
    for module in ("sample", "sampler"):
        patch.setattr(sys.modules[f"fastsample.api.{module}"], "memory_of_logits", refuse)


FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "float32": lambda logits: logits,
    "float16": lambda logits: logits.half(),
    "bfloat16": lambda logits: logits.bfloat16(),
    "transposed": lambda logits: logits.transpose(0, 2).contiguous().transpose(0, 2),
    "part": lambda logits: torch.cat([logits, logits], 1)[:, ::2][:, :4],
    "expanded": lambda logits: logits[:1].expand(3, -1, -1),
}


@each("name", FORMS)
def test_tensors_are_read_where_they_lie(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = FORMS[name](torch.from_numpy(VALUES.copy()))
    sampler, twin = made(), without_step(made())
    calls: list[tuple[torch.Tensor, dict[str, Any]]] = [
        (logits[:, -1], {}),
        (logits, {"at": -1}),
        (logits, {"at": torch.tensor([0, 3, -2])}),
        (logits[0, 1], {"sequences": 1}),
        (logits, {"at": 0, "mask": torch.arange(50) % 3 > 0}),
        (logits, {"at": 0, "mask": torch.full((2,), 0x55555555, dtype=torch.int32)}),
        (logits, {"at": 0, "bias": (torch.tensor([1, 4]), torch.tensor([2.0, 3.0]))}),
    ]
    for tensor, arguments in calls:
        expected = twin(tensor, **arguments)
        with monkeypatch.context() as patch:
            forbid_other_paths(patch)
            found = sampler(tensor, **arguments)
        assert type(found) is type(expected)
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))


def test_sample_reads_tensors_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.from_numpy(VALUES[:1].copy())
    expected = sample(VALUES[0, 2], seed=1, position=0, logprobs=2)
    forbid_other_paths(monkeypatch)
    found = sample(logits, at=2, seed=1, position=0, logprobs=2)
    assert found.tokens.tolist() == [int(expected.tokens)]
    assert found.top_logprobs.tolist() == [expected.top_logprobs.tolist()]
    assert found.tokens.dtype == torch.int64
    assert found.status.dtype == torch.uint8
    assert found.seed == 1


# ---------------------------------------------------------------- results


def results_of(logits: torch.Tensor) -> list[torch.Tensor]:
    """The tokens of a call, and all that `sample` returns for one row and for several."""
    sampler = made()
    details = {"logprobs": 2, "logprobs_mode": ("raw", "processed"), "kept_count": True}
    found = [
        sampler.sample(logits, at=-1, **details),
        sampler.sample(logits, at=-1, logprobs=0),
        sample(logits[:1], at=-1, seed=1, position=0, **details),
        sample(logits[0, 1], seed=1, position=0, **details),
    ]
    parts = [getattr(one, name) for one in found for name in one.__slots__ if name != "seed"]
    return [sampler(logits, at=-1), *(part for part in parts if part is not None)]


def test_results_are_made_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.from_numpy(VALUES.copy())
    expected = results_of(logits)
    monkeypatch.setattr(torch, "from_numpy", refuse)
    found = results_of(logits)
    assert len(found) == len(expected) == 1 + 7 + 6 + 7 + 7
    for one, other in zip(found, expected, strict=True):
        assert type(one) is torch.Tensor
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert torch.equal(one, other)


@each("inference", [True, False])
def test_results_are_ordinary_tensors(inference: bool) -> None:
    with torch.inference_mode(inference):
        found = results_of(torch.from_numpy(VALUES.copy()))
        before = [one.tolist() for one in found]
        others = [results_of(torch.from_numpy(VALUES + b)) for b in range(20)]
        plain = torch.from_numpy(np.arange(3))
    assert [one.tolist() for one in found] == before
    for one in (*found, *others[-1]):
        assert one.device == plain.device
        assert one.is_contiguous()
        assert one.layout == plain.layout
        assert one.is_inference() == plain.is_inference() == inference
        assert not one.requires_grad
        assert one.storage_offset() == 0
        assert one.untyped_storage().nbytes() == one.numel() * one.element_size()
        with torch.inference_mode(inference):
            one.fill_(7)
        assert (one == 7).all()
        assert one.numpy().flags.writeable
        assert one.numpy().tolist() == one.tolist() == copy.deepcopy(one).tolist()
    memory = [one.data_ptr() for one in found if one.numel()]
    assert len(set(memory)) == len(memory)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_results_free_their_memory() -> None:
    logits, sampler = torch.from_numpy(VALUES[:1].copy()), Sampler(seed=1)

    def resident() -> int:
        for _ in range(20_000):
            found = sampler.sample(logits, at=0, logprobs=50)
        assert found.top_tokens.shape == (1, 50)
        return int(Path("/proc/self/statm").read_text().split()[1])

    resident()
    before = resident()
    # Each call makes 0.9 kB.
    assert resident() - before < 500


WITHOUT_THE_API = """
import torch
del torch.Tensor.__dlpack_c_exchange_api__
from fastsample import sample
from tests.torch.test_torch_exchange import VALUES, results_of
logits = torch.from_numpy(VALUES.copy())
torch.save([one.clone() for one in results_of(logits)], {path!r})
"""


def test_the_old_way_returns_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "results.pt")
    code = WITHOUT_THE_API.format(path=path)
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=ROOT)
    expected = results_of(torch.from_numpy(VALUES.copy()))
    for one, other in zip(torch.load(path), expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


# ---------------------------------------------------------------- what is declined

ODD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "requires grad": lambda plain: plain.clone().requires_grad_(),
    "negated when it is read": lambda plain: torch._neg_view(plain),
    "imaginary part": lambda plain: torch.complex(plain, plain).conj().imag,
    "zero": lambda plain: torch._efficientzerotensor((3, 50)),
    "sparse": lambda plain: plain.to_sparse(),
    "compressed": lambda plain: plain.to_sparse_csr(),
    "mkldnn": lambda plain: plain.to_mkldnn(),
    "meta": lambda plain: plain.to("meta"),
    "nested": lambda plain: torch.nested.nested_tensor([*plain]),
    "jagged": lambda plain: torch.nested.nested_tensor([*plain], layout=torch.jagged),
    "float8": lambda plain: plain.to(torch.float8_e4m3fn),
    "float64": lambda plain: plain.double(),
    "complex": lambda plain: torch.complex(plain, plain),
    "uint16": lambda plain: torch.ones(3, 50, dtype=torch.uint16),
    "parameter": lambda plain: torch.nn.Parameter(plain, requires_grad=False),
    "subclass": lambda plain: plain.as_subclass(type("Labelled", (torch.Tensor,), {})),
    "no axis": lambda plain: torch.tensor(1.0),
    "no columns": lambda plain: torch.zeros(3, 0),
    "four axes": lambda plain: torch.zeros(1, 1, 3, 50),
}


def outcome_of(call: Callable[[], Any]) -> Any:
    try:
        found = call()
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error), str(error)
    return type(found), found.tolist()


@pytest.mark.filterwarnings("ignore")
@each("name", ODD)
def test_odd_tensors_go_the_general_path(name: str) -> None:
    tensor = ODD[name](torch.from_numpy(VALUES[:, 0].copy()))
    sampler, twin = made(), without_step(made())
    assert prepared_tokens(sampler, tensor) is None
    assert outcome_of(lambda: sampler(tensor)) == outcome_of(lambda: twin(tensor))
    assert sampler.position == twin.position


@pytest.mark.filterwarnings("ignore")
def test_tensors_inside_of_transforms() -> None:
    sampler, twin, seen = made(), without_step(made()), []

    def look(tensor: torch.Tensor) -> torch.Tensor:
        seen.append((outcome_of(lambda: sampler(tensor)), outcome_of(lambda: twin(tensor))))
        return tensor.sum()

    torch.vmap(look)(torch.ones(2, 3, 50))
    torch.func.grad(look)(torch.ones(3, 50))
    torch.func.jvp(look, (torch.ones(3, 50),), (torch.ones(3, 50),))
    assert len(seen) == 3
    for found, expected in seen:
        assert found == expected


def test_no_tensor_is_kept() -> None:
    logits, sampler = torch.from_numpy(VALUES[:, 0].copy()), made()
    before = sys.getrefcount(logits), logits._use_count()
    for arguments in ({}, {"bias": {0: float("nan")}}):
        for _ in range(3):
            try:
                sampler(logits, **arguments)
            except ValueError:
                assert arguments
    assert (sys.getrefcount(logits), logits._use_count()) == before


# ---------------------------------------------------------------- tensors of other libraries


class Managed(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class ExchangeAPI(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("from_object", FROM_OBJECT),
    )


class Foreign:
    """A tensor of another library: rows of float32 that start one item after `data`."""

    def __init__(self, rows: np.ndarray, device: int = 1) -> None:
        self.rows = np.ascontiguousarray(rows)
        self.shape = (ctypes.c_int64 * rows.ndim)(*rows.shape)
        self.deleted = 0
        self.deleter = DELETER(self.delete)
        tensor = DLTensor(
            self.rows.ctypes.data - 4, device, 0, rows.ndim, 2, 32, 1, self.shape, None, 4
        )
        deleter = ctypes.cast(self.deleter, ctypes.c_void_p)
        self.managed = Managed(1, 3, None, deleter, 0, tensor)

    def delete(self, _: Any) -> None:
        self.deleted += 1

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.rows.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@FROM_OBJECT
def _export(tensor: Foreign, out: Any) -> int:
    out[0] = ctypes.addressof(tensor.managed)
    return 0


def capsule_of(api: ExchangeAPI) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(api), NAME, None)


NAME = b"dlpack_exchange_api"
API = ExchangeAPI(1, 3, None, None, _export)
OF_ANOTHER_VERSION = ExchangeAPI(2, 0, None, None, _export)


@each("device", [1, 2])
def test_tensors_of_other_libraries(device: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Foreign, "__dlpack_c_exchange_api__", capsule_of(API), raising=False)
    sampler, twin, tensor = made(), made(), Foreign(VALUES[:, 0], device)
    found = prepared_tokens(sampler, tensor)
    assert tensor.deleted == 1
    if device == 1:
        assert type(found) is np.ndarray
        assert found.tolist() == twin(VALUES[:, 0]).tolist()
    else:
        assert found is None


@each("capsule", [capsule_of(OF_ANOTHER_VERSION), None, 3])
def test_other_exchange_apis_are_left_alone(capsule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Other", (Foreign,), {"__dlpack_c_exchange_api__": capsule})
    sampler, twin, tensor = made(), made(), kind(VALUES[:, 0])
    assert prepared_tokens(sampler, tensor) is None
    assert sampler(tensor).tolist() == twin(VALUES[:, 0]).tolist()
    assert tensor.deleted == 0


def test_a_mode_of_torch_that_uses_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code runs while a call looks at a tensor."""
    monkeypatch.setattr(Foreign, "__dlpack_c_exchange_api__", capsule_of(API), raising=False)
    sampler, other, twin, used = made(), made(), made(), []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, call: Any, _: Any, args: Any = (), keywords: Any = None
        ) -> Any:
            used.append(prepared_tokens(other, Foreign(VALUES[:, 1])) is not None)
            return call(*args, **(keywords or {}))

    logits = torch.from_numpy(VALUES[:, 0].copy())
    with Mode():
        found = sampler(logits)
    assert used
    assert all(used)
    assert found.tolist() == twin(VALUES[:, 0]).tolist()


def test_a_mode_of_torch_that_uses_the_sampler() -> None:
    """Its code runs while a call looks at the numbers of sequences."""
    params = [SamplingParams(seed=seed) for seed in (1, 2)]
    sampler, twin = Sampler(params), Sampler(params)
    rows, numbers, used = np.ascontiguousarray(VALUES[:1, 0]), torch.tensor([1]), []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, call: Any, _: Any, args: Any = (), keywords: Any = None
        ) -> Any:
            with pytest.raises(ValueError, match="must be at most the number of tokens"):
                sampler.rewind(99)
            used.append(call)
            return call(*args, **(keywords or {}))

    for one in (sampler, twin):
        one(rows, sequences=[1])
    with Mode():
        found = sampler(rows, sequences=numbers)
    assert used
    assert found.tolist() == twin(rows, sequences=[1]).tolist()


class Garbage:
    """Calls a function when the collector finds it."""

    def __init__(self, use: Callable[[], Any]) -> None:
        self.use, self.cycle = use, self

    def __del__(self) -> None:
        self.use()


@each("name", ["call", "sample"])
def test_a_finalizer_that_uses_the_sampler(name: str) -> None:
    """It may run where a call makes its tensors: the call returns the tokens that it appends."""
    sampler, logits = Sampler([SamplingParams(seed=b) for b in range(3)]), VALUES[:, 0].copy()
    tensor, drawn, thresholds = torch.from_numpy(logits), [], gc.get_threshold()
    sampler(tensor)
    try:
        for count in range(1, 20):
            gc.disable()
            gc.collect()
            gc.freeze()  # so that collecting takes no time
            Garbage(lambda: drawn.append(tuple(sampler(logits).tolist())))
            gc.set_threshold(count)
            gc.enable()
            found = sampler(tensor) if name == "call" else sampler.sample(tensor).tokens
            gc.disable()
            drawn.append(tuple(found.tolist()))
    finally:
        gc.collect()
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        gc.enable()
    appended = zip(*(sampler.sequence(b).output[1:] for b in range(3)), strict=True)
    assert sorted(appended) == sorted(drawn)
    assert len(drawn) == 2 * 19
