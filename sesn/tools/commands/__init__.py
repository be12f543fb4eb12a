"""The commands for any torch module, one file each. They import torch when they run, so that help is quick."""
