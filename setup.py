"""How `fastsample._native` is compiled: one extension, each isa_*.cpp with its own machine flags.

Every floating-point operation has to round on its own (docs/rule.md, section 4), so the flags
forbid fused multiply-add and never relax the arithmetic. Nothing is tuned to the machine that
builds: the instruction set is chosen when the module is imported.

With FASTSAMPLE_PURE=1 in the environment nothing is compiled: a wheel for every machine, whose
engines are `numba`, where that is installed, and `reference`.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
KERNELS = Path("kernels")

X86_64 = platform.machine().lower() in ("x86_64", "amd64")
AARCH64 = platform.machine().lower() in ("aarch64", "arm64")

# -fno-fast-math comes last in its group: it undoes what a CFLAGS of the environment may have set.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-g0",
    "-pthread",
    "-fvisibility=hidden",
    "-fno-fast-math",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
]

BASELINE_FLAGS = ["-march=x86-64", "-mtune=generic"] if X86_64 else []
FILE_FLAGS = {
    "isa_x86_v3.cpp": ["-march=x86-64-v3"],
    "isa_x86_v4.cpp": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
}


def sources() -> list[str]:
    """List what this machine compiles: the module, the dispatcher, one file per instruction set."""
    names = ["_native.pyx", "sampling/penalties.cpp", "runtime/dispatch.cpp"]
    names += ["runtime/pool.cpp", "reduce/reduce.cpp"]
    names += ["simd/isa_baseline.cpp"]
    if X86_64:
        names += ["simd/isa_x86_v3.cpp", "simd/isa_x86_v4.cpp"]
    if AARCH64:
        names += ["simd/isa_neon.cpp"]
    return [str(KERNELS / name) for name in names]


def headers() -> list[str]:
    """List what every object depends on, relative to the project's root."""
    paths = (
        path for path in (ROOT / KERNELS).rglob("*") if path.suffix in (".hpp", ".pxd", ".pxi")
    )
    return sorted(str(path.relative_to(ROOT)) for path in paths)


class BuildNative(build_ext):
    """Cython's C++ goes to the build folder; machine flags follow the name of the file."""

    def run(self) -> None:
        """Translate the .pyx beside the objects, then compile as usual."""
        for extension in self.extensions:
            made = cythonize(
                [extension],
                include_path=[str(KERNELS)],
                build_dir=self.build_temp,
                language_level=3,
            )
            extension.sources = made[0].sources
        super().run()

    def build_extensions(self) -> None:
        """Give the compiler one more step: flags by file name."""
        if self.compiler.compiler_type != "unix":
            kind = self.compiler.compiler_type
            raise CompileError(
                f"fastsample needs GCC or Clang (vector types, -ffp-contract=off), got `{kind}`"
            )
        compile_one = self.compiler._compile

        def compile_with_flags(
            obj: str, src: str, ext: str, cc_args: list[str], postargs: list[str], pp_opts: Any
        ) -> None:
            flags = FILE_FLAGS.get(Path(src).name, BASELINE_FLAGS)
            compile_one(obj, src, ext, cc_args, [*postargs, *flags], pp_opts)

        self.compiler._compile = compile_with_flags
        super().build_extensions()


NATIVE = Extension(
    "fastsample._native",
    sources=sources(),
    depends=headers(),
    include_dirs=[str(KERNELS)],
    define_macros=[("FASTSAMPLE_FLAGS", '"' + " ".join(FLAGS) + '"')],
    extra_compile_args=[*FLAGS, f"-ffile-prefix-map={ROOT}=."],
    extra_link_args=["-pthread"],
    language="c++",
)

PURE = os.environ.get("FASTSAMPLE_PURE") == "1"

setup(ext_modules=[] if PURE else [NATIVE], cmdclass={"build_ext": BuildNative})
