"""What `place` decides by: points at random or chosen greedily, and hyperparameters of some rows or refined on all.

Log density of held-out rows, y standardised, by Nyström functions at m points, with the lengthscales of an exact GP on
1,500 rows (all, up to 2,000): amplitude and noise are the best for up to 8,000 rows. Then with hyperparameters refined
on all rows by the bound through 500 points, with the variance that these lack over that of the noise: above 0.1 `place`
leaves it out.

    python benchmarks/placed_points.py --data DIRECTORY --sets concrete elevators kin40k
    python benchmarks/placed_points.py --smoke
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
from common import print_conclusion, print_header, print_table
from uci_files import read

import ppl_sgp as sgp
from ppl_sgp.placement.budget import ALL_ROWS, EXACT_ROWS
from ppl_sgp.placement.candidates import greedy_points, ratio_of, score_at_points
from ppl_sgp.placement.hyperparameters import find_hyperparameters
from ppl_sgp.placement.place import LEARNED, POINTS_FROM
from ppl_sgp.placement.prior import LogPrior
from ppl_sgp.placement.refinement import TIGHT, _steps
from ppl_sgp.placement.score import Sample
from ppl_sgp.placement.subset import chosen_rows, distinct_rows

COLUMNS = ["set", "rows", "points", "random", "greedy", "random, refined", "lacking"]


def one_set(name: str, args: argparse.Namespace) -> list[list[Any]]:
    X, y, masks = read(args.data, name)
    test, rng = masks[:, 0], np.random.default_rng(0)
    X, y, X_new, y_new = X[~test], y[~test], X[test], y[test]
    y, y_new = (y - y.mean()) / y.std(), (y_new - y.mean()) / y.std()
    n = len(X)
    prior = LogPrior.of_data(np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 0.0), 1.0, 1.0)
    some = chosen_rows(rng, X, n if n <= ALL_ROWS else EXACT_ROWS)
    rows = sgp.rows(X[some], y[some])
    (hyper,) = find_hyperparameters(rng, (sgp.SquaredExponential,), rows, prior, lambda text: None)
    old = rng.choice(n, min(n, LEARNED), replace=False)
    sample = Sample(X[old], y[old], np.ones(len(old)), X_new, y_new, np.ones(len(y_new)))

    def density(hyper: Any, points: np.ndarray) -> float:
        return score_at_points(hyper.unit_kernel(), points, sample, ratio_of(hyper))[0].log_density

    inducing = greedy_points(jax.random.key(0), X, hyper.unit_kernel(), min(n, args.inducing))
    lacking = score_at_points(hyper.unit_kernel(), inducing, sample, ratio_of(hyper))[1]
    refined = _steps(sgp.rows(X, y), hyper, prior, inducing)
    found = []
    for m in args.points:
        points = distinct_rows(rng, X, min(m, n), POINTS_FROM)
        greedy = greedy_points(jax.random.key(0), X, hyper.unit_kernel(), min(m, n))
        scores = density(hyper, points), density(hyper, greedy), density(refined, points)
        found.append([name, n, m, *scores, lacking])
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="generated rows, few points")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=["concrete", "elevators", "kin40k"])
    parser.add_argument("--points", nargs="+", type=int, default=[100, 400, 1000])
    parser.add_argument("--inducing", type=int, default=500, help="points of the bound")
    args = parser.parse_args()
    if args.smoke:
        args.data, args.sets, args.points, args.inducing = None, ["generated"], [10], 20
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    numpyro.enable_x64()
    print_header("Points, and hyperparameters on all rows", {"sets": args.sets, "points": args.points})
    rows = [row for name in args.sets for row in one_set(name, args)]
    print_table(COLUMNS, rows)
    print_conclusion(
        {
            "where the points lack little, refined hyperparameters are better": all(
                row[5] > row[3] for row in rows if row[6] <= TIGHT and row[1] > ALL_ROWS
            )
        },
        args.smoke,
    )


if __name__ == "__main__":
    main()
