"""Time of one evidence with its gradient in each tier, against m: exponents near 1, 2 and 3, and flat in n.

Gradients are with respect to all m prior scales, the noise and, where there are any, all reflections. Evaluations
run one after the other in a compiled loop, as a sampler runs them.

    python benchmarks/tiers.py            # about 5 minutes on 2 cores
    python benchmarks/tiers.py --smoke    # seconds, meaningless times
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from common import duration, interleaved_medians, print_conclusion, print_header, print_table
from evidence import compiled_loop, per_feature, problem

import ppl_sgp as sgp


def reflected(stats, parameters):
    """O(k·m): with k = m reflections, in all of their directions."""
    log_scale, log_noise, vectors = parameters
    return sgp.log_evidence(stats, sgp.HouseholderPrior(jnp.exp(log_scale), vectors), jnp.exp(log_noise))


def tiers(stats, m, seed):
    """(name, expected exponent, function, statistics, parameters, steps of a timing)."""
    rng = np.random.default_rng(seed)
    scales = (jnp.asarray(rng.normal(-0.5 * np.log(m), 0.3, m)), jnp.asarray(np.log(0.15)))
    orthonormal = stats.rotate(orthonormal=True)
    wide = (scales[0] + 0.5 * np.log(stats.num_rows), scales[1])  # of weights of orthonormal features
    full, few = (jnp.asarray(rng.standard_normal((k, orthonormal.num_orthonormal))) for k in (m, 2))
    return [
        ("O(m): diagonal, rotated", 1, per_feature, stats.rotate(), scales, 200),
        ("O(m): 2 reflections", 1, reflected, orthonormal, (*wide, few), 200),
        ("O(m²): m reflections", 2, reflected, orthonormal, (*wide, full), 3),
        ("O(m³): diagonal, not rotated", 3, per_feature, stats, scales, 1),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--features", type=int, nargs="+", default=[100, 300, 1000, 3000])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 40_000])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if args.smoke:
        args.features, args.rows, args.repeats = [10, 20], [200, 400], 2
    numpyro.enable_x64()
    print_header("Tiers: value and gradient", {k: v for k, v in vars(args).items() if k != "smoke"})
    seconds: dict[tuple[str, int, int], float] = {}
    exponents: dict[str, int] = {}
    for m in args.features:
        calls, steps = {}, {}
        for n in args.rows:
            stats, _, _ = problem(args.seed, n, m)
            for name, exponent, function, data, parameters, count in tiers(stats, m, args.seed):
                exponents[name], steps[name] = exponent, count
                calls[name, m, n] = compiled_loop(function, data, parameters, count)
        measured = interleaved_medians(calls, args.repeats)
        seconds |= {key: value / steps[key[0]] for key, value in measured.items()}
        jax.clear_caches()
    table, outcomes = [], {}
    for name, expected in exponents.items():
        times = {n: np.array([seconds[name, m, n] for m in args.features]) for n in args.rows}
        # The small sizes are overhead: the exponent of the two largest is what grows.
        last = times[args.rows[-1]][-2:]
        slope = np.log(last[1] / last[0]) / np.log(args.features[-1] / args.features[-2])
        flat = max(float(np.max(row) / np.min(row)) for row in zip(*times.values(), strict=True))
        table.append([name, *(duration(t) for t in times[args.rows[-1]]), f"{slope:.2f}", f"{flat:.2f}"])
        outcomes[f"{name}: exponent {slope:.2f}, at most {expected} + 0.3"] = bool(slope <= expected + 0.3)
    columns = ["tier", *(f"m = {m:,}" for m in args.features), "exponent", "largest / smallest over n"]
    print_table(columns, table, f"Times at n = {args.rows[-1]:,}; exponent between the two largest m.")
    print_conclusion(outcomes, args.smoke)


if __name__ == "__main__":
    main()
