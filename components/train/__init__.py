"""The train step."""

from components.train.component import train

__all__ = ["train"]
