"""Every path of the evidence against 60-digit arithmetic: random shapes, ranks, units, priors, means and rotations.

Fewer rows than features, as many, more; ranks at rounding, duplicates, constants, zeros; each kind of prior, rotated
where that is offered; by each method, in float64, and diagonal priors in float32. The error is relative to the
largest of the evidence, the number of rows and one nat. Sums of products are also compared with what they say they have
lost. Targets: by default no error above 1e-6; by products none above 1e-4 that was not announced or refused.

    python benchmarks/exact_evidence.py --cases 3000
    python benchmarks/exact_evidence.py --smoke
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpyro
from common import print_conclusion, print_header, print_table

import ppl_sgp as sgp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the references are those of the tests
from tests import exact_cases
from tests.reference import exact_log_evidence


class Worst(NamedTuple):
    """Errors of one path."""

    errors: list[tuple[float, int]]  # with the seed
    refused: int
    announced: int


def relative(found: float, exact: float, num_rows: int) -> float:
    return abs(found - exact) / max(1.0, abs(exact), num_rows)


def of_method(method: str, cases: int, sizes: list[int]) -> dict[str, Worst]:
    """By path, in float64."""
    errors, refused, announced = defaultdict(list), defaultdict(int), defaultdict(int)
    for seed in range(cases):
        case = exact_cases.random_case(seed, sizes[seed % len(sizes)])
        name = type(case.prior).__name__
        try:
            found = exact_cases.evidences(case, method)
        except ValueError:  # not finite: refused with a remedy
            refused[name] += 1
            continue
        lost = float(sgp.evidence.rounding_error(case.statistics(method), case.prior, case.noise_scale))
        announced[name] += lost > sgp.evidence.rounding.ANNOUNCED
        for path, (value, exact) in found.items():
            if not (path == name and lost > sgp.evidence.rounding.ANNOUNCED):
                errors[path].append((relative(value, exact, len(case.y)), seed))
    return {path: Worst(errors[path], refused[path], announced[path]) for path in sorted(errors)}


def in_float32(cases: int, sizes: list[int]) -> dict[str, Worst]:
    """Of the site, which refuses data beyond float32."""
    errors, refused = [], 0
    for seed in range(cases):
        case = exact_cases.random_case(seed, sizes[seed % len(sizes)], "diagonal")
        prior, noise_scale = exact_cases.in_float32(case.prior), jnp.float32(case.noise_scale)
        stats = case.statistics("auto")
        try:
            value = sgp.SparseGP(stats, prior, noise_scale).log_prob(jnp.asarray(stats.projection, jnp.float32))
        except ValueError:
            refused += 1
            continue
        exact = exact_log_evidence(case.Phi, case.y, prior, float(noise_scale), case.row_weights)
        errors.append((relative(float(value), exact, len(case.y)), seed))
    return {"DiagonalPrior": Worst(errors, refused, 0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a minute")
    parser.add_argument("--cases", type=int, default=3000, help="of each method")
    parser.add_argument("--features", type=int, nargs="+", default=[6, 8, 12], help="even numbers")
    args = parser.parse_args()
    if args.smoke:
        args.cases, args.features = 30, [6]
    numpyro.enable_x64()
    warnings.filterwarnings("ignore", "log_evidence: about")
    print_header("Evidence against 60 digits", {k: v for k, v in vars(args).items() if k != "smoke"})
    found = {method: of_method(method, args.cases, args.features) for method in ("auto", "gram")}
    found["auto, float32"] = in_float32(args.cases, args.features)
    table = []
    for method, paths in found.items():
        for path, worst in paths.items():
            ordered = sorted(worst.errors, reverse=True)
            above = sum(error > 1e-9 for error, _ in ordered)
            shown = ", ".join(f"{error:.0e} (seed {seed})" for error, seed in ordered[:2])
            table.append([method, path, str(len(ordered)), str(worst.refused), str(worst.announced), str(above), shown])
    columns = ["method", "path", "cases", "refused", "announced", "above 1e-9", "worst"]
    print_table(columns, table, "Relative errors; those announced are left out.")
    worst = {method: max(max(each.errors)[0] for each in paths.values()) for method, paths in found.items()}
    claims = {
        f"by default at most 1e-6: {worst['auto']:.1e}": worst["auto"] <= 1e-6,
        f"by products at most 1e-4 unannounced: {worst['gram']:.1e}": worst["gram"] <= 1e-4,
    }
    print_conclusion(claims, args.smoke)


if __name__ == "__main__":
    main()
