"""The fixture that holds every engine to the same tests; native once per instruction set."""

from __future__ import annotations

import pytest
from support import Engine, native


def _engine_params() -> list[object]:
    params: list[object] = [pytest.param(Engine("reference"), id="reference")]
    if native is None:
        skip = pytest.mark.skip(reason="fastsample._native is not built")
        return [*params, pytest.param(Engine("native"), id="native", marks=skip)]
    for isa in native.isa_compiled():
        usable = isa in native.isa_usable()
        marks = () if usable else pytest.mark.skip(reason=f"this machine cannot run {isa}")
        params.append(pytest.param(Engine("native", isa), id=f"native-{isa}", marks=marks))
    return params


@pytest.fixture(scope="session", params=_engine_params())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine, native once per instruction set."""
    return request.param
