"""Build the compiled core, if there is a compiler: all else about the package is in pyproject.toml."""

import os
import sysconfig

from setuptools import Extension, setup

# For every version of Python. The same bits on all processors, and the same bytes in all folders.
CORE = Extension(
    "torchonline.core._compiled",
    ["torchonline/core/_compiled.c"],
    extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off", "-g0"],
    py_limited_api=True,
    optional=True,
)
# Python without a global lock has no limited API, and the core relies on the lock.
IS_WANTED = os.environ.get("TORCHONLINE_COMPILED", "1") != "0" and not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[CORE] if IS_WANTED else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_WANTED else {},
)
