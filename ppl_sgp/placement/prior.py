"""The default hyper-priors as independent normals of logarithms, for the search by an exact GP."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, NOISE_SHARE, NOISE_SPREAD, lengthscale_prior

#: Standard deviation of the logarithm of a noise that is known: not zero, which has no coordinate.
KNOWN_NOISE_SPREAD = 0.05


class LogPrior(NamedTuple):
    """Of log lengthscales (d,), log amplitude and log noise, in this order: coordinates count from the centre.

    :ivar centre: logarithms of the medians, (d + 2,).
    :ivar spread: standard deviations of the logarithms, (d + 2,).
    """

    centre: np.ndarray
    spread: np.ndarray

    @classmethod
    def of_data(
        cls,
        input_scale: np.ndarray,
        output_scale: float,
        noise_unit: float,
        noise: tuple[float, bool] | None = None,
    ) -> LogPrior:
        """The priors of :func:`~ppl_sgp.models.basis_gp`, for a y about its mean.

        :param input_scale: standard deviation of each input, (d,).
        :param output_scale: standard deviation of y.
        :param noise_unit: that of y with its row weights.
        :param noise: the noise that a likelihood knows of, in place of a share of y, and whether it does exactly.
        """
        with jax.enable_x64(True):
            median, spread = lengthscale_prior(input_scale)
        typical, known = (NOISE_SHARE * noise_unit, False) if noise is None else noise
        medians = np.concatenate([np.asarray(median), [output_scale, typical]])
        of_noise = KNOWN_NOISE_SPREAD if known else NOISE_SPREAD
        return cls(np.log(medians), np.array([spread] * len(median) + [AMPLITUDE_SPREAD, of_noise]))

    def __call__(self, coordinates: np.ndarray) -> np.ndarray:
        """The log density, but for a constant, of coordinates (…, d + 2)."""
        return -0.5 * np.sum((coordinates / self.spread) ** 2, axis=-1)
