"""Type-I inference over a thousand free variances on UCI regression sets: Evans (2022), section 5.4.2 and table 5.1.

Protocol: published splits; inputs and y standardised on the training rows; a squared exponential with a lengthscale an
input, its hyperparameters by maximum likelihood of an exact GP on at most 1,000 random rows (no lengthscale below the
spacing of the grid, between whose points eigenfunctions would vanish) and frozen from then on; m grid-structured
eigenfunctions on 10 points an input (over the range of the training rows, 5% wider); prior variances and noise free,
with the hyper-priors of `models.reweighted_basis` around the frozen values. NUTS for type-I, `fit_evidence` for
type-II, both on the same statistics. RMSE and log density are in the units of the data; ± is the standard deviation
over splits, of differences of log density the standard error.

Ways to sample: `rotated`, one variance a principal direction, O(m) a gradient; `marginal`, one an eigenfunction,
weights marginalised, O(m·rank²); `kept`, the same posterior with explicit weights, whitened at the type-II fit, O(m²).

Data: a folder with NAME/data.csv.gz (y in the last column) and NAME/test_mask.csv.gz (a column a split, 1 = test row).

    python benchmarks/uci_type1.py --data DIRECTORY --csv results.csv    # two hours on 2 cores
    python benchmarks/uci_type1.py --data DIRECTORY --sets yacht --splits 0 --way kept
    python benchmarks/uci_type1.py --smoke                               # generated rows, seconds

With `--csv`, every split is written when it is done, and those already there (same settings) are not run again: stop it
and start it again, or run sets side by side into files of their own and join them, without a second header line.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
from common import print_conclusion, print_header, print_table, verdict
from uci_files import append, done_before, read
from uci_protocol import WAYS, one_split

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
#: Ten splits of the same files, measured with scikit-learn 1.9.1: RMSE and mean log density of an exact GP (squared
#: exponential, a lengthscale an input, type-II) and of Bayesian ridge on 1,000 random Fourier features.
PEERS = {
    "yacht": ((0.159, 0.113), (0.158, 0.563)),
    "autompg": ((2.632, -2.390), (2.569, -2.362)),
    "housing": ((2.918, -2.485), (3.075, -2.512)),
    "forest": ((1.421, -1.826), (1.397, -1.762)),
    "energy": ((0.457, -0.651), (0.471, -0.643)),
    "autos": ((0.168, 0.417), (0.160, 0.527)),
    "fertility": ((0.204, -0.009), (0.177, 0.276)),
    "challenger": ((0.653, -1.362), (0.589, -1.320)),
    "concreteslump": ((4.045, -2.974), (10.099, -3.499)),
    "breastcancer": ((33.748, -5.085), (29.839, -4.831)),
    "solar": ((0.834, -1.255), (0.777, -1.204)),
    "concrete": ((4.949, -2.985), (5.450, -3.078)),
    "wine": ((0.472, -0.625), (0.491, -0.678)),
}
SETTINGS = ("way", "features", "warmup", "draws", "chains", "seed")


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every set and split, run now or read from the CSV file."""
    settings = {name: getattr(args, name) for name in SETTINGS}
    known = {
        (row["set"], row["split"]): row
        for row in done_before(args.csv, ("set", "way"))
        if settings.items() <= row.items()
    }
    rows = []
    for name in args.sets:
        X, y, masks = read(args.data, name)
        every = range(masks.shape[1] if len(y) < 2000 else 3)
        for split in every if args.splits is None else args.splits:
            row = known.get((name, split))
            if row is None:
                result = one_split(X, y, masks[:, split], args, args.seed + split)
                row = {"set": name, "split": split, **settings, **result}
                jax.clear_caches()  # programs of dozens of splits exhaust the memory maps of a process
                append(args.csv, row)
            print(
                f"{name} {split}: RMSE {row['type1_rmse']:.3f} (type-II {row['type2_rmse']:.3f}), log density "
                f"{row['type1_log_density']:.3f} ({row['type2_log_density']:.3f}), R-hat {row['r_hat']:.3f}, "
                f"{row['divergences']:.0f} divergences, {row['seconds']:.0f} s",
                flush=True,
            )
            rows.append(row)
    return rows


def report(rows: list[dict[str, Any]], smoke: bool) -> None:
    """The table, a line a set, and the targets."""
    table, good, dense, mixed = [], {}, {}, {}
    for name in dict.fromkeys(row["set"] for row in rows):
        chosen = [row for row in rows if row["set"] == name]
        column = {key: np.array([row[key] for row in chosen]) for key in chosen[0] if key not in ("set", "way")}
        best, deviation = min(PUBLISHED[name])
        rmse, density = column["type1_rmse"], column["type1_log_density"]
        gain = density - column["type2_log_density"]
        good[name] = bool(rmse.mean() <= best + deviation / 2)
        dense[name] = bool(gain.mean() >= 0)
        mixed[name] = bool(column["r_hat"].max() < 1.01)
        exact, ridge = PEERS.get(name, ((np.nan, np.nan),) * 2)
        table.append(
            [
                f"{name} ({chosen[0]['n']:,.0f} x {chosen[0]['d']:.0f}, {len(chosen)} splits)",
                f"{rmse.mean():.3f}±{rmse.std():.3f}",
                f"{column['type2_rmse'].mean():.3f}",
                *(f"{m:g}±{s:g}" for m, s in PUBLISHED[name]),
                *(f"{peer[0]:g}" for peer in (exact, ridge)),
                f"{density.mean():.3f}",
                f"{gain.mean():+.4f}±{gain.std() / len(gain) ** 0.5:.4f}",
                *(f"{peer[1]:g}" for peer in (exact, ridge)),
                f"{column['seconds'].mean():.0f} s",
                f"{column['r_hat'].max():.4f}",
                int(column["divergences"].sum()),
                ", ".join(verdict(outcome[name], smoke) for outcome in (good, dense)),
            ]
        )
    columns = ["set", "RMSE, type-I", "type-II", "GRIEF-I (thesis)", "Yang et al.", "exact GP", "ridge"]
    columns += ["log density, type-I", "more than type-II", "exact GP", "ridge"]
    print_table([*columns, "a split", "worst R-hat", "divergent", "RMSE, density"], table)
    ess = np.array([row["least_ess"] / row["nuts_seconds"] for row in rows])
    print(f"least effective sample size of any variance: {np.median(ess):.3g} a second of NUTS, compiled code included")
    claims = {
        "RMSE at most the better published column plus half its deviation, on 80% of sets": (good, 0.8),
        "log density of type-I at least that of type-II, on 80% of sets": (dense, 0.8),
        "R-hat below 1.01 everywhere": (mixed, 1.0),
    }
    outcomes = {
        f"{claim}: {sum(met.values())} of {len(met)}": sum(met.values()) >= share * len(met)
        for claim, (met, share) in claims.items()
    }
    print_conclusion(outcomes, smoke)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that the script runs")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--splits", nargs="+", type=int, help="default: all 10 below 2,000 rows, else the first 3")
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--way", choices=WAYS, default="rotated")
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, help="append a row a split here; rows already there are not run again")
    args = parser.parse_args()
    if args.smoke:
        args.data, args.sets, args.features, args.warmup, args.draws, args.chains = None, ["yacht"], 20, 50, 50, 2
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    numpyro.enable_x64()
    warnings.filterwarnings("ignore", message="GridEigenBasis: .* outside the grid")
    print_header("Type-I inference on UCI sets", {k: v for k, v in vars(args).items() if k not in ("smoke", "data")})
    report(run(args), args.smoke)


if __name__ == "__main__":
    main()
