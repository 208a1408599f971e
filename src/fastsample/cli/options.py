"""Options that several commands share, made from the parameter table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from fastsample import SamplingParams
from fastsample.params.table import DRAW, STAGE_PARAMETERS

LogitsFile = Annotated[
    Path, typer.Argument(help="An .npy file of float32 or float16 logits, (V,) or (B, V).")
]
"""The file of the commands that read many rows."""


def stage_values(params: SamplingParams) -> dict[str, Any]:
    """Return temperature and filters by name, as keywords of `candidates` and `sample`."""
    return {parameter.name: getattr(params, parameter.name) for parameter in STAGE_PARAMETERS}


def stages_in_use(params: SamplingParams) -> list[str]:
    """List the temperature and filters that are on."""
    return [
        parameter.name
        for parameter in STAGE_PARAMETERS
        if getattr(params, parameter.name) not in parameter.off
    ]


def describe(params: SamplingParams) -> str:
    """Format the temperature and the filters in use in one line."""
    names = dict.fromkeys(("temperature", *stages_in_use(params)))
    return ", ".join(f"{name} {getattr(params, name)}" for name in names)


def sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the argument `params` of a command by options: one per stage, and --draw."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        is_params = parameter.name == "params"
        parameters += [*_stage_options(), _draw_option()] if is_params else [keyword]

    @wraps(command)
    def with_options(**arguments: Any) -> None:
        table = (*STAGE_PARAMETERS, DRAW)
        values = {p.name: arguments.pop(p.name, p.default) for p in table}
        values[DRAW.name] = getattr(values[DRAW.name], "value", None)
        command(**arguments, params=SamplingParams(**values))

    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options


def _stage_options() -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            parameter.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=parameter.default,
            annotation=Annotated[
                parameter.plain,
                typer.Option(help=f"{parameter.help.rstrip('.')}; {parameter.off[0]:g} is off."),
            ],
        )
        for parameter in STAGE_PARAMETERS
    ]


_DrawMethod = Enum("_DrawMethod", {name: name for name in DRAW.names})  # type: ignore[misc]


def _draw_option() -> inspect.Parameter:
    return inspect.Parameter(
        DRAW.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_DrawMethod | None, typer.Option(help=DRAW.help)],
    )
