"""The one call on UCI regression sets: `place`, NUTS, and held-out scores beside those of an exact GP.

Published splits; rows as they are in the files, nothing standardised. `place` with its defaults, then NUTS for type-I
and the maximum of evidence times hyper-prior for type-II. RMSE and mean log density in the units of the data, beside
those of an exact GP (scikit-learn, squared exponential, a lengthscale an input, type-II, standardised; its figures are
those of `uci_type1.py`).

    python benchmarks/placed_uci.py --data DIRECTORY --csv placed_uci.csv
    python benchmarks/placed_uci.py --data DIRECTORY --sets yacht --splits 0
    python benchmarks/placed_uci.py --smoke

With `--csv`, every split is written when it is done, and those already there are not run again.
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
from common import print_conclusion, print_header, print_table
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from uci_files import append, done_before, read
from uci_type1 import PEERS, PUBLISHED

import ppl_sgp as sgp

#: Sets of up to 1,600 rows.
SMALL = [name for name in PUBLISHED if name not in ("pumadyn32nm", "elevators", "kin40k")]
PREDICTED_DRAWS = 200


def one_split(X: np.ndarray, y: np.ndarray, test: np.ndarray, args: argparse.Namespace, seed: int) -> dict[str, Any]:
    started = time.perf_counter()
    placed = sgp.place(jax.random.key(seed), X[~test], y[~test], num_features=args.features)
    seconds = time.perf_counter() - started
    mcmc = MCMC(
        NUTS(placed.model, init_strategy=placed.init_strategy()),
        num_warmup=args.warmup,
        num_samples=args.draws,
        num_chains=args.chains,
        chain_method="sequential",
        progress_bar=True,  # one program for all chains, which takes most of the time
    )
    mcmc.run(jax.random.key(1000 + seed), placed.statistics, extra_fields=sgp.EXTRA_FIELDS)
    step = max(1, args.chains * args.draws // PREDICTED_DRAWS)
    draws = {name: values[::step] for name, values in mcmc.get_samples().items()}
    row: dict[str, Any] = {"basis": placed.report.candidates[placed.report.chosen]["basis"], "free": placed.model.free}
    for name, samples in (("type1", draws), ("type2", placed.fit.samples)):
        prediction = sgp.predict(placed.model, samples, placed.statistics, X[test])
        row[f"{name}_rmse"] = float(np.sqrt(np.mean((prediction.mean - y[test]) ** 2)))
        row[f"{name}_log_density"] = float(np.mean(prediction.log_density(y[test])))
    by_chain = mcmc.get_samples(group_by_chain=True)
    row["r_hat"] = max(float(np.max(split_gelman_rubin(np.asarray(values)))) for values in by_chain.values())
    row["divergences"] = int(mcmc.get_extra_fields()["diverging"].sum())
    row["features"] = placed.statistics.num_features
    return row | {"place_seconds": seconds, "seconds": time.perf_counter() - started}


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = [] if args.csv is None else done_before(args.csv, ("set", "basis", "free"))
    done = {(row["set"], row["split"]) for row in rows}
    for split in args.splits:
        for name in args.sets:
            if (name, split) in done:
                continue
            X, y, masks = read(args.data, name)
            result = one_split(X, y, masks[:, split], args, args.seed + split)
            rows.append({"set": name, "split": split, "n": len(y), "d": X.shape[1], **result})
            jax.clear_caches()
            append(args.csv, rows[-1])
            print(rows[-1], flush=True)
    return rows


def report(rows: list[dict[str, Any]], smoke: bool) -> None:
    table, dense, close = [], {}, {}
    for name in dict.fromkeys(row["set"] for row in rows):
        chosen = [row for row in rows if row["set"] == name]
        column = {
            key: np.array([row[key] for row in chosen]) for key in chosen[0] if key not in ("set", "basis", "free")
        }
        exact_rmse, exact_density = PEERS.get(name, ((np.nan, np.nan),) * 2)[0]
        rmse, density = column["type1_rmse"], column["type1_log_density"]
        dense[name] = bool(density.mean() >= exact_density)
        close[name] = bool(rmse.mean() <= exact_rmse + 0.5 * rmse.std())
        table.append(
            [
                f"{name} ({len(chosen)} splits)",
                ", ".join(sorted({str(row["basis"]) for row in chosen})),
                float(column["features"].mean()),
                f"{rmse.mean():.3f}±{rmse.std():.3f}",
                f"{exact_rmse:g}",
                f"{density.mean():.3f}",
                f"{column['type2_log_density'].mean():.3f}",
                f"{exact_density:g}",
                f"{column['r_hat'].max():.4f}",
                int(column["divergences"].sum()),
                float(column["seconds"].mean()),
            ]
        )
    columns = ["set", "basis", "features", "RMSE", "exact GP", "log density, type-I", "type-II", "exact GP", "R-hat"]
    print_table([*columns, "divergent", "seconds"], table)
    print_conclusion(
        {
            f"log density of type-I at least the exact GP's on 10 of 13: {sum(dense.values())} of {len(dense)}": sum(
                dense.values()
            )
            >= 10 / 13 * len(dense),
            f"RMSE within half a deviation of the exact GP's: {sum(close.values())} of {len(close)}": all(
                close.values()
            ),
        },
        smoke,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="generated rows, tiny sizes")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--sets", nargs="+", default=SMALL)
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--features", type=int, help="default: what `place` takes by itself")
    parser.add_argument("--warmup", type=int, default=300)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, help="append a row a split here; rows already there are not run again")
    args = parser.parse_args()
    if args.smoke:
        args.data, args.csv, args.sets, args.splits = None, None, ["generated"], [0]
        args.features, args.warmup, args.draws, args.chains = 20, 50, 50, 2
    elif args.data is None:
        parser.error("--data is needed, except with --smoke")
    numpyro.enable_x64()
    warnings.filterwarnings("ignore", category=UserWarning, module=".*")
    print_header("The one call on UCI sets", {k: v for k, v in vars(args).items() if k not in ("smoke", "data")})
    report(run(args), args.smoke)


if __name__ == "__main__":
    main()
