"""From ordinary networks to scale-equivariant ones, and from those to networks of ordinary convolutions."""
