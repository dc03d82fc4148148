"""The classifier: a calibrated support, the scikit-learn estimator, its file."""
