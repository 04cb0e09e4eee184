"""What a check of a manifest found: where, what, and what was expected there."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["Finding", "Rule", "below", "show"]

Rule = Literal["schema", "kubernetes", "operator", "pod security", "hopline"]
"""Who refuses it: the kind's schema, other checks of the API server, the Training Operator, the Pod Security profile
"restricted", or Hopline, because the job would not do what it is for."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        path: where in the document, for example ``spec.template.spec.containers[0].image``.
        found: what is there, short.
        expected: what should be there, and what to do where that is not plain.
        rule: who refuses it.
    """

    path: str
    found: str
    expected: str
    rule: Rule

    def __str__(self) -> str:
        return f"{self.path}: found {self.found}, expected {self.expected} [{self.rule}]"


def below(path: str, key: str | int) -> str:
    """The path of a key or an index under a path."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN.fullmatch(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def show(value: Any) -> str:
    """A value as a message shows it: short, and on one line."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
