"""Relevance vectors, type-II, against scikit-learn's ARDRegression and the RVM packages on PyPI.

Split 0 of each set; inputs and y standardised on the training rows; all training rows as centres up to 2,000, else
2,000 centres by k-means (ours alone: the peers need a row a centre); one lengthscale for all, chosen by the evidence
of our own fit among 0.5, 1 and 2 times √d. Ours is timed from the rows to the fitted result, the pass over the data
included, peers from rows (or the same kernel matrix) to fitted model. Times of one fit at the chosen lengthscale.

    pip install scikit-learn fastrvm sklearn-rvm          # peers that are missing are left out
    OPENBLAS_NUM_THREADS=1 python benchmarks/rvm.py --data DIRECTORY
    python benchmarks/rvm.py --smoke
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import duration, print_conclusion, print_header, print_table
from uci_protocol import read

import ppl_sgp as sgp

SETS = ("yacht", "concrete", "wine", "kin40k")


def ours(basis, X, y):
    fit = sgp.fit_relevance_vectors(sgp.sufficient_statistics(basis, X, y))
    return fit, len(fit.relevant)


def ard_regression(basis, X, y):
    from sklearn.linear_model import ARDRegression

    model = ARDRegression().fit(basis.host_features(X)[:, :-1], y)
    return lambda X: model.predict(basis.host_features(X)[:, :-1], return_std=True), int(np.sum(model.coef_ != 0))


def fastrvm(basis, X, y):
    from fastrvm import RVR

    gamma = 0.5 / float(basis.kernel.lengthscale) ** 2
    model = RVR(kernel="rbf", gamma=gamma).fit(X, y)
    return lambda X: model.predict(X, return_std=True), len(model.relevance_)


def sklearn_rvm(basis, X, y):
    from sklearn_rvm import EMRVR

    model = EMRVR(kernel="rbf", gamma=0.5 / float(basis.kernel.lengthscale) ** 2)
    model.fit(X, y)  # returns None
    return lambda X: model.predict(X, return_std=True), len(model.relevance_)


PEERS = {"ARDRegression": ard_regression, "fastrvm": fastrvm, "sklearn-rvm": sklearn_rvm}
#: Rows beyond which a peer is not tried: minutes at half of them, or an n x n matrix that does not fit.
LIMIT = {"ARDRegression": 1000, "fastrvm": 6000, "sklearn-rvm": 2000}


def scores(mean, sd, y):
    density = -0.5 * np.log(2 * np.pi * sd**2) - 0.5 * ((y - mean) / sd) ** 2
    return float(np.sqrt(np.mean((mean - y) ** 2))), float(np.mean(density))


def one_set(name: str, args: argparse.Namespace) -> tuple[list[list[Any]], dict[str, bool]]:
    X, y, masks = read(args.data, name)
    test = masks[:, 0]
    spread = X[~test].std(axis=0)
    X = (X - X[~test].mean(axis=0)) / np.where(spread > 0, spread, 1)
    y = (y - y[~test].mean()) / y[~test].std()
    train, d = (X[~test], y[~test]), X.shape[1]

    def basis(lengthscale):
        kernel = sgp.SquaredExponential(lengthscale)
        if len(train[0]) <= args.centres:
            return sgp.CentredBasis(train[0], kernel)
        return sgp.CentredBasis.from_data(jax.random.key(args.seed), train[0], args.centres, kernel)

    candidates = [c * d**0.5 for c in (0.5, 1.0, 2.0)]
    lengthscale = max(candidates, key=lambda ell: ours(basis(ell), *train)[0].log_evidence)
    rows, results = [], {}
    for method, fit in {"ppl_sgp": ours, **PEERS}.items():
        if method in LIMIT and len(train[0]) > LIMIT[method]:
            rows.append([name, method, f"not tried above {LIMIT[method]:,} rows", "", "", ""])
            continue
        try:
            chosen = basis(lengthscale)
            started = time.perf_counter()
            fitted, vectors = fit(chosen, *train)
            seconds = time.perf_counter() - started
            if method == "ppl_sgp":
                prediction = fitted.predict(X[test])
                mean, sd = prediction.mean, np.sqrt(prediction.variance + prediction.noise_variance)
            else:
                mean, sd = fitted(X[test])
        except ImportError:
            continue
        results[method] = (*scores(mean, sd, y[test]), seconds)
        rows.append([name, method, duration(seconds), *results[method][:2], vectors])
        print(f"{name}: {rows[-1]}", flush=True)
    others = [r for method, r in results.items() if method != "ppl_sgp"]
    own = results["ppl_sgp"]
    outcomes = {"density": all(own[1] > other[1] for other in others)}
    if len(train[0]) >= 1000:
        outcomes["speed"] = all(own[2] < other[2] for other in others)
    return rows, outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="generated rows, seconds")
    parser.add_argument("--data", type=Path, help="folder of the data sets, as for uci_type1.py")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--centres", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.smoke:
        args.data, args.sets = None, ["yacht"]
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    warnings.filterwarnings("ignore")  # of the peers
    print_header("Relevance vectors", {k: v for k, v in vars(args).items() if k not in ("smoke", "data")})
    table, density, speed = [], {}, {}
    for name in args.sets:
        rows, outcomes = one_set(name, args)
        table += rows
        density[name] = outcomes["density"]
        if "speed" in outcomes:
            speed[name] = outcomes["speed"]
    print_table(["set", "method", "time", "RMSE", "log density", "vectors"], table, "In units of the sd of y.")
    claims = {
        f"log density above every peer's on 3 of 4 sets: {sum(density.values())} of {len(density)}": (density, 0.75),
        f"faster than every peer from 1,000 rows on: {sum(speed.values())} of {len(speed)}": (speed, 1.0),
    }
    print_conclusion(
        {claim: sum(met.values()) >= share * len(met) for claim, (met, share) in claims.items()}, args.smoke
    )


if __name__ == "__main__":
    main()
