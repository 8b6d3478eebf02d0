"""Two sets of inputs for one kernel, checked."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from .._internal import checks
from .kernel import Kernel


def input_pair(kernel: Kernel, X: ArrayLike, X2: ArrayLike | None) -> tuple[ArrayLike, ArrayLike]:
    """``X`` and ``X2``, which is ``X`` if left out; both must be matrices with the same columns."""
    X2 = X if X2 is None else X2
    for inputs in (X, X2):
        checks.inputs_matrix(inputs, None, type(kernel).__name__)
    if np.shape(X)[1] != np.shape(X2)[1]:
        raise ValueError(
            f"{type(kernel).__name__}: `X` and `X2` must have the same columns; got shapes {np.shape(X)} and "
            f"{np.shape(X2)}. Pass both in the same input space."
        )
    return X, X2
