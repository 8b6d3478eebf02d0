"""One pass over data → SufficientStatistics."""
