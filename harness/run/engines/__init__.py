"""Where cells are carried out: in processes of this machine, or as tasks of a cluster."""
