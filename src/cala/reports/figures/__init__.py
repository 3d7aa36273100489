"""The figures of a report, one per file. matplotlib is imported when the first one is drawn."""
