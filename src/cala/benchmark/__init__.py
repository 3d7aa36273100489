"""Running methods over the same draws of a protocol, and what the results say."""
