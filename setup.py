"""Build `fastsample._native`: one extension, whose kernels are compiled once per instruction set.

Every floating-point operation has to round on its own (docs/rule.md, section 4), so the flags
forbid fused multiply-add and never relax the arithmetic. The flags of CFLAGS and CXXFLAGS come
before those here, which therefore win. Nothing is tuned to the machine that builds: the
instruction set is chosen when the module is imported.

With FASTSAMPLE_PURE=1 in the environment nothing is compiled: a wheel for every machine, whose
engines are `numba`, where that is installed, and `reference`. FASTSAMPLE_SANITIZE=address,undefined
or FASTSAMPLE_SANITIZE=thread builds for sanitizers (tools/sanitize.py).
"""

from __future__ import annotations

import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError
from setuptools.modified import newer_group

ROOT = Path(__file__).resolve().parent
KERNELS = Path("kernels")
SOURCES = [
    "_native.pyx",
    "sampling/penalties.cpp",
    "sampling/token_counts.cpp",
    "runtime/dispatch.cpp",
    "runtime/pool.cpp",
    "reduce/reduce.cpp",
]
SOURCE_PER_ISA = str(KERNELS / "simd" / "isa.cpp")

MACHINE = platform.machine().lower()
ARCHITECTURE = {"amd64": "x86_64", "arm64": "aarch64"}.get(MACHINE, MACHINE)

# -fno-fast-math comes last in its group: it undoes what CFLAGS or CXXFLAGS may have set.
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
# -mfpmath=387 would keep more bits than float32 has between two operations.
MACHINE_FLAGS = {"x86_64": ["-march=x86-64", "-mtune=generic", "-mfpmath=sse"]}

# setuptools hands CXXFLAGS to the linker too. There -ffast-math, -funsafe-math-optimizations and
# -Ofast each link code that switches the importing thread to flush-to-zero: each is undone.
LINK_FLAGS = ["-pthread", "-O3", "-fno-fast-math", "-fno-unsafe-math-optimizations"]

# -fno-wrapv: Python's own flags make signed overflow defined, and hide it from UBSan.
SANITIZE = os.environ.get("FASTSAMPLE_SANITIZE")
SANITIZE_FLAGS = [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
SANITIZE_FLAGS = [*SANITIZE_FLAGS, "-fno-wrapv", "-O1", "-g1"] if SANITIZE else []


class InstructionSet(NamedTuple):
    """One line of kernels/simd/isa_list.hpp, as far as the build needs it."""

    namespace: str
    flags: list[str]


def instruction_sets() -> list[InstructionSet]:
    """Read the instruction sets of this machine's architecture."""
    text = (ROOT / KERNELS / "simd" / "isa_list.hpp").read_text(encoding="utf-8")
    lines = re.findall(r'^  X\((\w+), (\w+), ".*?", "(.*?)", \w+\)', text, re.MULTILINE)
    return [
        InstructionSet(namespace, flags.split())
        for architecture, namespace, flags in lines
        if architecture in ("any", ARCHITECTURE)
    ]


def dependencies() -> list[str]:
    """List the files, relative to the root, whose change makes every object stale."""
    suffixes = (".hpp", ".pxd", ".pxi")
    paths = [path for path in (ROOT / KERNELS).rglob("*") if path.suffix in suffixes]
    return sorted([SOURCE_PER_ISA, *(str(path.relative_to(ROOT)) for path in paths)])


class BuildNative(build_ext):
    """Translate the Cython into the build folder and compile the kernels per instruction set."""

    def run(self) -> None:
        """Translate the .pyx, then compile."""
        import numpy  # not needed without a compiler

        for extension in self.extensions:
            extension.include_dirs.append(numpy.get_include())
            translated = cythonize(
                [extension],
                include_path=[str(KERNELS)],
                build_dir=self.build_temp,
                language_level=3,
            )
            extension.sources = translated[0].sources
        super().run()

    def build_extension(self, extension: Extension) -> None:
        """Compile the kernels, then everything else, and link.

        Raises CompileError for a compiler that is not like GCC.
        """
        kind = self.compiler.compiler_type
        if kind != "unix":
            raise CompileError(
                f"fastsample needs GCC or Clang (vector types, -ffp-contract=off), got `{kind}`"
            )
        inputs = [*extension.sources, *extension.depends]
        if self.force or newer_group(inputs, self.get_ext_fullpath(extension.name)):
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                objects = threads.map(self.compile_kernels, instruction_sets())
                extension.extra_objects = [path for paths in objects for path in paths]
        super().build_extension(extension)

    def compile_kernels(self, isa: InstructionSet) -> list[str]:
        """Compile the kernels for one instruction set; return the paths of the objects."""
        return self.compiler.compile(
            [SOURCE_PER_ISA],
            output_dir=str(Path(self.build_temp, isa.namespace)),
            macros=[("FASTSAMPLE_ISA", isa.namespace)],
            include_dirs=[str(KERNELS)],
            extra_postargs=[*COMPILE_FLAGS, *isa.flags],
        )


COMPILE_FLAGS = [
    *FLAGS,
    *MACHINE_FLAGS.get(ARCHITECTURE, []),
    *SANITIZE_FLAGS,
    f"-ffile-prefix-map={ROOT}=.",
]
NATIVE = Extension(
    "fastsample._native",
    sources=[str(KERNELS / name) for name in SOURCES],
    depends=dependencies(),
    include_dirs=[str(KERNELS)],
    define_macros=[
        ("FASTSAMPLE_FLAGS", '"' + " ".join(FLAGS) + '"'),
        ("NPY_NO_DEPRECATED_API", "NPY_1_23_API_VERSION"),
    ],
    extra_compile_args=COMPILE_FLAGS,
    extra_link_args=[*LINK_FLAGS, *SANITIZE_FLAGS],
    language="c++",
)

PURE = os.environ.get("FASTSAMPLE_PURE") == "1"

setup(ext_modules=[] if PURE else [NATIVE], cmdclass={"build_ext": BuildNative})
