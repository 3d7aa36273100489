"""Other programs: a folder that they fill, and Frigate's cameras."""
