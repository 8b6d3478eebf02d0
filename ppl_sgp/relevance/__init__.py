"""Relevance vectors: sparse Bayesian regression from sums over rows, by evidence maximisation."""
