"""The finished root of the stages' tests, for commands that need a published model."""

from __future__ import annotations

from tests.stages.conftest import _own_cache, finished, root

__all__ = ["_own_cache", "finished", "root"]
