"""The experiments: paper -> plan -> run -> store -> report, one module per stage, joined by `harness.cli`."""
