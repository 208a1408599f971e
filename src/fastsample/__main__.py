"""`python -m fastsample` and the command `fastsample`: run the command line, if it is installed."""

import sys


def main() -> None:
    """Run the command line, or print how to install what it needs."""
    try:
        from .cli.app import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("typer", "rich"):
            raise
        print(
            f"The command line needs {missing}: pip install typer rich "
            "(or pip install '.[cli]' in fastsample's repository)",
            file=sys.stderr,
        )
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
