"""The store: append the rows of finished cells, load them as a frame, say which cells are done."""
