"""The experiments' commands, one file each, and what is behind their options: the only place that joins stages."""
