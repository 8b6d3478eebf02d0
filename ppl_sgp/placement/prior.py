"""The default hyper-priors as independent normals of logarithms, for the search by an exact GP."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ..kernels.hyperprior_scales import AMPLITUDE_SPREAD, NOISE_SHARE, NOISE_SPREAD, lengthscale_prior


class LogPrior(NamedTuple):
    """Of log lengthscales (d,), log amplitude and log noise, in this order: coordinates count from the centre.

    :ivar centre: logarithms of the medians, (d + 2,).
    :ivar spread: standard deviations of the logarithms, (d + 2,).
    """

    centre: np.ndarray
    spread: np.ndarray

    @classmethod
    def of_data(cls, input_scale: np.ndarray, output_scale: float, noise_unit: float) -> LogPrior:
        """The priors of :func:`~ppl_sgp.models.basis_gp`, for a y about its mean.

        :param input_scale: standard deviation of each input, (d,).
        :param output_scale: standard deviation of y.
        :param noise_unit: that of y with its row weights.
        """
        with jax.enable_x64(True):
            median, spread = lengthscale_prior(input_scale)
        medians = np.concatenate([np.asarray(median), [output_scale, NOISE_SHARE * noise_unit]])
        return cls(np.log(medians), np.array([spread] * len(median) + [AMPLITUDE_SPREAD, NOISE_SPREAD]))

    def __call__(self, coordinates: np.ndarray) -> np.ndarray:
        """The log density, but for a constant, of coordinates (…, d + 2)."""
        return -0.5 * np.sum((coordinates / self.spread) ** 2, axis=-1)
