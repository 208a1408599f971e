"""Many cases in one test: each has a name, every one runs, and every failure is listed at the end.

`each` turns a test into such a loop, as `pytest.mark.parametrize` would turn it into many tests:

    @each("size", [1, 2, 300])
    @each(("k", "kept"), [(0, 1), (5, 5)])
    def test_top_k(engine, size, k, kept): ...

Fixtures are made once for all cases.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import product
from types import TracebackType
from typing import Any, NamedTuple

import pytest

LISTED = 40
"""How many failures a message lists in full."""


class CaseLoop:
    """Collect the failures of a loop over cases.

        with CaseLoop() as cases:
            for name, x in TABLE:
                with cases.case(name):
                    assert f(x) == 1

    Raises
    ------
    AssertionError
        At the end of the outer block: the number of cases that failed, and each by its name; or
        that there was no case at all.
    """

    total = 0
    """Cases of all loops of this process."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[str] = []
        self.skipped: list[str] = []

    def __enter__(self) -> CaseLoop:
        return self

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """Run one case; an exception in it is kept as the failure of that case."""
        self.count += 1
        try:
            yield
        except pytest.skip.Exception as reason:
            self.skipped.append(str(reason))
        except (Exception, pytest.fail.Exception) as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{line.filename.rpartition('/')[2]}:{line.lineno}"
            self.failures.append(f"{name}: {where}: {type(error).__name__}: {error}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        CaseLoop.total += self.count - len(self.skipped)
        if kind is not None:
            return
        if not self.count:
            raise AssertionError("the loop has no case")
        if self.failures:
            listed = "\n\n".join(self.failures[:LISTED])
            more = len(self.failures) - LISTED
            rest = f"\n\nand {more} more" if more > 0 else ""
            raise AssertionError(
                f"{len(self.failures)} of {self.count} cases failed:\n\n{listed}{rest}"
            )
        if len(self.skipped) == self.count:
            pytest.skip(self.skipped[0])


class _Axis(NamedTuple):
    """Names of parameters, and a row of values for each case; `ids` name the cases."""

    names: list[str]
    rows: list[tuple[Any, ...]]
    ids: list[str]


def each(
    names: str | Sequence[str],
    values: Iterable[Any],
    ids: Iterable[str] | Callable[[Any], str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each value in one loop; arguments as for `pytest.mark.parametrize`."""
    listed = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    rows = [(value,) if len(listed) == 1 else tuple(value) for value in values]
    if ids is None or callable(ids):
        show = ids or (lambda value: str(value)[:60])
        labels = ["-".join(show(value) for value in row) for row in rows]
    else:
        labels = list(ids)
    axis = _Axis(listed, rows, labels)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        check = getattr(test, "check", test)
        axes: list[_Axis] = [axis, *getattr(test, "axes", [])]

        @wraps(test)
        def loop(**fixtures: Any) -> None:
            with CaseLoop() as cases:
                for picked in product(*(zip(a.ids, a.rows, strict=True) for a in axes)):
                    arguments = dict(fixtures)
                    for one, (_, row) in zip(axes, picked, strict=True):
                        arguments.update(zip(one.names, row, strict=True))
                    with cases.case(", ".join(label for label, _ in picked)):
                        check(**arguments)

        looped = {name for a in axes for name in a.names}
        parameters = inspect.signature(check).parameters.values()
        loop.check, loop.axes = check, axes  # type: ignore[attr-defined]
        loop.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter for parameter in parameters if parameter.name not in looped]
        )
        return loop

    return decorate
