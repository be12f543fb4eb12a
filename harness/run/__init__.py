"""Stage 3: from a thing to do to the numbers seen."""
