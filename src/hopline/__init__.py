"""Hopline: retrain a graph-reasoning model on Kubeflow, and prove what was published."""

__version__ = "0.1.0"

__all__ = ["__version__"]
