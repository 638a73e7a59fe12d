"""Builds the extension against the torch that is there, with Kolo's library beside it.

KOLO_LIBRARY and KOLO_INCLUDE name the library's file and the folder of kolo/kolo.h; without them pkg-config finds an installed one."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = Path(__file__).parent


def ask(*arguments):
    try:
        return subprocess.run(["pkg-config", *arguments, "kolo"], check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        sys.exit("kolo_torch: no Kolo: want KOLO_LIBRARY and KOLO_INCLUDE, or an installed one that pkg-config finds")


class Build(BuildExtension):
    """Puts the libraries beside the extension, which looks for them there first."""

    def run(self):
        super().run()
        for extension in self.extensions:
            for name in "libkolo.so.0", "libkolo_cuda.so.0":  # the latter is there if Kolo was built with CUDA
                if (LIBRARY.parent / name).exists():
                    shutil.copy(LIBRARY.parent / name, Path(self.get_ext_fullpath(extension.name)).with_name(name))


LIBRARY = Path(os.environ.get("KOLO_LIBRARY") or Path(ask("--variable=libdir")) / "libkolo.so.0")
INCLUDE = os.environ.get("KOLO_INCLUDE") or ask("--variable=includedir")

setup(ext_modules=[CppExtension("kolo_torch._C", sorted(str(p.relative_to(HERE)) for p in (HERE / "src").glob("*.cpp")),
                                include_dirs=[INCLUDE], extra_compile_args=["-O2", "-Wall", "-fvisibility=hidden"],
                                extra_link_args=[str(LIBRARY), "-Wl,-rpath,$ORIGIN"])],
      cmdclass={"build_ext": Build})
