"""Build the sdist, then try the wheel made from it under every CPython that is found.

For each version: an empty folder, a wheel built there from the sdist alone, an empty environment
with that wheel and pytest, and the tests of the golden tokens and of the package. Then the same
with the wheel that FASTSAMPLE_PURE=1 makes, where compilers fail, and with numba if there is one
for this version; and, for the oldest Python, with the lowest version that pyproject.toml declares
of each package. A version that is not on the machine is named as untested. As many are tried at
a time as there are processors. Standard library only; run by `make wheels`, and by `make lowest`
for the lowest versions alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13")
ROOT = Path(__file__).resolve().parent.parent
TESTS = ("engines/test_golden.py", "package/test_package.py")
TESTS_OF_LOWEST = (*TESTS, "cli/test_cli.py", "engines/test_properties.py")
Kind = Callable[[str, Path, Path], str]
PURE = {"FASTSAMPLE_PURE": "1", "CC": "false", "CXX": "false"}


def candidates(version: str) -> Iterator[str]:
    """Yield the places where a CPython of this version may be."""
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    for folder in sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*")):
        yield str(folder / "bin" / "python")


def find_python(version: str) -> str | None:
    """Return the first candidate that starts and is a CPython of this version."""
    question = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    wanted = f"cpython {version.replace('.', ' ')}"
    for python in candidates(version):
        answer = subprocess.run([python, "-c", question], capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.strip() == wanted:
            return python
    return None


def run(*command: str | Path, cwd: Path, variables: dict[str, str] | None = None) -> str:
    """Run a command away from the source tree; on failure show all that it printed and stop."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return done.stdout


def build_sdist(folder: Path) -> Path:
    """Build the source distribution into `folder`."""
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT, cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    return sdist


def unpack_tests(sdist: Path, folder: Path, tests: tuple[str, ...]) -> list[Path]:
    """Unpack the sdist without its sources, so that only the wheel can be imported."""
    shutil.unpack_archive(sdist, folder)
    (project,) = folder.iterdir()
    shutil.rmtree(project / "src")
    return [project / "tests" / name for name in tests]


def make_environment(python: str, folder: Path, *packages: str | Path) -> Path:
    """Make an empty environment with these packages; return its interpreter."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    inner = folder / "bin" / "python"
    if packages:
        run(inner, "-m", "pip", "install", "--quiet", *packages, cwd=folder)
    return inner


def add_numba(user: Path) -> None:
    """Install numba where there is a wheel of it; elsewhere its engine's tests skip by name."""
    pip = ("-m", "pip", "install", "--quiet", "--only-binary", ":all:", "numba>=0.59")
    subprocess.run([user, *pip], cwd=user.parent, capture_output=True)


def write_constraints(sdist: Path, folder: Path) -> tuple[Path, Path]:
    """Write pip constraints: the lowest versions that pyproject.toml declares.

    The first are for building, the second for use.
    """
    shutil.unpack_archive(sdist, folder)
    (declared,) = folder.glob("*/pyproject.toml")
    to_build, to_use = declared.read_text(encoding="utf-8").split("[project]")
    paths = []
    for name, text in (("build", to_build), ("use", to_use)):
        lowest: dict[str, str] = {}
        for package, version in re.findall(r'"([\w-]+)[>=]=([\d.]+)"', text):
            lowest.setdefault(package, version)  # users' packages stand before developers'
        paths.append(folder / f"{name}.txt")
        paths[-1].write_text("".join(f"{one}=={lowest[one]}\n" for one in lowest))
    return paths[0], paths[1]


def build_wheel(
    python: str, sdist: Path, folder: Path, variables: dict[str, str] | None = None
) -> Path:
    """Build a wheel in an environment of its own."""
    builder = make_environment(python, folder / "build")
    pip_wheel = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "wheels")
    run(builder, *pip_wheel, sdist, cwd=folder, variables=variables)
    (wheel,) = (folder / "wheels").glob("*.whl")
    return wheel


def run_tests(user: Path, wheel: Path, tests: list[Path], folder: Path) -> str:
    """Run tests against an installed wheel; return what they came to."""
    output = run(user, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=folder)
    return f"{wheel.name} ({wheel.stat().st_size // 1024} KiB): {output.splitlines()[-1]}"


def check_native(python: str, sdist: Path, folder: Path) -> str:
    """Test the compiled wheel with NumPy alone."""
    wheel = build_wheel(python, sdist, folder)
    user = make_environment(python, folder / "use", wheel, "pytest")
    run(user, "-c", "import fastsample._native", cwd=folder)
    return run_tests(user, wheel, unpack_tests(sdist, folder / "unpacked", TESTS), folder)


def check_pure(python: str, sdist: Path, folder: Path) -> str:
    """Test the wheel without compiled code, with numba where there is one."""
    wheel = build_wheel(python, sdist, folder, PURE)
    user = make_environment(python, folder / "use", wheel, "pytest")
    add_numba(user)
    return run_tests(user, wheel, unpack_tests(sdist, folder / "unpacked", TESTS), folder)


def check_lowest(python: str, sdist: Path, folder: Path) -> str:
    """Build and test the compiled wheel with the lowest versions that are declared."""
    to_build, constraints = write_constraints(sdist, folder / "declared")
    variables = {"PIP_CONSTRAINT": str(to_build), "PIP_BUILD_CONSTRAINT": str(to_build)}
    wheel = build_wheel(python, sdist, folder, variables)
    packages = [f"{wheel}[cli,numba,plot]", "hypothesis", "pytest", "-c", constraints]
    user = make_environment(python, folder / "use", *packages)
    tests = unpack_tests(sdist, folder / "unpacked", TESTS_OF_LOWEST)
    return f"lowest versions, {run_tests(user, wheel, tests, folder)}"


def check(version: str, python: str | None, kind: Kind | None, sdist: Path) -> str:
    """Build, install and test under one interpreter; return the outcome in one line."""
    if python is None or kind is None:
        return f"CPython {version}: not on this machine: untested"
    with tempfile.TemporaryDirectory() as name:
        return f"CPython {version}: {kind(python, sdist, Path(name))}"


def main() -> None:
    """Print one line for each wheel."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--lowest", action="store_true", help="only with the lowest versions")
    is_lowest_alone = parser.parse_args().lowest
    tries: list[tuple[str, str | None, Kind | None]] = []
    for version in VERSIONS[:1] if is_lowest_alone else VERSIONS:
        python = find_python(version)
        kinds: list[Kind | None] = [] if is_lowest_alone else [check_native, check_pure]
        if version == VERSIONS[0]:
            kinds.append(check_lowest)
        tries += [(version, python, kind) for kind in (kinds if python else [None])]
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        sdist = build_sdist(Path(name))
        print(f"{sdist.name} ({sdist.stat().st_size // 1024} KiB)", flush=True)
        for line in pool.map(lambda one: check(*one, sdist), tries):
            print(line, flush=True)


if __name__ == "__main__":
    main()
