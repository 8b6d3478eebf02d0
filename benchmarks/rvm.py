"""Relevance vectors, type-II, against scikit-learn's ARDRegression and the RVM packages on PyPI.

Split 0 of each set; inputs and y standardised on the training rows; all training rows as centres up to 2,000, else
2,000 centres by k-means (ours alone: the peers need a row a centre). One lengthscale for all methods, a multiple of √d,
by the held-out log density of our own type-II fits in five folds of `--selection-rows` rows: evidence prefers
lengthscales that are too short (`--by evidence` shows that). Ours is timed from the rows to the fitted result, the pass
over the data included, peers from rows (or the same features) to the fitted model; k-means is given apart. `augmented`
is the same fit, predicted with `sgp.Augmentation`. `type-I` samples the precisions under a horseshoe, by NUTS, with at
most `--type1-centres` centres, and is augmented too. Targets: augmented type-II, the counterpart of the peers, for
densities; plain type-II for time.

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
import numpyro
from common import duration, print_conclusion, print_header, print_table
from numpyro.infer import MCMC, NUTS
from uci_files import read

import ppl_sgp as sgp

SETS = ("yacht", "concrete", "wine", "kin40k")


MULTIPLES = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
FOLDS = 5


def ours(basis, X, y):
    # Among 36,000 rows an action that gains a tenth of a nat is not worth its time.
    tolerance = 0.1 if len(X) > 10_000 else 1e-4
    fit = sgp.fit_relevance_vectors(sgp.sufficient_statistics(basis, X, y), tolerance=tolerance)
    return fit, len(fit.relevant)


def type_one(basis, train, test, args):
    """NUTS over the precisions, from k-means centres: RMSE, log density and seconds."""
    X, y = train
    started = time.perf_counter()
    if len(basis.centres) > args.type1_centres:
        basis = sgp.CentredBasis.from_data(jax.random.key(args.seed), X, args.type1_centres, basis.kernel)
    stats = sgp.sufficient_statistics(basis, X, y)
    model = sgp.models.relevance_vector_machine(sgp.models.Horseshoe(relevant=min(5.0, stats.num_features / 2)))
    mcmc = MCMC(NUTS(model), num_warmup=args.draws, num_samples=args.draws, progress_bar=False)
    mcmc.run(jax.random.key(args.seed), stats)
    samples = mcmc.get_samples()
    jax.block_until_ready(samples)
    seconds = time.perf_counter() - started
    mixture = sgp.predict(model, samples, stats, test[0], augment=sgp.Augmentation(X, y))
    density = float(np.mean(mixture.log_density(test[1])))
    return float(np.sqrt(np.mean((mixture.mean - test[1]) ** 2))), density, seconds


def moments(prediction):
    return prediction.mean, np.sqrt(prediction.variance + prediction.noise_variance)


def held_out(kernel, X, y, seed):
    """Mean log density over five folds; statistics of the rest add up from those of the folds."""
    folds = np.array_split(np.random.default_rng(seed).permutation(len(X)), FOLDS)
    basis, total = sgp.CentredBasis(X, kernel), 0.0
    parts = [sgp.sufficient_statistics(basis, X[fold], y[fold]) for fold in folds]
    for i, fold in enumerate(folds):
        fit = sgp.fit_relevance_vectors(sum(part for j, part in enumerate(parts) if j != i), tolerance=1e-2)
        total += fit.predict(X[fold]).log_density(y[fold]).sum()
    return total / len(X)


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
#: Rows beyond which type-I is not tried.
TYPE1_ROWS = 2000
#: Rows beyond which a peer is not tried: minutes at half of them, or an n x n matrix that does not fit.
LIMIT = {"ARDRegression": 500, "fastrvm": 6000, "sklearn-rvm": 2000}


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

    started = time.perf_counter()
    centres = train[0]
    if len(centres) > args.centres:
        key = jax.random.key(args.seed)
        centres = sgp.CentredBasis.from_data(key, train[0], args.centres, sgp.SquaredExponential(1.0)).centres
    clustering = time.perf_counter() - started

    def criterion(multiple):
        kernel = sgp.SquaredExponential(multiple * d**0.5)
        chosen = np.random.default_rng(args.seed).permutation(len(train[0]))[: args.selection_rows]
        few = train[0][chosen], train[1][chosen]
        if args.by == "evidence":
            return ours(sgp.CentredBasis(few[0], kernel), *few)[0].log_evidence
        return held_out(kernel, *few, args.seed)

    multiple = max(MULTIPLES, key=criterion)
    basis = sgp.CentredBasis(centres, sgp.SquaredExponential(multiple * d**0.5))
    print(f"{name}: lengthscale {multiple}√d; k-means {duration(clustering)}", flush=True)
    rows, results = [], {}
    for method, fit in {"ppl_sgp": ours, **PEERS}.items():
        if method in LIMIT and len(train[0]) > LIMIT[method]:
            rows.append([name, method, f"not tried above {LIMIT[method]:,} rows", "", "", ""])
            continue
        try:
            started = time.perf_counter()
            fitted, vectors = fit(basis, *train)
            seconds = time.perf_counter() - started
            predictive = moments(fitted.predict(X[test])) if method == "ppl_sgp" else fitted(X[test])
        except ImportError:
            continue
        entries = [(method, *scores(*predictive, y[test]), seconds, vectors)]
        if method == "ppl_sgp":
            healed = moments(fitted.predict(X[test], augment=sgp.Augmentation(*train)))
            entries.append(("ppl_sgp, augmented", *scores(*healed, y[test]), seconds, vectors))
            if len(train[0]) <= TYPE1_ROWS:
                entries.append(("ppl_sgp, type-I", *type_one(basis, train, (X[test], y[test]), args), "none pruned"))
        for label, rmse, density, seconds, vectors in entries:
            results[label] = (rmse, density, seconds)
            rows.append([name, label, duration(seconds), rmse, density, vectors])
            print(f"{name}: {rows[-1]}", flush=True)
    others = [result for label, result in results.items() if not label.startswith("ppl_sgp")]
    density = results["ppl_sgp, augmented"][1]
    outcomes = {"density": all(density > other[1] for other in others)}
    if len(train[0]) >= 1000:
        outcomes["speed"] = all(results["ppl_sgp"][2] < other[2] for other in others)
    return rows, outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="generated rows, seconds")
    parser.add_argument("--data", type=Path, help="folder of the data sets, as for uci_type1.py")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--centres", type=int, default=2000)
    parser.add_argument("--type1-centres", type=int, default=300)
    parser.add_argument("--selection-rows", type=int, default=1000, help="rows to choose the lengthscale on")
    parser.add_argument("--draws", type=int, default=150, help="of type-I, and as many to warm up")
    parser.add_argument(
        "--by", choices=("held-out", "evidence"), default="held-out", help="how the lengthscale is chosen"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.smoke:
        args.data, args.sets, args.type1_centres, args.draws = None, ["yacht"], 8, 20
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    numpyro.enable_x64()
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
