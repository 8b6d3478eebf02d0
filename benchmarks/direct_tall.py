"""DIRECT on a generated set of 2,049,280 rows and 11 inputs, b = 2,000 features with 15 levels, end to end.

The size of `electric` in Evans (2022), section 7.5.3. Rows are generated a chunk at a time, so that memory is that of
the method; features are evaluated in float32. Timed: generating, the pass over the rows, the fit, predictions of
200,000 new rows. Targets: pass and fit in under 3 minutes, everything in under 2 GB.

    python benchmarks/direct_tall.py
    python benchmarks/direct_tall.py --smoke
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import duration, peak_gib, print_conclusion, print_header, print_table
from generated import INPUTS, NOISE, ROWS, chunks, rows

import ppl_sgp as sgp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="seconds")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--new-rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=2000)
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.new_rows, args.features = 5000, 1000, 40
    numpyro.enable_x64()
    print_header("DIRECT on two million rows", {k: v for k, v in vars(args).items() if k != "smoke"})
    kernel = sgp.SquaredExponential(2.5)
    basis = sgp.FourierBasis.sample(jax.random.key(0), kernel, args.features, INPUTS)
    scale = np.asarray(basis.weight_prior(kernel).scale)
    begun = time.perf_counter()
    for _ in chunks(args.rows):
        pass
    generated = time.perf_counter() - begun
    begun = time.perf_counter()
    stats = sgp.sufficient_statistics(basis, chunks(args.rows), float32_features=True)
    passed = time.perf_counter() - begun
    begun = time.perf_counter()
    prior = sgp.DiscreteRelaxation(dist.Normal(np.zeros_like(scale), scale))
    result = sgp.direct.fit(stats, prior, noise_scale=NOISE, tolerance=1e-2)
    fitted = time.perf_counter() - begun
    begun = time.perf_counter()
    X, f = rows(10**6, args.new_rows)
    prediction = result.predict(X, max_memory=2e8)
    rmse = float(np.sqrt(np.mean((prediction.mean - f) ** 2)))
    predicted = time.perf_counter() - begun
    peak = peak_gib()
    total = passed + fitted
    table = [
        ["generating rows (within the pass)", duration(generated)],
        ["pass, with generating", duration(passed)],
        ["fit", f"{duration(fitted)}, {result.iterations} iterations, converged: {result.converged}"],
        [f"prediction of {args.new_rows:,} rows", duration(predicted)],
        ["pass and fit", duration(total)],
        ["peak memory", f"{peak:.2f} GiB"],
        ["RMSE to the noise-free function, whose standard deviation is", f"{rmse:.4f}, {f.std():.3f}"],
        ["sparsity", f"{100 * result.sparsity:.0f}%"],
    ]
    print_table(["step", ""], table, "")
    claims = {"pass and fit in under 3 minutes": total < 180, "in under 2 GB": peak * 2**30 < 2e9}
    print_conclusion(claims, args.smoke)


if __name__ == "__main__":
    main()
