"""Build the sdist, then try the wheel made from it under every CPython that is found.

For each version: an empty folder, a wheel built there from the sdist alone, an empty environment
with that wheel and pytest, and the tests of the golden tokens and of the package. Then the same
with the wheel that FASTSAMPLE_PURE=1 makes, where compilers fail, and with numba if there is one
for this version. A version that is not on the machine is named as untested. As many are tried at
a time as there are processors. Standard library only; run by `make wheels`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13")
ROOT = Path(__file__).resolve().parent.parent
TESTS = ("engines/test_golden.py", "package/test_package.py")
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


def unpack_tests(sdist: Path, folder: Path) -> list[Path]:
    """Unpack the sdist without its sources, so that only the wheel can be imported."""
    shutil.unpack_archive(sdist, folder)
    (project,) = folder.iterdir()
    shutil.rmtree(project / "src")
    return [project / "tests" / name for name in TESTS]


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


def check(version: str, python: str | None, sdist: Path, pure: bool) -> str:
    """Build, install and test under one interpreter; return the outcome in one line."""
    if python is None:
        return f"CPython {version}: not on this machine: untested"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = make_environment(python, folder / "build")
        pip_wheel = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "wheels")
        run(builder, *pip_wheel, sdist, cwd=folder, variables=PURE if pure else None)
        (wheel,) = (folder / "wheels").glob("*.whl")
        user = make_environment(python, folder / "use", wheel, "pytest")
        tests = unpack_tests(sdist, folder / "unpacked")
        if pure:
            add_numba(user)
        else:
            run(user, "-c", "import fastsample._native", cwd=folder)
        output = run(user, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=folder)
        size = f"{wheel.stat().st_size // 1024} KiB"
        return f"CPython {version}: {wheel.name} ({size}): {output.splitlines()[-1]}"


def main() -> None:
    """Print one line for each wheel."""
    found = [(version, find_python(version)) for version in VERSIONS]
    tries = [(*one, pure) for one in found for pure in ((False, True) if one[1] else (False,))]
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as pool:
        sdist = build_sdist(Path(name))
        print(f"{sdist.name} ({sdist.stat().st_size // 1024} KiB)", flush=True)
        for line in pool.map(lambda one: check(*one[:2], sdist, one[2]), tries):
            print(line, flush=True)


if __name__ == "__main__":
    main()
