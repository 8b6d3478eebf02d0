"""Where stochastic fits begin: hyperparameters of an exact GP on some rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from .._internal.random import host_generator
from ..kernels import Kernel
from ..placement.hyperparameters import find_hyperparameters, kernel_families
from ..placement.prior import LogPrior
from ..statistics.kept_rows import Rows
from .batches import RowBatches

#: Rows that the exact GP sees.
EXACT_ROWS = 1000


def starting_gp(
    key: jax.Array, batches: RowBatches, family: Any = None, *, num_rows: int = EXACT_ROWS, progress: bool = False
) -> tuple[Kernel, float]:
    """Kernel and noise scale of an exact GP on some rows, at the maximum a posteriori. O(k³) a step for k rows.

    :param key: a JAX random key.
    :param batches: the rows, with Gaussian noise.
    :param family: the class of the kernel; default the squared exponential, a lengthscale an input.
    :param num_rows: k.
    :param progress: show a progress bar.
    :return: the kernel, of f about its level, and the standard deviation of the noise.
    """
    some = batches.some(key, num_rows)
    X, y = some.X.astype(np.float64), some.y.astype(np.float64)
    y = y - y.mean()
    scale = float(y.std()) or 1.0
    (chosen,) = kernel_families(family)[:1]
    with tqdm(total=None, disable=not progress, desc="exact GP") as bar:
        found = find_hyperparameters(
            host_generator(key, "starting_gp"),
            [chosen],
            Rows(X, y, None),
            LogPrior.of_data(X.std(axis=0), scale, scale),
            bar.set_description_str,
        )[0]
    kernel = found.family(np.asarray(found.lengthscale), np.float64(found.amplitude))
    return kernel, float(found.noise_scale)
