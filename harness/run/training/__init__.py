"""How networks are trained: the loop, its schedules and checkpoints, and the cells that do it."""
