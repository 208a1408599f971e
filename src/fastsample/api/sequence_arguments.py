"""Checks of what methods of a `Sampler` are given: numbers of sequences, and lists of tokens."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

from fastsample.inputs.tokens import is_integer, is_nested, token_list
from fastsample.params.foreign import host_array, shown
from fastsample.params.ignored_tokens import NONE_IGNORED, IgnoredTokens
from fastsample.params.table import POSITION
from fastsample.params.validation import per_row

REWOUND = replace(POSITION, name="n", way_out="how many tokens to take back, 0 for none")


def parse_id(number: Any) -> int:
    """Check the number of the one sequence that a method is about."""
    if not is_integer(number):
        raise TypeError(
            f"`number` must be the number of one sequence, got {shown(number)} "
            "(an integer that add() returned, and one call for each)"
        )
    return int(number)


def _parse_member(number: Any) -> int:
    """Check one number of `sequences`."""
    if not is_integer(number):
        raise TypeError(
            f"`sequences` must be numbers of sequences, got {shown(number)} "
            "(an integer that add() returned, or a list of them)"
        )
    return int(number)


def parse_ids(sequences: Any) -> tuple[int, ...] | None:
    """Check one number of a sequence, or several; None, for all, is returned."""
    if sequences is None:
        return None
    plain = host_array("sequences", sequences)
    listed = plain.tolist() if hasattr(plain, "tolist") else plain
    ids = tuple(listed) if isinstance(listed, (list, tuple, range)) else (listed,)
    return ids if set(map(type, ids)) <= {int} else tuple(map(_parse_member, ids))


def parse_prompts(prompt: Any, ignored: list[IgnoredTokens], vocabulary: int) -> list[array[int]]:
    """Check the prompt of each sequence; one list of tokens is that of all."""
    if is_nested(prompt):
        return parse_token_lists("prompt", prompt, ignored, vocabulary)
    one = () if prompt is None else prompt
    # Each sequence may ignore other tokens.
    each = {
        skipped: parse_token_lists("prompt", one, [skipped], vocabulary)[0] for skipped in ignored
    }
    if not ignored:
        parse_token_lists("prompt", one, [NONE_IGNORED], vocabulary)
    return [array("q", each[skipped]) for skipped in ignored]


def parse_token_lists(
    name: str,
    value: Any,
    ignored: list[IgnoredTokens],
    vocabulary: int,
    *,
    skip_marks: bool = False,
) -> list[array[int]]:
    """Check a list of tokens for each of some sequences; one token is a list of one.

    `ignored` are the tokens that each of them ignores.

    For one sequence, the list of tokens need not be in another list. With `skip_marks`, -1 is
    dropped, which a marked row has instead of a token.
    """
    value = host_array(name, value)
    count = len(ignored)
    if count == 1 and not is_nested(value):
        return [_token_array(name, value, None, ignored[0], vocabulary, skip_marks)]
    if not per_row(value):
        raise TypeError(
            f"`{name}` must be a list with an entry for each of the {count} sequences, got "
            f"{type(value).__name__} (an entry is a token or a list of tokens)"
        )
    if len(value) != count:
        choice = "; sequences=[...] chooses sequences" if name == "tokens" else ""
        raise ValueError(
            f"`{name}` must have an entry for each of the {count} sequences, got {len(value)} "
            f"(an entry is a token or a list of tokens{choice})"
        )
    return [
        _token_array(name, one, row, skipped, vocabulary, skip_marks)
        for row, (one, skipped) in enumerate(zip(value, ignored, strict=True))
    ]


def _token_array(
    name: str,
    value: Any,
    row: int | None,
    ignored: IgnoredTokens,
    vocabulary: int,
    skip_marks: bool,
) -> array[int]:
    tokens = token_list(
        name, value, vocabulary, row, is_scalar_ok=True, skip_marks=skip_marks, ignored=ignored
    )
    return array("q", tokens.tobytes())
