"""The systems of the CALA paper's tables, one per file."""
