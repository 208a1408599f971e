"""How to do what a message says, on the object that it is about.

A hint is code, an expression of the argument, or words. `PHRASES` has the words that many messages
share, and the arguments that they lead to.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastsample import SampleResult, sample
from fastsample.params.table import STAGES

NOTHING: Any = object()
"""Stands for a value that is not given."""
DRAWS = 16
"""How many tokens are compared where a call can draw several."""


STEPS = 4
"""How many more hints are followed where an object has several faults."""


class Mended(NamedTuple):
    """A call that does what a hint says: a part of the hint, word for word, and the tokens.

    `tokens` may be a function that returns them.
    """

    hint: str
    call: Callable[[], Any]
    tokens: Any


class Attempt(NamedTuple):
    """A call with a bad argument, so that the hint can be followed in it."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    name: str
    means: Any = NOTHING  # what the value means, where the hint is code
    to: tuple[str, Any] | None = None  # words of the hint, and the value that they lead to


class Arguments(dict):
    """Arguments that words lead to, where these are more than a value of the bad one."""


PHRASES: list[tuple[str, Any]] = [
    ("leave `seed` out", Arguments({"seed": None, "position": None, "temperature": 0})),
    ("1 is one minute", 1),
    ("0 takes the top token", 0),
    ("1 changes nothing", 1),
    ("0, -1 and None are off", -1),
    ("such as 0.95", 0.95),
    ("such as 0.05", 0.05),
    ("1 is off", 1),
    ("0 is off", 0),
    ('"row" puts row b on stream b', "row"),
    ("0 for the first", 0),
    ("a count n means the last n tokens", 2),
    ("None draws one token", None),
    ("0 returns the drawn token alone", 0),
    ("the names are ('raw'", "raw"),
    ("one is enough", "tempered"),
    ("True adds the field", True),
    ('"mark" gives an invalid row', "mark"),
    ('"exact", the default', "exact"),
    ('None is a race in the reduction "exact"', None),
    ("None lets fastsample choose", None),
    ("None takes the fastest one", None),
    ("leave one of the two out", None),
    ("usable here: baseline", "baseline"),
    ("in the default order: ('top_n_sigma'", STAGES),
    ("they are ('top_n_sigma', 'temperature', 'top_k'", ("top_k", "temperature")),
    ("leave one of them out", ("top_k",)),
    ("leave it out for all", NOTHING),
    ("leave it out to get", NOTHING),
    ("leave it out for rows", NOTHING),
    ("leave it out where there is none", NOTHING),
    ("a percentage: 50 for the median", 50),
    ("0 changes nothing", {1: 0}),
    ("-inf bans a token", {1: -np.inf}),
    ("two arrays of one length", ([0, 1], [1.0, 9.0])),
]
"""Words of hints, each with the value of the bad argument that they lead to."""


def follow(message: str, attempt: Attempt) -> Mended:
    """Return the call that does what a message says, and the tokens that are right."""
    code = "" if attempt.to else _code_in(message, attempt.name)
    if code:
        assert attempt.means is not NOTHING, f"say what {attempt.name} means, for `{code}`"
        means = attempt.means
        return Mended(
            code, lambda: _after_code(attempt, code, STEPS), lambda: _right(attempt, means)
        )
    words, value = attempt.to or _words_in(message)
    changed = _changed(attempt, value)
    means = value if attempt.means is NOTHING else attempt.means
    return Mended(words, lambda: _tokens(attempt, changed), lambda: _right(attempt, means))


def _after_code(attempt: Attempt, code: str, steps: int) -> Any:
    """Call with what the code makes; where that has another fault, follow the next hint."""
    names = {"np": np, "torch": sys.modules.get("torch"), **attempt.arguments}
    value = eval(code, names)
    entry = re.search(rf"(?<![\w.]){attempt.name}\[(\d+)\]\.", code)
    if entry:
        whole, place = list(attempt.arguments[attempt.name]), int(entry[1])
        whole[place] = value
        value = type(attempt.arguments[attempt.name])(whole)
    changed = _changed(attempt, value)
    try:
        return _tokens(attempt, changed)
    except (TypeError, ValueError) as error:
        following = _code_in(str(error), attempt.name)
        if not following or not steps:
            raise
    return _after_code(attempt._replace(arguments=changed), following, steps - 1)


def _code_in(message: str, name: str) -> str:
    """The first expression of an argument in a hint; "" where it has none."""
    hint = message[message.rindex(", got ") :] if ", got " in message else message
    uses = re.compile(rf"(?<![\w.]){name}(?!\w)")
    codes = re.findall(r"`([^`]+)`", hint)
    return next((code for code in codes if code != name and uses.search(code)), "")


def _words_in(message: str) -> tuple[str, Any]:
    found = next(((words, value) for words, value in PHRASES if words in message), None)
    assert found is not None, f"no way to follow {message}"
    return found


def _changed(attempt: Attempt, value: Any) -> dict[str, Any]:
    """The arguments with another value of the bad one, or without it."""
    changes = value if isinstance(value, Arguments) else {attempt.name: value}
    changed = {**attempt.arguments, **changes}
    return {name: one for name, one in changed.items() if one is not NOTHING}


def _right(attempt: Attempt, value: Any) -> Any:
    """The result of the reference for what the call means."""
    meant = _changed(attempt, value)
    if "engine" in inspect.signature(attempt.function).parameters:
        meant |= {"engine": "reference", **({"isa": None} if "isa" in meant else {})}
    return _tokens(attempt, meant)


def _tokens(attempt: Attempt, arguments: dict[str, Any]) -> Any:
    """What a call returns, as lists; several draws where it takes them."""
    alone = {"n", "out", "logprobs", "margin"}
    if attempt.function is sample and not alone & set(arguments):
        arguments = {**arguments, "n": DRAWS}
    return as_lists(attempt.function(**arguments))


def as_lists(result: Any) -> Any:
    """The tokens, kept set or numbers of a result."""
    if isinstance(result, SampleResult):
        return as_lists(result.tokens)
    if isinstance(result, (tuple, list)):
        return [as_lists(one) for one in result]
    if hasattr(result, "__dataclass_fields__") and hasattr(result, "tokens"):
        return as_lists(result.tokens)
    return result.tolist() if hasattr(result, "tolist") else result


def attempt_of(
    function: Callable[..., Any],
    part: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    means: Any = NOTHING,
    to: tuple[str, Any] | None = None,
) -> Attempt:
    """The attempt of a call whose message begins with the argument, in backticks."""
    bound = inspect.signature(function).bind(*args, **kwargs).arguments
    arguments = dict(bound)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= arguments.pop(name, {})
    named = re.match(r"`(\w+)`", part)
    return Attempt(function, arguments, named[1] if named else "logits", means, to)
