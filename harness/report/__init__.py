"""Stage 5: rows to artefacts, pure until files are written."""
