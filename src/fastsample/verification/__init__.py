"""The proof of rule 9 on this machine: `fastsample.verify`, and what the command of that name runs.

Small rooms: `rows` and `cases` make what is asked about, `invariants` asks it in every way that may
not matter, `ledger` holds the answers to the reference's, `run` goes on until the time is over.
"""

from .report import Line, Mismatch, Report, Shown

__all__ = ["Line", "Mismatch", "Report", "Shown"]
