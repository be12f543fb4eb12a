"""Everything that measures: how far a module is from scale equivariance, and why. No layer imports it."""
