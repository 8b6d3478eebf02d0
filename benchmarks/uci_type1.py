"""Type-I inference over a thousand free variances on UCI regression sets: Evans (2022), section 5.4.2 and table 5.1.

Protocol: published splits; inputs and y standardised on the training rows; a squared exponential with a lengthscale an
input, its hyperparameters by maximum likelihood of an exact GP on at most 1,000 random rows and frozen from then on;
m grid-structured eigenfunctions on 10 points an input (over the range of the training rows, 5% wider); prior variances
and noise free, with the hyper-priors of `models.reweighted_basis` around the frozen values. NUTS for type-I,
`fit_evidence` for type-II, both on the same statistics. RMSE and log density are in the units of the data; ± is the
standard deviation over splits.

Data: a folder with NAME/data.csv.gz (y in the last column) and NAME/test_mask.csv.gz (a column a split, 1 = test row).

    python benchmarks/uci_type1.py --data DIRECTORY    # hours on 2 cores
    python benchmarks/uci_type1.py --data DIRECTORY --sets yacht energy --csv results.csv
    python benchmarks/uci_type1.py --smoke                           # generated rows, seconds
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from common import print_conclusion, print_header, print_table, verdict
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from scipy.optimize import minimize

import ppl_sgp as sgp
from ppl_sgp.scales import log_normal_by_mode

#: Table 5.1: RMSE of GP-GRIEF-I and of Yang et al. (2015), each with its standard deviation over ten splits.
PUBLISHED = {
    "challenger": ((0.519, 0.261), (0.63, 0.26)),
    "fertility": ((0.166, 0.051), (0.21, 0.05)),
    "concreteslump": ((3.470, 1.712), (4.72, 2.42)),
    "autos": ((0.111, 0.036), (0.18, 0.07)),
    "breastcancer": ((30.568, 3.340), (35.0, 4.0)),
    "yacht": ((0.120, 0.070), (0.16, 0.11)),
    "autompg": ((2.563, 0.369), (2.63, 0.38)),
    "housing": ((2.887, 0.489), (2.91, 0.54)),
    "forest": ((1.384, 0.139), (1.39, 0.16)),
    "energy": ((0.461, 0.064), (0.46, 0.07)),
    "concrete": ((5.156, 0.766), (4.95, 0.77)),
    "solar": ((0.809, 0.193), (0.83, 0.20)),
    "wine": ((0.477, 0.047), (0.47, 0.08)),
    "pumadyn32nm": ((0.212, 0.004), (0.20, 0.00)),
    "elevators": ((0.097, 0.001), (0.090, 0.001)),
    "kin40k": ((0.206, 0.004), (0.28, 0.01)),
}
PREDICTED_DRAWS = 200  # thinned from the chains


def read(folder: Path | None, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d + 1) and the test mask (n, splits)."""
    if folder is None:
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(60, 3))
        y = np.sin(4 * X[:, :1]) + X[:, 1:2] + 0.1 * rng.standard_normal((60, 1))
        return np.hstack([X, y]), rng.uniform(size=(60, 2)) < 0.2
    arrays = []
    for file in ("data.csv.gz", "test_mask.csv.gz"):
        with gzip.open(folder / name / file, "rt") as lines:
            arrays.append(np.loadtxt(lines, delimiter=",", ndmin=2))
    return arrays[0], arrays[1] > 0


