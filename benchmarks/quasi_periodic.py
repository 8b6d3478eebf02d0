"""A free period on a frozen box: the evidence of a quasi-periodic kernel on Laplace functions against the exact GP's.

300 rows over 30 periods, drawn from ``Periodic(1, 0.8) * family(decay)`` with noise 0.2, at the hyperparameters that
they were drawn with. The claim: within 0.1 nats for decays up to a third of the range, on a box of 2.5 times it; longer
ones are lines of the spectrum that fall between the frequencies of the box.

    python benchmarks/quasi_periodic.py            # about a minute on 2 cores
    python benchmarks/quasi_periodic.py --smoke
"""

from __future__ import annotations

import argparse

import numpy as np
import numpyro
from common import print_conclusion, print_header, print_table

import ppl_sgp as sgp

RANGE, NOISE, NATS = 30.0, 0.2, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--functions", type=int, nargs="+", default=[300, 600, 1000])
    parser.add_argument("--factors", type=float, nargs="+", default=[1.5, 1.5, 2.5], help="of the box, one a number")
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.functions, args.factors = 40, [50], [2.5]
    numpyro.enable_x64()
    print_header("Quasi-periodic kernels on a box", {k: v for k, v in vars(args).items() if k != "smoke"})
    rng = np.random.default_rng(args.seed)
    X = np.sort(rng.uniform(0, RANGE, args.rows))[:, None]
    table, outcomes = [], {}
    for family in (sgp.Matern32, sgp.SquaredExponential):
        for decay in (1.0, 3.0, 10.0, 30.0, 100.0):
            kernel = sgp.Periodic(1.0, 0.8) * family(decay)
            factor = np.linalg.cholesky(np.asarray(kernel(X)) + 1e-9 * np.eye(args.rows))
            y = factor @ rng.standard_normal(args.rows) + NOISE * rng.standard_normal(args.rows)
            rows = sgp.rows(X, y)
            exact = float(sgp.ExactGP(rows, kernel, NOISE).log_prob(rows.values))
            off = []
            for number, wide in zip(args.functions, args.factors, strict=True):
                basis = sgp.LaplaceBasis.from_data(X, number, wide)
                stats = sgp.sufficient_statistics(basis, X, y)
                off.append(float(sgp.log_evidence(stats, basis.weight_prior(kernel), NOISE)) - exact)
            table.append([family.__name__, decay / RANGE, *off])
            if decay <= RANGE / 3:
                outcomes[f"{family.__name__}, decay {decay / RANGE:.2g} of the range: {NATS} nats"] = (
                    abs(off[-1]) < NATS
                )
    columns = [f"m = {m}, factor {wide}" for m, wide in zip(args.functions, args.factors, strict=True)]
    print_table(["family", "decay / range", *columns], table, "Nats above the exact GP's evidence.")
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
