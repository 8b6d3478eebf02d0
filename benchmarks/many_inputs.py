"""Twenty inputs of which three matter: default lengthscale priors against half-Cauchy inverse lengthscales.

``y = sin 3x₀ + x₁² + x₀x₂`` and noise 0.05, inputs uniform on [−1, 1]. The claims: random features drawn from the
default prior explain little; shrinkage halves the error of an exact GP on few rows; and bases drawn from its
posterior, or inducing points, carry what it found to all rows.

    python benchmarks/many_inputs.py            # about five minutes on 2 cores
    python benchmarks/many_inputs.py --smoke
"""

from __future__ import annotations

import argparse
import time
import warnings

import jax
import numpy as np
import numpyro
from common import print_conclusion, print_header, print_table
from numpyro.infer import MCMC, NUTS

import ppl_sgp as sgp

INPUTS, NOISE = 20, 0.05


def truth(X: np.ndarray) -> np.ndarray:
    return np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + X[:, 0] * X[:, 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--few", type=int, default=200, help="rows of exact GPs")
    parser.add_argument("--features", type=int, default=600)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--draws", type=int, default=200)
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.few, args.features, args.points, args.draws = 60, 30, 20, 10, 5
    numpyro.enable_x64()
    warnings.simplefilter("ignore", UserWarning)  # of features that carry no weight, which is the point
    print_header("Many inputs, few that matter", {k: v for k, v in vars(args).items() if k != "smoke"})
    rng, key = np.random.default_rng(args.seed), jax.random.key(args.seed)
    X, X_new = rng.uniform(-1, 1, (args.rows, INPUTS)), rng.uniform(-1, 1, (500, INPUTS))
    y = truth(X) + NOISE * rng.standard_normal(args.rows)
    level, few = y.mean(), slice(args.few)
    sparse, table, errors = sgp.models.SparseAxes(), [], {}

    def record(name, rows, model, draws, data, start):
        posterior = sgp.posterior(model, draws, data)
        error = posterior.predict(X_new).mean + level - truth(X_new)
        errors[name] = float(np.sqrt(np.mean(error**2)) / truth(X_new).std())
        slopes = sgp.input_relevance(posterior, X[:100])["slope"].sel(quantile=0.5).values
        table.append([name, rows, errors[name], slopes[:3].min(), slopes[3:].max(), time.perf_counter() - start])

    def fitted(name, model, data, init=None):
        start = time.perf_counter()
        fit = sgp.fit_evidence(model, data, init=init)
        record(name, data.num_rows, model, fit, data, start)
        return fit

    default_basis = sgp.FourierBasis.from_data(key, X, args.features)
    fitted("fourier_gp, default", sgp.models.fourier_gp(), sgp.sufficient_statistics(default_basis, X, y - level))
    rows, model = sgp.rows(X[few], y[few] - level), sgp.models.exact_gp(lengthscale=sparse)
    fitted("exact_gp, default", sgp.models.exact_gp(), rows)
    fit = fitted("exact_gp, SparseAxes", model, rows)
    start = time.perf_counter()
    kernel = NUTS(model, init_strategy=fit.init_strategy(), max_tree_depth=7)
    mcmc = MCMC(kernel, num_warmup=args.draws, num_samples=args.draws, progress_bar=False)
    mcmc.run(key, rows)
    record("exact_gp, SparseAxes, NUTS", args.few, model, mcmc, rows, start)
    drawn = sgp.FourierBasis.from_draws(key, X, mcmc.get_samples(), args.features)
    stats = sgp.sufficient_statistics(drawn, X, y - level)
    fitted("fourier_gp, basis from these draws", sgp.models.fourier_gp(lengthscale=sparse), stats, fit.values)
    found = sgp.SquaredExponential(fit.values["lengthscale"], fit.values["amplitude"])
    Z = sgp.select_inducing_points(key, X, found, args.points).points
    whole = sgp.rows(X, y - level)
    fitted("inducing_gp, SparseAxes", sgp.models.inducing_gp(Z, lengthscale=sparse), whole, fit.values)
    print_table(
        ["model", "rows", "relative RMSE", "slope, least of 3", "most of 17", "seconds"],
        table,
        "Root mean square error of f at 500 new rows over its standard deviation; change of f by a standard deviation "
        "of an input.",
    )
    best = max(errors["fourier_gp, basis from these draws"], errors["inducing_gp, SparseAxes"])
    outcomes = {
        "features of the default prior explain little": errors["fourier_gp, default"] > 0.8,
        "shrinkage halves the error of an exact GP": errors["exact_gp, SparseAxes"] < 0.6 * errors["exact_gp, default"],
        "all rows: relative RMSE below 0.02": best < 0.02,
    }
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
