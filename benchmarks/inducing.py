"""The collapsed bound with inducing points, value and gradient: its arithmetic, its memory, and GPflow's SGPR.

(a) SE-ARD, 36,000 x 8 rows, m = 500: value and gradient in θ and Z against one SciPy ``dsyrk`` of n x m, in one run;
(b) peak memory of a process that evaluates rows read by chunks, for 36,000 and for 2,000,000 of them;
(c) GPflow's SGPR at the same θ, Z and jitter, in an environment of its own (GPflow needs NumPy 1).

    python benchmarks/inducing.py                                   # minutes; nothing else should compute meanwhile
    python benchmarks/inducing.py --gpflow ENVIRONMENT/bin/python   # with (c): pip install gpflow tensorflow-cpu
    python benchmarks/inducing.py --smoke                           # seconds, meaningless times
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from common import duration, interleaved_medians, peak_gib, print_conclusion, print_header, print_table, timed
from scipy.linalg import blas

import ppl_sgp as sgp
from ppl_sgp.evidence.inducing import JITTER

D, CHUNK = 8, 10_000
#: Targets: in units of one dsyrk; growth of memory; relative difference from GPflow; times as fast.
MOST_SYRKS, MOST_GROWTH, AGREEMENT, SPEED = 6.0, 1.1, 1e-6, 4.0

GPFLOW = """
import sys, time
import gpflow, numpy as np, tensorflow as tf
data = np.load(sys.argv[1])
gpflow.config.set_default_jitter(float(data["jitter"]))
kernel = gpflow.kernels.SquaredExponential(variance=1.0, lengthscales=data["lengthscale"])
model = gpflow.models.SGPR((data["X"], data["y"][:, None]), kernel, data["Z"], noise_variance=float(data["noise"]) ** 2)
@tf.function
def evaluate():
    with tf.GradientTape() as tape:
        value = model.elbo()
    return value, tape.gradient(value, model.trainable_variables)
evaluate()
seconds = []
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    value, gradients = evaluate()
    value = float(value)
    seconds.append(time.perf_counter() - start)
print(repr(value), sorted(seconds)[len(seconds) // 2])
"""


class Generated:
    """Rows made anew each time they are read."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows

    def __iter__(self):
        for first in range(0, self.num_rows, CHUNK):
            yield problem(first, min(CHUNK, self.num_rows - first))


def problem(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    return X, np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.5 * X[:, 2] + 0.1 * rng.standard_normal(n)


def bound(parameters: Any, rows: Any) -> jax.Array:
    lengthscale, amplitude, noise_scale, Z = parameters
    return sgp.inducing_evidence(rows, sgp.SquaredExponential(lengthscale, amplitude), Z, noise_scale)


evaluate = jax.jit(jax.value_and_grad(bound))


def start(Z: np.ndarray) -> tuple[Any, ...]:
    return jnp.full(D, 2.0), jnp.asarray(1.0), jnp.asarray(0.2), jnp.asarray(Z)


def against_dsyrk(args: argparse.Namespace, seconds: dict[str, float]) -> dict[str, bool]:
    X, y = problem(0, args.rows)
    rows = jax.device_put(sgp.rows(X, y))
    parameters = start(X[: args.points])
    V = np.asfortranarray(np.random.default_rng(1).standard_normal((args.points, args.rows)))
    functions = {
        "dsyrk": lambda: blas.dsyrk(1.0, V),
        "value and gradient": lambda: evaluate(parameters, rows),
    }
    seconds |= interleaved_medians(functions, args.repeats)
    ratio = seconds["value and gradient"] / seconds["dsyrk"]
    table = [[name, duration(value), value / seconds["dsyrk"]] for name, value in seconds.items()]
    print_table(["", "time", "in dsyrk"], table)
    return {f"value and gradient in {MOST_SYRKS:g} dsyrk: {ratio:.2f}": ratio <= MOST_SYRKS}


def memory_of(num_rows: int, points: int) -> None:
    """In a process of its own: one evaluation of rows read by chunks."""
    rows = sgp.rows(Generated(num_rows))
    seconds, _ = timed(evaluate, start(problem(0, points)[0]), rows)
    print(peak_gib(), seconds)


def flat_memory(args: argparse.Namespace) -> dict[str, bool]:
    peaks, table = [], []
    for num_rows in args.chunked_rows:
        command = [sys.executable, __file__, "--memory-of", str(num_rows), "--points", str(args.chunked_points)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        peaks.append(float(printed[0]))
        table.append([num_rows, args.chunked_points, float(printed[0]), duration(float(printed[1]))])
    note = "Outputs are kept in memory, 8 bytes a row; the time includes compilation."
    print_table(["rows", "points", "peak GiB", "value and gradient"], table, note)
    growth = peaks[-1] / peaks[0]
    return {f"peak memory grows by less than {MOST_GROWTH:g}: {growth:.3f}": growth < MOST_GROWTH}


def against_gpflow(args: argparse.Namespace, seconds: dict[str, float]) -> dict[str, bool]:
    X, y = problem(0, args.rows)
    parameters = start(X[: args.points])
    lengthscale, _, noise_scale, Z = parameters
    value = float(evaluate(parameters, sgp.rows(X, y))[0])
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, X=X, y=y, Z=Z, lengthscale=lengthscale, noise=noise_scale, jitter=JITTER[0])
        done = subprocess.run([args.gpflow, "-c", GPFLOW, str(data), str(args.repeats)], capture_output=True, text=True)
    if done.returncode:
        print(f"\nGPflow is left out: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
        return {}
    theirs, time = map(float, done.stdout.split()[-2:])
    difference, ratio = abs(value - theirs) / abs(theirs), time / seconds["value and gradient"]
    table = [["ours", value, duration(seconds["value and gradient"])], ["GPflow", theirs, duration(time)]]
    print_table(["", "bound", "value and gradient"], table)
    return {
        f"the bound is GPflow's to {AGREEMENT:g}: {difference:.1e}": difference < AGREEMENT,
        f"{SPEED:g} times as fast as GPflow: {ratio:.2f}": ratio >= SPEED,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=36_000)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--chunked-rows", type=int, nargs="+", default=[36_000, 2_000_000])
    parser.add_argument("--chunked-points", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--gpflow", default=sys.executable, help="the interpreter of an environment with GPflow")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    numpyro.enable_x64()
    if args.memory_of:
        memory_of(args.memory_of, args.points)
        return
    if args.smoke:
        args.rows, args.points, args.chunked_rows, args.chunked_points, args.repeats = 2_000, 50, [5_000, 50_000], 20, 1
    print_header("Inducing points", {"rows": args.rows, "points": args.points, "input_dim": D, "repeats": args.repeats})
    seconds: dict[str, float] = {}
    outcomes = against_dsyrk(args, seconds) | flat_memory(args) | against_gpflow(args, seconds)
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
