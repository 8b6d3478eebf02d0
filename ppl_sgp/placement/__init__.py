"""From rows to a basis that carries the posterior."""
