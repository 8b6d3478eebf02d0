"""Likelihoods: how the outcome of a row depends on its predictor."""

from .bernoulli import Bernoulli
from .from_distribution import FromDistribution
from .likelihood import Derivatives, Likelihood, Parameter
from .poisson import Poisson

__all__ = ["Bernoulli", "Derivatives", "FromDistribution", "Likelihood", "Parameter", "Poisson"]
