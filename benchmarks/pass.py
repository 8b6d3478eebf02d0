"""The pass over the data against BLAS alone, and its memory against the number of rows.

A Fourier basis of m = 1,000 features over 11 inputs. BLAS alone is `dsyrk` (SciPy) on features that are in memory
already, blocks of the same size, summed up; both in one run, alternating. Targets: the pass at most 1.6 times that
time, 1.25 times with float32 features. Memory is the peak of a process of its own for each number of rows, generated on
the fly. Targets: flat from 100,000 to 10,000,000 rows.

    python benchmarks/pass.py
    python benchmarks/pass.py --smoke
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from statistics import median

import jax
import numpy as np
import numpyro
from common import duration, peak_gib, print_conclusion, print_header, print_table
from scipy.linalg.blas import dsyrk

import ppl_sgp as sgp
from ppl_sgp.statistics.accumulate import BLOCK_BYTES

INPUTS, CHUNK = 11, 2**16


def basis_of(m: int) -> sgp.FourierBasis:
    return sgp.FourierBasis.sample(jax.random.key(0), sgp.SquaredExponential(2.0), m, INPUTS)


def chunks(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    for start in range(0, n, CHUNK):
        X = rng.normal(size=(min(CHUNK, n - start), INPUTS))
        yield X, np.sin(X[:, 0])


def blas_seconds(block: np.ndarray, n: int) -> float:
    """The symmetric rank-k update for n rows, on one block again and again."""
    gram = np.zeros((block.shape[1], block.shape[1]), order="F")
    begun = time.perf_counter()
    for _ in range(n // len(block)):
        gram = dsyrk(1.0, block.T, beta=1.0, c=gram, overwrite_c=True, lower=True)
    return (time.perf_counter() - begun) * n / (n // len(block) * len(block))


def pass_seconds(basis: sgp.FourierBasis, X: np.ndarray, y: np.ndarray, single: bool) -> float:
    begun = time.perf_counter()
    sgp.sufficient_statistics(basis, X, y, float32_features=single)
    return time.perf_counter() - begun


def peak_memory(n: int, m: int, queue: multiprocessing.Queue) -> None:
    begun = time.perf_counter()
    sgp.sufficient_statistics(basis_of(m), chunks(n))
    queue.put((peak_gib(), time.perf_counter() - begun))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="seconds")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=100_000, help="for times")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory-rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    args = parser.parse_args()
    if args.smoke:
        args.features, args.rows, args.repeats, args.memory_rows = 50, 20_000, 2, [1000, 20_000]
    numpyro.enable_x64()
    print_header("The pass over the data", {k: v for k, v in vars(args).items() if k != "smoke"})
    basis = basis_of(args.features)
    X = np.random.default_rng(0).normal(size=(args.rows, INPUTS))
    y = np.sin(X[:, 0])
    block = basis.host_features(X[: min(len(X), BLOCK_BYTES // (8 * args.features))])
    times: dict[str, list[float]] = {"dsyrk alone": [], "pass": [], "pass, float32 features": []}
    for _ in range(args.repeats):
        times["dsyrk alone"].append(blas_seconds(block, args.rows))
        times["pass"].append(pass_seconds(basis, X, y, False))
        times["pass, float32 features"].append(pass_seconds(basis, X, y, True))
    alone = median(times["dsyrk alone"])
    ratios = {name: median(each) / alone for name, each in times.items()}
    table = [
        [name, duration(median(each)), f"{ratios[name]:.2f}", f"{args.rows / median(each):,.0f}"]
        for name, each in times.items()
    ]
    print_table(["", "time", "times dsyrk", "rows/s"], table, f"Medians of {args.repeats}; {args.rows:,} rows.")
    memory, context = [], multiprocessing.get_context("spawn")
    for n in args.memory_rows:
        queue: multiprocessing.Queue = context.Queue()
        process = context.Process(target=peak_memory, args=(n, args.features, queue))
        process.start()
        memory.append(queue.get())
        process.join()
    rows = [
        [f"{n:,}", f"{peak:.3f} GiB", duration(seconds)]
        for n, (peak, seconds) in zip(args.memory_rows, memory, strict=True)
    ]
    print_table(["rows", "peak memory", "time, with generating"], rows, "")
    claims = {
        f"pass at most 1.6 times dsyrk: {ratios['pass']:.2f}": ratios["pass"] <= 1.6,
        f"with float32 features 1.25: {ratios['pass, float32 features']:.2f}": ratios["pass, float32 features"] <= 1.25,
        "memory flat within 10%": max(memory)[0] <= 1.1 * min(memory)[0],
    }
    print_conclusion(claims, args.smoke)


if __name__ == "__main__":
    main()
