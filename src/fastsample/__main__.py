"""`python -m fastsample` and the command `fastsample`: the command line, or what it lacks."""

import io
import sys


def main() -> None:
    """Run the command line, or tell how to install what it needs."""
    try:
        from .cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(
            f"The command line needs {error.name}: pip install typer rich "
            "(or pip install '.[cli]' in fastsample's source folder)",
            file=sys.stderr,
        )
        sys.exit(1)
    # Token texts hold any character; a terminal that lacks one gets its escape.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
