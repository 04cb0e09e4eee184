"""The dataset step."""

from components.dataset.component import dataset

__all__ = ["dataset"]
