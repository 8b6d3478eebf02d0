"""Likelihoods: how the outcome of a row depends on its predictor."""

from .bernoulli import Bernoulli
from .likelihood import Derivatives, Likelihood, Parameter
from .poisson import Poisson

__all__ = ["Bernoulli", "Derivatives", "Likelihood", "Parameter", "Poisson"]
