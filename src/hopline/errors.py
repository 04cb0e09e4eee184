"""The exception tree of Hopline, and the process exit codes that go with it.

::

    HoplineError                     exit 2 unless a subclass says otherwise
    ├── UserError                    the user's input, config or data; exit 2
    │   ├── ConfigError              a config file, key or value
    │   ├── DataError                a source file, a dataset, an example
    │   └── NotFoundError            something named by the user does not exist
    ├── IntegrityError               bytes do not match the hash under which they were asked for; exit 2
    ├── StoreError                   a store refuses or cannot be reached; exit 2
    │   ├── StoreAccessError         wrong keys, no permission, missing bucket: retrying cannot help
    │   └── StoreUnavailableError    unreachable or failing after every retry: worth another try later
    ├── ClaimError                   a claim does not hold (verify, lint, validate, doctor); exit 1
    ├── TrainingDivergedError    non-finite updates in a row; exit 3
    ├── PeerLostError            a process of a group was lost; worth another try; exit 137
    └── TerminatedError          SIGTERM arrived and the state was saved; exit 143

A message names the file, key or URI, what was found, what was expected and what to do; it is one line long, and the
command line prints it without a traceback (``--debug`` shows the traceback).
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ClaimError",
    "ConfigError",
    "DataError",
    "HoplineError",
    "IntegrityError",
    "NotFoundError",
    "PeerLostError",
    "StoreAccessError",
    "StoreError",
    "StoreUnavailableError",
    "TerminatedError",
    "TrainingDivergedError",
    "UserError",
]


class HoplineError(Exception):
    """Base of every error that Hopline raises on purpose."""

    exit_code: ClassVar[int] = 2


class UserError(HoplineError):
    """What the user gave cannot be used as it stands."""


class ConfigError(UserError):
    """A config file, key or value is wrong."""


class DataError(UserError):
    """A source file, a dataset or an example is wrong."""


class NotFoundError(UserError):
    """Something that the user named does not exist."""


class IntegrityError(HoplineError):
    """Bytes do not match the digest or size under which they were asked for."""


class StoreError(HoplineError):
    """A store refuses or cannot be reached."""


class StoreAccessError(StoreError):
    """The store answered, and refuses: wrong keys, no permission, no such bucket."""


class StoreUnavailableError(StoreError):
    """The store did not answer, or kept failing, after every retry."""


class ClaimError(HoplineError):
    """A claim that was checked does not hold."""

    exit_code = 1


class TrainingDivergedError(HoplineError):
    """Training produced non-finite updates several times in a row."""

    exit_code = 3


class PeerLostError(HoplineError):
    """A process that trains together with others ended without a reason, after every restart."""

    exit_code = 137


class TerminatedError(HoplineError):
    """SIGTERM arrived, the training state was saved, and the run can continue from it."""

    exit_code = 143
