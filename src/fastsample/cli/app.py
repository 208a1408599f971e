"""The command line: registers the commands, and reports errors in one line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fastsample import __version__

from .bench import bench
from .demo import demo
from .info import info
from .table import table
from .verify_page import verify_command


class Command(TyperCommand):
    """A command whose help shows no type for flags, which take no value."""

    def get_params(self, *arguments: Any) -> list[Any]:
        """Return the parameters, --help among them."""
        return hide_types_of_flags(super().get_params(*arguments))


class Commands(TyperGroup):
    """The group of all commands, with the same help."""

    def get_params(self, *arguments: Any) -> list[Any]:
        """Return the parameters, --help among them."""
        return hide_types_of_flags(super().get_params(*arguments))


def hide_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Give flags an empty text where help shows the type of an option's value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def report_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command report an error in one line and exit with status 2."""

    @wraps(command)
    def reporting(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except typer.Exit:
            raise
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            typer.echo(f"fastsample: {one_line(error)}", err=True)
            raise typer.Exit(2) from None

    return reporting


def one_line(error: Exception) -> str:
    """Format an error; an OSError that names no file is one of standard output."""
    if isinstance(error, OSError):
        return f"cannot open or write {error.filename or 'standard output'}: {error.strerror}"
    return " ".join(str(error).split())


def print_version(requested: bool) -> None:
    """Print the version and exit."""
    if requested:
        typer.echo(f"fastsample {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="fastsample",
    cls=Commands,
    help="Sample tokens from language model logits, and inspect, time and verify sampling.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def global_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Declare the options that come before a command."""


for name, command in {
    "table": table,
    "bench": bench,
    "verify": verify_command,
    "demo": demo,
    "info": info,
}.items():
    app.command(name, cls=Command)(report_errors(command))


def run() -> None:
    """Run the command line; exit with status 2 if standard output cannot be written."""
    if os.environ.get("COLUMNS", "").strip("0") == "":
        os.environ.pop("COLUMNS", None)  # "0": rich would print nothing
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Texts of tokens hold any character; one that the terminal lacks is printed as its escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # At exit Python would write the rest of the buffer, and fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"fastsample: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
