"""The systems of the paper's tables, one per file."""
