"""Held-out log density against wall time: type-I inference here, and the sparse GPs of other libraries.

Split 0 of the sets, inputs and y standardised on the training rows; log density and RMSE of the test rows so too.
Every method has a squared exponential with a lengthscale an input, and starts at lengthscales √d/2, amplitude 1, noise
0.3. Settings are those that its documentation suggests at this size, none tuned on these sets:

  ppl_sgp       lengthscales of an exact GP on 1,000 rows; m eigenfunctions of it on a grid; free variances of the
                principal directions; NUTS, 4 chains of 250 + 250 draws (type-I)
  ppl_sgp type-II   the same, at the maximum of evidence times hyper-prior
  ppl_sgp place     the one call, with nothing typed by hand: everything from the rows to 4 chains of 250 + 250 draws
  ppl_sgp exact GP  on 2,000 rows, type-II from the medians of its hyper-priors
  gpytorch SGPR / SVGP   500 inducing points; Adam, 100 steps of 0.1 / 20 epochs of 0.01 in batches of 1,024
  gpflow SGPR   500 inducing points, L-BFGS, 100 iterations
  numpyro hsgp  up to 3 inputs; m functions in all, boundary 1.5; explicit weights, SVI with AutoNormal, 2,000 steps
  sklearn exact GP   on 2,000 rows, three starts

Methods whose library is missing are left out. GPflow needs NumPy 1 and JAX NumPy 2, so they want an environment each,
and the same file:

    python benchmarks/peers.py --data DIRECTORY --csv peers.csv --figure peers.png
    environment-of-gpflow/bin/python benchmarks/peers.py --data DIRECTORY --csv peers.csv --figure peers.png
    python benchmarks/peers.py --smoke

Data as for uci_type1.py. Rows that are in the CSV are not run again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from peer_methods import METHODS, Missing, Moments, Split
from uci_files import append, done_before, read

SETS = ("kin40k", "tamielectric")
FIELDS = ("set", "method", "version", "log_density", "rmse", "seconds")


def scores(moments: Moments, y: np.ndarray) -> tuple[float, float]:
    """Mean log density and RMSE; draws along a first axis are a mixture."""
    mean, variance = (np.atleast_2d(part) for part in moments)
    density = -0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)
    return float(np.mean(np.logaddexp.reduce(density) - np.log(len(density)))), float(
        np.sqrt(np.mean((mean.mean(axis=0) - y) ** 2))
    )


def run(args: argparse.Namespace, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from importlib.metadata import PackageNotFoundError, version

    done = {(row["set"], row["method"]) for row in known}
    rows = list(known)
    for name in args.sets:
        X, y, masks = read(args.data, name)
        test = masks[:, 0]
        centre, unit = X[~test].mean(axis=0), X[~test].std(axis=0)
        unit = np.where(unit > 0, unit, 1.0)  # a column of sml never varies
        X, y = (X - centre) / unit, (y - y[~test].mean()) / y[~test].std()
        split = Split(X[~test], y[~test], X[test], args.features, args.inducing, 0.02 if args.smoke else 1.0)
        for method in args.methods:
            package, predict = METHODS[method]
            if (name, method) in done:
                continue
            started = time.perf_counter()
            try:
                release = version(package)
                moments = predict(split)
            except (Missing, PackageNotFoundError, ImportError) as reason:
                print(f"{name}, {method}: left out ({reason})", flush=True)
                continue
            seconds = time.perf_counter() - started
            density, rmse = scores(moments, y[test])
            rows.append(dict(zip(FIELDS, (name, method, release, density, rmse, seconds), strict=True)))
            print(rows[-1], flush=True)
            append(args.csv, rows[-1])
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    sets, methods = (list(dict.fromkeys(row[by] for row in rows)) for by in ("set", "method"))
    figure, axes = plt.subplots(1, len(sets), figsize=(4 * len(sets) + 2, 4), layout="constrained", squeeze=False)
    for ax, name in zip(axes[0], sets, strict=True):
        for row in (row for row in rows if row["set"] == name):
            ours, index = row["method"].startswith("ppl_sgp"), methods.index(row["method"])
            marker, color = "*" if ours else "osD^vPX"[index % 7], f"C{index % 10}"
            ax.semilogx(
                row["seconds"], row["log_density"], marker, ms=12 if ours else 7, color=color, label=row["method"]
            )
        ax.set(title=name, xlabel="seconds", ylabel="mean log density of test rows")
        ax.margins(0.1)
        ax.xaxis.set(major_locator=LogLocator(subs=(1, 3)), major_formatter=StrMethodFormatter("{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    of_methods = {label: each for ax in axes[0] for each, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(of_methods.values(), of_methods.keys(), loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="generated rows, tiny sizes")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--inducing", type=int, default=500)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    if args.smoke:
        args.data, args.csv, args.sets, args.features, args.inducing = None, None, ["generated"], 25, 10
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    try:
        import numpyro
        from common import print_header, print_table
    except ImportError:  # the environment of GPflow
        print_table = None
    else:
        numpyro.enable_x64()
        print_header("Log density against time", {k: v for k, v in vars(args).items() if k not in ("smoke", "data")})
    rows = run(args, done_before(args.csv, FIELDS[:3]))
    if print_table is not None:
        print_table(FIELDS, [[row[name] for name in FIELDS] for row in rows])
    if args.figure:
        draw(rows, args.figure)


if __name__ == "__main__":
    main()
