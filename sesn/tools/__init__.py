"""For any torch module: measure Delta, find its causes and the layer that breaks it, and choose better kernels."""
