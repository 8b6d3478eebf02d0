"""What the benchmark scripts share: the header, interleaved timing and plain-text tables."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import jax


def print_header(title: str, settings: Mapping[str, Any]) -> None:
    """Versions, machine and settings: what a reader needs to judge and to repeat the numbers."""
    names = ("numpyro", "jax", "jaxlib", "numpy", "scipy", "ppl_sgp")
    versions = [f"python {sys.version.split()[0]}", *(f"{name} {_version(name)}" for name in names)]
    threads = {
        name: os.environ[name]
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "XLA_FLAGS")
        if name in os.environ
    }
    print(f"{title}\n{'=' * len(title)}")
    print("versions:", ", ".join(versions))
    machine = (_cpu_model(), f"{_usable_cores()} cores", platform.system(), f"JAX on {jax.default_backend()}")
    print("machine: ", ", ".join((*machine, "float64" if jax.config.jax_enable_x64 else "float32")))
    for line in (*([f"threads:  set by the environment to {threads}"] if threads else []), *_blas()):
        print(line)
    print("settings:", ", ".join(f"{name}={value}" for name, value in settings.items()), flush=True)


def _version(name: str) -> str:
    if name == "ppl_sgp":
        # The checkout beside this script may be newer than an installed copy, so say which is used.
        import ppl_sgp

        where = Path(ppl_sgp.__file__).resolve().parents[1]
        source = "this checkout" if where == Path(__file__).resolve().parents[1] else "installed"
        try:
            return f"{version(name)} ({source})"
        except PackageNotFoundError:
            return source
    return version(name)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _blas() -> list[str]:
    """The BLAS libraries loaded and their threads, if threadpoolctl is installed."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return []
    import scipy.linalg  # noqa: F401  (loads the LAPACK that JAX uses on a CPU)

    pools = {
        f"{pool['internal_api']} {pool['version']} with {pool['num_threads']} threads" for pool in threadpool_info()
    }
    return [f"BLAS:     {', '.join(sorted(pools))}"]


def interleaved_medians(
    functions: Mapping[str, Callable[[], Any]], repeats: int, min_seconds: float = 0.05
) -> dict[str, float]:
    """Median seconds a call of each function, timed in turn so that drifts of the machine hit all alike.

    A first, uncounted call of each compiles it and sets how many calls make up one timing, so that
    a timing lasts about ``min_seconds``. Every call waits for its result.
    """
    calls = {}
    for name, function in functions.items():
        jax.block_until_ready(function())
        calls[name] = max(1, int(min_seconds / timed(function)[0]))
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                jax.block_until_ready(function())
            seconds[name].append((time.perf_counter() - start) / calls[name])
    return {name: median(values) for name, values in seconds.items()}


def peak_gib() -> float:
    """The largest resident memory this process has had, in GiB (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Seconds until the result is there, and the result."""
    start = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start, result


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> None:
    """A plain-text table; numbers are right-aligned with four significant digits."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    numeric = [all(isinstance(row[i], (int, float)) or row[i] == "" for row in rows) for i in range(len(columns))]
    print()
    for index, row in enumerate(cells):
        aligned = [c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True)]
        print("  ".join(aligned).rstrip())
        if index == 0:
            print("  ".join("-" * width for width in widths))
    if note:
        print(note)
    sys.stdout.flush()


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds in the unit a reader would choose."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def verdict(met: bool, smoke: bool = False) -> str:
    """Whether a target is met. Smoke runs are too small to judge by."""
    return "(smoke)" if smoke else "met" if met else "NOT MET"


def print_conclusion(outcomes: Mapping[str, bool], smoke: bool) -> None:
    """Every target once more, with its outcome, at the end of the output."""
    print()
    for target, met in outcomes.items():
        print(f"{verdict(met, smoke):8} {target}")
