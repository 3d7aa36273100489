"""A classifier whose classes may grow after `fit`, and its scikit-learn face."""
