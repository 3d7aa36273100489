"""Tables, figures and the self-contained page that are made from a run's records and artifacts."""
