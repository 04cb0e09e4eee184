"""Words of Kubernetes that a config may hold: names, labels, quantities; and what looks like a secret, which it may not."""

from __future__ import annotations

import math
import re
from collections import Counter
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator

__all__ = [
    "DnsLabel",
    "DnsSubdomain",
    "LabelKey",
    "LabelValue",
    "Quantity",
    "holds_secret",
    "is_dns_label",
    "is_dns_subdomain",
    "is_label_key",
    "is_label_value",
    "is_variable_name",
    "looks_secret",
    "matching",
    "names_secret",
    "parse_quantity",
]

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUANTITY: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_SUFFIXES: Final = {
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
    "m": Decimal("1e-3"),
    "u": Decimal("1e-6"),
    "n": Decimal("1e-9"),
}

_SECRET_WORDS: Final = frozenset(
    {"APIKEY", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "SECRETS", "TOKEN"}
)
_SECRET_VALUES: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    re.compile(r"\b(AKIA|ASIA)[0-9A-Z]{16}\b"),  # AWS access key ids
    re.compile(r"\b(gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-)[0-9A-Za-z_-]{16,}"),
    re.compile(r"\bAIza[0-9A-Za-z_-]{35}"),
    re.compile(r"\beyJ[0-9A-Za-z_-]{8,}\.eyJ[0-9A-Za-z_-]{8,}"),  # JSON web tokens
    re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@"),  # user:password@ in a URL
)
_RANDOM: Final = re.compile(r"[0-9A-Za-z+/=_-]{32,}")
_RANDOM_BITS: Final = 4.3
"""Shannon entropy of a character: keys of 32 and more random characters lie above, paths, names and hex digests below."""


def is_dns_label(text: str) -> bool:
    """1 to 63 of ``a-z0-9-``, a letter or digit at both ends (RFC 1123)."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """DNS labels with dots between them, at most 253 characters."""
    return len(text) <= 253 and all(map(is_dns_label, text.split(".")))


def is_label_value(text: str) -> bool:
    """Empty, or 1 to 63 of ``A-Za-z0-9-_.`` with a letter or digit at both ends."""
    return _LABEL_VALUE.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """A label value that is not empty, after an optional DNS subdomain and ``/``."""
    prefix, slash, name = text.rpartition("/")
    return bool(name) and is_label_value(name) and (is_dns_subdomain(prefix) if slash else True)


def is_variable_name(text: str) -> bool:
    """A name of an environment variable that every shell can read."""
    return _VARIABLE.fullmatch(text) is not None


def parse_quantity(text: str) -> Decimal | None:
    """The value of a Kubernetes quantity such as ``500m``, ``16Gi`` or ``2e3``; None if it is none."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _SUFFIXES:
        return number * _SUFFIXES[suffix]
    return number.scaleb(int(suffix[1:])) if suffix else number


def names_secret(name: str) -> bool:
    """Whether a variable's name promises a secret: ``API_KEY`` does, ``TOKENIZERS_PARALLELISM`` does not."""
    return any(word in _SECRET_WORDS for word in re.split(r"[^A-Z0-9]+", name.upper()))


def holds_secret(text: str) -> bool:
    """Whether a text of any length holds a key, a token or a password in a URL, in a form that nothing else has."""
    return any(pattern.search(text) for pattern in _SECRET_VALUES)


def looks_secret(text: str) -> bool:
    """Whether a short text, such as the value of a variable, holds one of these, or a long random word."""
    return holds_secret(text) or any(_is_random(word) for word in _RANDOM.findall(text))


def _is_random(word: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)
    if not all(any(map(kind, word)) for kind in kinds):
        return False
    bits = -sum(n / len(word) * math.log2(n / len(word)) for n in Counter(word).values())
    return bits > _RANDOM_BITS


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _quantity(value: str) -> str:
    amount = parse_quantity(value)
    if amount is None or amount < 0:
        raise ValueError(f"found {value!r}, expected a quantity of Kubernetes, for example 4, 500m or 16Gi")
    return value


def _dns_label(value: str) -> str:
    if not is_dns_label(value):
        raise ValueError(f"found {value!r}, expected 1 to 63 of a-z, 0-9 and '-', a letter or digit at both ends")
    return value


def _dns_subdomain(value: str) -> str:
    if not is_dns_subdomain(value):
        raise ValueError(
            f"found {value!r}, expected a name of Kubernetes: a-z, 0-9, '-' and '.', at most 253 characters"
        )
    return value


def _label_key(value: str) -> str:
    if not is_label_key(value):
        raise ValueError(f"found {value!r}, expected a label's key such as pool or example.com/pool")
    return value


def _label_value(value: str) -> str:
    if not is_label_value(value):
        raise ValueError(f"found {value!r}, expected a label's value: at most 63 letters, digits, '-', '_' and '.'")
    return value


def matching(pattern: str, expected: str) -> AfterValidator:
    """Checks that a text matches a pattern as a whole; ``expected`` ends the message."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"found {value!r}, expected {expected}")
        return value

    return AfterValidator(check)


Quantity = Annotated[str, BeforeValidator(_number_as_text), AfterValidator(_quantity)]
"""A quantity of Kubernetes; a plain number is taken too."""
DnsLabel = Annotated[str, AfterValidator(_dns_label)]
DnsSubdomain = Annotated[str, AfterValidator(_dns_subdomain)]
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
