"""The layers: steerable convolutions, pooling and normalisation of fields, nonlinearities. None of them measures."""
