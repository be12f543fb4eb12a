"""The experiments: paper -> plan -> run -> store -> report, one module per stage, joined by `harness.commands`."""

#: By this line `sesn` knows its harness from another package of that name, without importing it.
PROJECT = "sesn"
