"""The publish step."""

from components.publish.component import publish

__all__ = ["publish"]
