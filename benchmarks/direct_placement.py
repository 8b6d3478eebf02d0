"""Discrete weights beside Gaussian ones: levels stated for the given features, for rotated ones, and placed.

Fourier features of a squared exponential with a lengthscale an input, amplitude and noise of an exact GP on at most
1,000 rows (maximum a posteriori); y and inputs standardised on the training rows; 15 levels a weight. Mean negative log
density of held-out rows in units of the standard deviation of y (`gaussian`: the same features with Gaussian weights),
share of held-out rows in the central 90% interval, RMSE, and that of the most probable levels with features of 8 bits.
`noise`: the noise scale found among 13 from a tenth to ten times the given one, with a flat prior, over the given one.

    python benchmarks/direct_placement.py --data DIRECTORY --sets autos concreteslump yacht
    python benchmarks/direct_placement.py --smoke
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from common import print_header, print_table
from uci_files import read
from uci_protocol import exact_gp_hyperparameters

import ppl_sgp as sgp

SHORTEST = 0.01


def standardised(X: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    spread = X[~test].std(axis=0)
    varying = spread > 1e-12
    X = (X[:, varying] - X[~test][:, varying].mean(axis=0)) / spread[varying]
    return X, (y - y[~test].mean()) / y[~test].std()


def gaussian(stats: Any, prior: Any, noise: float, X: np.ndarray, y: np.ndarray) -> list[str]:
    """Scores of Gaussian weights, from rotated statistics: their posterior factorises."""
    rotated = stats.rotate(prior)
    variance = 1 / (1 + rotated.moments.gram / noise**2)
    Phi = rotated.basis.host_features(X)
    mean, total = Phi @ (variance * rotated.moments.feature_output) / noise**2, Phi**2 @ variance + noise**2
    density = -0.5 * (np.log(2 * np.pi * total) + (y - mean) ** 2 / total)
    inside = np.mean((y - mean) ** 2 < 1.6448536**2 * total)
    return [f"{-density.mean():.3f}", f"{inside:.2f}", f"{np.sqrt(np.mean((y - mean) ** 2)):.3f}", "", ""]


def discrete(arguments: tuple[Any, Any], noise: float, X: np.ndarray, y: np.ndarray) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights on their outermost level: this is what is measured
        fit = sgp.direct.fit(*arguments, noise_scale=noise, tolerance=1e-3)
        scales = noise * np.geomspace(0.1, 10, 13)
        free = sgp.direct.fit(*arguments, noise_scale=(scales, np.zeros(13)), tolerance=1e-3)
    prediction = fit.predict(X)
    scores = sgp.calibrate_regression(prediction, y, levels=[0.9])
    codes = fit.quantize().predict(X, feature_bits=8)
    return [
        f"{-float(scores['mean_log_density']):.3f}",
        f"{float(scores['coverage'][0]):.2f}",
        f"{float(scores['rmse']):.3f}",
        f"{np.sqrt(np.mean((codes - y) ** 2)):.3f}",
        f"{free.noise_variance**0.5 / noise:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="generated rows, seconds")
    parser.add_argument("--data", type=Path, help="folder of the data sets, as for uci_type1.py")
    parser.add_argument("--sets", nargs="+", default=["autos", "concreteslump", "yacht"])
    parser.add_argument("--features", type=int, nargs="+", default=[100, 500, 2000])
    args = parser.parse_args()
    if args.smoke:
        args.data, args.sets, args.features = None, ["generated"], [40]
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    numpyro.enable_x64()
    print_header("Levels stated and placed", {"sets": args.sets, "features": args.features})
    table = []
    for name in args.sets:
        X, y, masks = read(args.data, name)
        test = masks[:, 0]
        X, y = standardised(X, y, test)
        rows, d = np.flatnonzero(~test)[:1000], X.shape[1]
        lengthscale, amplitude, noise = exact_gp_hyperparameters(X[rows], y[rows], np.full(d, SHORTEST), prior=True)
        kernel = sgp.SquaredExponential(lengthscale, amplitude)
        for m in args.features:
            basis = sgp.FourierBasis.sample(jax.random.key(0), kernel, m, d)
            stats, prior = sgp.sufficient_statistics(basis, X[~test], y[~test]), basis.weight_prior(kernel)
            ways = {
                "stated": (stats, sgp.DiscreteRelaxation(dist.Normal(0.0, prior.scale))),
                "stated, rotated": (stats.rotate(prior), sgp.DiscreteRelaxation(dist.Normal(0.0, 1.0))),
                "placed": (stats, prior),
            }
            title = f"{name} ({np.sum(~test)} x {d}, noise {noise:.3f})"
            table.append([title, m, "gaussian", *gaussian(stats, prior, noise, X[test], y[test])])
            table += [[title, m, way, *discrete(each, noise, X[test], y[test])] for way, each in ways.items()]
            print(*table[-4:], sep="\n", flush=True)
            jax.clear_caches()
    print_table(["set", "m", "weights", "-log density", "in 90%", "RMSE", "codes", "noise"], table, "")


if __name__ == "__main__":
    main()
