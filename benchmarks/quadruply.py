"""Quadruply stochastic GPs: held-out scores on UCI sets, and steps whose time depends on neither rows nor functions.

Scores: split 0, inputs and y standardised on the training rows; random Fourier features of the squared exponential of
an exact GP on 1,000 rows; noise and prior by empirical Bayes. Printed next to the thesis's (Evans 2022, tables 6.2 and
6.3: m = 100,000 and 1e5 steps of 10,000 functions; Phi = S = K_XX and 3,000).

Steps: the median time of a step at n from 1e4 to 1e7 and m from 1e3 to 1e6, batches and sets of one size, interleaved;
float32 inputs of n rows are held in memory.

    python benchmarks/quadruply.py --data DIRECTORY
    python benchmarks/quadruply.py --smoke

Data as for uci_type1.py. JAX_ENABLE_X64=0 halves the time of a step; scores are the same to three digits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import duration, print_conclusion, print_header, print_table
from uci_files import read

import ppl_sgp as sgp
from ppl_sgp.stochastic import quadruply_setup as setup
from ppl_sgp.stochastic import row_batches
from ppl_sgp.stochastic._quadruply import QuadruplyStep
from ppl_sgp.stochastic.quadruply_step import Rates

#: RMSE and mean negative log density of the thesis: QSGP-0 of table 6.2, of 6.3, and its SVGP of table 6.2.
PRINTED = {
    "kin40k": (0.174, 0.135, 0.154, -0.348, 0.247, 0.055),
    "keggdirected": (0.135, -0.821, 0.124, -0.554, 0.124, -0.953),
}


def scores(args: argparse.Namespace, name: str) -> list[list[Any]]:
    """A row for each quarter of the steps."""
    X, y, masks = read(args.data, name)
    test = masks[:, 0]
    unit = X[~test].std(axis=0)
    X = (X - X[~test].mean(axis=0)) / np.where(unit > 0, unit, 1.0)
    y = (y - y[~test].mean()) / y[~test].std()
    start, fit, rows = time.perf_counter(), None, []
    options = {"num_functions": args.functions, "num_columns": args.columns, "empirical_bayes": True}
    batches = row_batches(X[~test], y[~test], 1)
    kernel, noise_scale = sgp.stochastic.starting_gp(jax.random.key(0), batches, num_rows=100 if args.smoke else 1000)
    basis = sgp.FourierBasis.sample(jax.random.key(1), kernel, args.features, X.shape[1])
    for _ in range(4):
        fit = sgp.stochastic.quadruply(
            jax.random.key(2),
            basis,
            X[~test],
            y[~test],
            prior=basis.weight_prior(kernel),
            noise_scale=noise_scale,
            num_steps=args.steps // 4,
            batch_size=min(args.batch, int(np.sum(~test))),
            previous=fit,
            progress=args.progress,
            **options,
        )
        prediction = fit.predict(X[test])
        rmse = float(np.sqrt(np.mean((prediction.mean - y[test]) ** 2)))
        density = float(np.mean(prediction.log_density(y[test])))
        seconds = time.perf_counter() - start
        rows.append([name, fit.training.steps, duration(seconds), rmse, density, fit.posterior.noise_scale, fit.bound])
        print(rows[-1], flush=True)
    return rows


def stepper(n: int, m: int, args: argparse.Namespace) -> Any:
    """A function that makes one step."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 4), dtype=np.float32)
    batches = row_batches(X, X[:, 0] - 0.5, args.step_batch)
    kernel = sgp.SquaredExponential(0.5)
    basis = sgp.FourierBasis(rng.normal(size=(m // 2, 4)), np.zeros(m // 2), np.full(4, 0.5), (kernel,))
    prior = sgp.DiagonalPrior(np.full(m, np.sqrt(2 / m)))
    problem, hyper = setup.problem_of(jax.random.key(0), basis, batches, None, prior, None, 0.1, args.step_batch, ())
    step = QuadruplyStep(problem, args.step_functions, Rates(0.1, 0.0, 0))
    state, count = setup.first_state(problem, hyper, 0), 0

    def make() -> jax.Array:
        nonlocal state, count
        key = jax.random.fold_in(jax.random.key(1), count)
        state, estimate = step(state, key, batches.draw(key))
        count += 1
        return jnp.asarray(estimate)

    return make


def step_times(args: argparse.Namespace) -> tuple[list[list[Any]], float, float]:
    """Median times of interleaved steps, and the largest ratios along n and along m."""
    rows_of, functions_of = [10_000, 100_000, 1_000_000, 10_000_000], [1000, 10_000, 100_000, 1_000_000]
    if args.smoke:
        rows_of, functions_of = [400, 1600], [100, 400]
    cases = {("n", n): stepper(n, functions_of[1], args) for n in rows_of}
    cases |= {("m", m): stepper(rows_of[1], m, args) for m in functions_of}
    seconds: dict[Any, list[float]] = {case: [] for case in cases}
    for make in cases.values():
        make().block_until_ready()
    for _ in range(args.repeats):
        for case, make in cases.items():
            start = time.perf_counter()
            make().block_until_ready()
            seconds[case].append(time.perf_counter() - start)
    median = {case: statistics.median(values) for case, values in seconds.items()}
    fixed = {"n": f"m = {functions_of[1]:,}", "m": f"n = {rows_of[1]:,}"}
    table = [[f"{axis} = {size:,}", fixed[axis], duration(value)] for (axis, size), value in median.items()]
    ratios = [max(along) / min(along) for along in ([v for (a, _), v in median.items() if a == axis] for axis in "nm")]
    return table, ratios[0], ratios[1]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory of the sets")
    parser.add_argument("--sets", nargs="+", default=["kin40k", "keggdirected"])
    parser.add_argument("--features", type=int, default=20_000)
    parser.add_argument("--functions", type=int, default=2000)
    parser.add_argument("--columns", type=int, default=0)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--step-functions", type=int, default=500)
    parser.add_argument("--step-batch", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=51)
    parser.add_argument("--only", choices=["scores", "steps"])
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, generated rows")
    args = parser.parse_args()
    if args.smoke:
        args.data, args.sets, args.features, args.functions, args.steps = None, ["generated"], 40, 20, 40
        args.batch, args.step_functions, args.step_batch, args.repeats = 20, 20, 50, 3
    elif args.data is None and args.only != "steps":
        parser.error("--data is needed, or --smoke")
    print_header("Quadruply stochastic GPs", vars(args))
    outcomes = {}
    if args.only != "steps":
        rows = [row for name in args.sets for row in scores(args, name)]
        print_table(["set", "steps", "time", "RMSE", "log density", "noise", "bound"], rows)
        known = [[name, *PRINTED[name]] for name in args.sets if name in PRINTED]
        columns = ["set", "RMSE 6.2", "MNLP 6.2", "RMSE 6.3", "MNLP 6.3", "RMSE SVGP", "MNLP SVGP"]
        print_table(columns, known, "as printed in the thesis; log densities above are minus MNLP")
        for name in args.sets:
            last = [row for row in rows if row[0] == name][-1]
            if name in PRINTED:
                outcomes[f"{name}: RMSE at most that of table 6.2 ({PRINTED[name][0]})"] = last[3] <= PRINTED[name][0]
                outcomes[f"{name}: log density above that of the table's SVGP"] = last[4] > -PRINTED[name][5]
    if args.only != "scores":
        table, along_n, along_m = step_times(args)
        print_table(["size", "fixed", "a step"], table, f"largest ratio along n {along_n:.2f}, along m {along_m:.2f}")
        outcomes["steps flat in n within 20%"] = along_n <= 1.2
        outcomes["steps flat in m within 20%"] = along_m <= 1.2
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
