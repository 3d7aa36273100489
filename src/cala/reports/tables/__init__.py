"""The tables of a report, one per file."""