def exact_gp_hyperparameters(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Lengthscales, amplitude and noise scale that maximise the likelihood of an exact GP. O(n³) a step."""

    def negative(log_theta):
        theta = jnp.exp(log_theta)
        K = sgp.SquaredExponential(theta[:-2], theta[-2])(X) + theta[-1] ** 2 * jnp.eye(len(y))
        L = jnp.linalg.cholesky(K)
        alpha = jax.scipy.linalg.solve_triangular(L, y, lower=True)
        return 0.5 * alpha @ alpha + jnp.sum(jnp.log(jnp.diagonal(L)))

    d = X.shape[1]
    evaluate = jax.jit(jax.value_and_grad(negative))
    start = np.log(np.r_[np.full(d, np.sqrt(d)), 1.0, 0.3])
    bounds = [(-4.0, 5.0)] * d + [(-4.0, 4.0), (-5.0, 2.0)]
    end = minimize(lambda t: tuple(map(np.asarray, evaluate(t))), start, jac=True, bounds=bounds, method="L-BFGS-B")
    theta = np.exp(end.x)
    return theta[:-2], float(theta[-2]), float(theta[-1])


def one_split(X: np.ndarray, y: np.ndarray, test: np.ndarray, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    started = time.perf_counter()
    rng = np.random.default_rng(seed)
    mean, spread = X[~test].mean(axis=0), X[~test].std(axis=0)
    X = (X - mean) / np.where(spread > 1e-12, spread, 1.0)
    centre, unit = y[~test].mean(), y[~test].std()
    y = (y - centre) / unit
    rows = rng.permutation(np.flatnonzero(~test))[:1000]
    lengthscale, amplitude, noise = exact_gp_hyperparameters(X[rows], y[rows])
    lower, upper = X[~test].min(axis=0), X[~test].max(axis=0)
    margin = 0.05 * (upper - lower)
    kernel = sgp.SquaredExponential(lengthscale)
    basis = sgp.GridEigenBasis.from_kernel(kernel, (lower - margin, upper + margin), args.features)
    stats = sgp.sufficient_statistics(basis, X[~test], y[~test])
    stats = stats.rotate() if args.tier == "rotated" else stats
    model = sgp.models.reweighted_basis(
        scale=log_normal_by_mode(1.0, 100.0, amplitude).expand([stats.num_features]).to_event(1),
        noise_scale=log_normal_by_mode(noise**2, 0.04),
    )
    fit = sgp.fit_evidence(model, stats, max_iterations=2000)
    nuts = NUTS(model, init_strategy=fit.init_strategy())
    mcmc = MCMC(
        nuts,
        num_warmup=args.warmup,
        num_samples=args.draws,
        num_chains=args.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), stats, extra_fields=("diverging", "num_steps"))
    by_chain = mcmc.get_samples(group_by_chain=True)
    samples = {
        name: values[:: max(1, args.chains * args.draws // PREDICTED_DRAWS)]
        for name, values in mcmc.get_samples().items()
    }
    result = {"type-I": samples, "type-II": fit.samples}
    out: dict[str, Any] = {
        "r_hat": max(float(np.max(split_gelman_rubin(np.asarray(v)))) for v in by_chain.values()),
        "divergences": int(mcmc.get_extra_fields()["diverging"].sum()),
        "steps": float(np.mean(mcmc.get_extra_fields()["num_steps"])),
        "tier": model.describe(stats).split(" an ")[0],
    }
    for name, draws in result.items():
        prediction = sgp.predict(model, draws, stats, X[test])
        out[f"{name} rmse"] = unit * float(np.sqrt(np.mean((prediction.mean - y[test]) ** 2)))
        out[f"{name} log density"] = float(np.mean(prediction.log_density(y[test]))) - float(np.log(unit))
    return out | {"seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=list(PUBLISHED))
    parser.add_argument("--splits", type=int, help="default: all 10 below 2,000 rows, else 3")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--tier", choices=("rotated", "plain"), default="rotated")
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, help="write a row a split here")
    args = parser.parse_args()
    if args.smoke:
        args.data, args.sets, args.features, args.warmup, args.draws, args.chains = None, ["yacht"], 20, 50, 50, 2
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    numpyro.enable_x64()
    warnings.filterwarnings("ignore", message="GridEigenBasis: .* outside the grid")
    print_header("Type-I inference on UCI sets", {k: v for k, v in vars(args).items() if k not in ("smoke", "data")})
    rows, table, outcomes = [], [], {}
    for name in args.sets:
        data, masks = read(args.data, name)
        X, y = data[:, :-1], data[:, -1]
        splits = args.splits or (masks.shape[1] if len(y) < 2000 else 3)
        done = [one_split(X, y, masks[:, s], args, args.seed + s) for s in range(splits)]
        rows += [{"set": name, "split": s, **one} for s, one in enumerate(done)]
        column = {key: np.array([one[key] for one in done]) for key in done[0] if key != "tier"}
        best, deviation = min(PUBLISHED[name])
        rmse = column["type-I rmse"]
        good = bool(rmse.mean() <= best + deviation / 2)
        dense = bool(column["type-I log density"].mean() >= column["type-II log density"].mean())
        outcomes[f"{name}: RMSE no worse than the better column plus half its standard deviation"] = good
        outcomes[f"{name}: log density of type-I at least that of type-II"] = dense
        outcomes[f"{name}: R-hat below 1.01"] = bool(column["r_hat"].max() < 1.01)
        table.append(
            [
                f"{name} ({len(y):,} x {X.shape[1]}, {splits} splits)",
                f"{rmse.mean():.3f}±{rmse.std():.3f}",
                f"{column['type-II rmse'].mean():.3f}",
                *(f"{m:g}±{s:g}" for m, s in PUBLISHED[name]),
                f"{column['type-I log density'].mean():.3f}",
                f"{column['type-II log density'].mean():.3f}",
                f"{column['seconds'].mean():.0f} s",
                f"{column['r_hat'].max():.3f}",
                int(column["divergences"].sum()),
                f"{verdict(good, args.smoke)}, {verdict(dense, args.smoke)}",
            ]
        )
        print(f"{name}: {table[-1]}", flush=True)
        if args.csv:
            with open(args.csv, "w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
    columns = ["set", "type-I RMSE", "type-II", "GRIEF-I (thesis)", "Yang et al.", "log density", "type-II's"]
    print_table([*columns, "a split", "worst R-hat", "divergent", "RMSE, density"], table)
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
