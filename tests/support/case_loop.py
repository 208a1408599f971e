"""Many small cases in one test: each has a name, and every failure is listed at the end."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

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

    def __enter__(self) -> CaseLoop:
        return self

    @contextmanager
    def case(self, name: object) -> Iterator[None]:
        """Run one case; an exception in it is kept as the failure of that case."""
        self.count += 1
        CaseLoop.total += 1
        try:
            yield
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{line.filename.rpartition('/')[2]}:{line.lineno}"
            self.failures.append(f"{name}: {where}: {type(error).__name__}: {error}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
