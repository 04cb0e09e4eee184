"""Why a stage is redone: what its request has in another way than the nearest one that was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from hopline.errors import DataError, NotFoundError
from hopline.stages.identity import STAGE_PACKAGES, code_digest
from hopline.storage import Store, parse_json

__all__ = ["Cause", "Nearest", "nearest_record"]

CauseKind = Literal["first", "config", "source", "code", "input", "format", "depends", "gone", "altered"]

_SECTIONS: Final[Mapping[str, str]] = {"config": "", "selection": "evaluation.selection"}
"""Inputs of a request that are config keys under another name than their own."""
_INPUTS: Final[Mapping[str, str]] = {
    "dataset_hash": "dataset",
    "run_hash": "run",
    "candidates": "candidates",
    "checkpoint_sha256": "checkpoint",
    "evaluation": "evaluation",
}
"""Inputs that are outputs of earlier stages, and what they are called."""
_TRANSFERS: Final = 8
_SHORT: Final = 12
_LONGEST: Final = 60


class Cause(BaseModel):
    """One reason why a stage is redone.

    ``kind``: ``first`` (nothing is recorded of the stage), ``config`` (a key), ``source`` (a file of the source), ``code``
    (a package), ``input`` (what an earlier stage made), ``format`` (of the records), ``depends`` (an earlier stage is
    redone), ``gone`` or ``altered`` (a file of the output).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: CauseKind
    name: str
    """The key, file, package, stage or URI."""
    before: JsonValue = None
    """What was recorded; null where there was nothing."""
    now: JsonValue = None

    def __str__(self) -> str:
        before, now = _shown(self.before), _shown(self.now)
        match self.kind:
            case "first":
                return f"no {self.name} is recorded in this root"
            case "config":
                return f"{self.name}: {before} -> {now}"
            case "source" if self.before is None or self.now is None:
                return f"source file {self.name} is {'new' if self.before is None else 'gone'}"
            case "source":
                return f"source file {self.name} changed: {before} -> {now}"
            case "code":
                return f"code changed: {self.name}"
            case "input":
                return f"another {self.name}: {before} -> {now}"
            case "format":
                return f"format of the records: {before} -> {now}"
            case "depends":
                return f"depends on {self.name}"
            case "gone":
                return f"{self.name} is gone"
            case _ if before == now:
                return f"{self.name} was altered"
            case _:
                return f"{self.name} was altered: {before} bytes expected, {now} found"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The recorded request that differs least.

    Attributes:
        request_hash: names the record; None = there is none.
        causes: the differences.
    """

    request_hash: str | None
    causes: tuple[Cause, ...]


def nearest_record(store: Store, document: Mapping[str, Any], *, unknown: frozenset[str] = frozenset()) -> Nearest:
    """Find the record that differs least from a request, and in what. Records that cannot be read are passed over.

    Args:
        store: of the root.
        document: of the request, as :meth:`hopline.stages.requests.Request.document` gives it.
        unknown: inputs that an earlier stage has yet to make; they are not compared.
    """
    stage = str(document["stage"])
    prefix = f"requests/{stage}/"
    keys = [info.key for info in store.list(prefix)]
    keys = [key for key in keys if key.count("/") == 2 and key.endswith(".json")]
    best: Nearest | None = None
    with ThreadPoolExecutor(max_workers=_TRANSFERS, thread_name_prefix="plan") as pool:
        for key, record in zip(keys, pool.map(lambda key: _read(store, key), keys), strict=True):
            if record is None:
                continue
            causes = tuple(_differences(document, record, unknown))
            if best is None or len(causes) < len(best.causes):
                best = Nearest(key.removeprefix(prefix).removesuffix(".json"), causes)
    return best or Nearest(None, (Cause(kind="first", name=f"{stage} output"),))


def _read(store: Store, key: str) -> dict[str, Any] | None:
    try:
        record = parse_json(store.get_bytes(key), source=store.uri(key))
    except (NotFoundError, DataError):
        return None
    request = record.get("request") if isinstance(record, dict) else None
    return record if isinstance(request, dict) and isinstance(request.get("inputs"), dict) else None


def _differences(document: Mapping[str, Any], record: Mapping[str, Any], unknown: frozenset[str]) -> Iterator[Cause]:
    request = record["request"]
    if request.get("schema") != document["schema"]:
        yield Cause(kind="format", name="schema", before=request.get("schema"), now=document["schema"])
    before, now = request["inputs"], document["inputs"]
    made = [name for name in _INPUTS if name in now and _is_output(name, now) and name not in unknown]
    for name in made:
        # Another run has other candidates: one of the two says it.
        if before.get(name) != now[name] and not (name == "candidates" and before.get("run_hash") != now["run_hash"]):
            yield Cause(kind="input", name=_INPUTS[name], before=_told(before.get(name)), now=_told(now[name]))
    for name in now:
        if name == "source":
            yield from _leaves("source", "", _mapping(before.get(name)), now[name])
        elif name not in made and name not in unknown:
            yield from _leaves("config", _SECTIONS.get(name, name), before.get(name), now[name])
    if request.get("code") != document["code"]:
        yield from _code(str(document["stage"]), record.get("packages"))


def _is_output(name: str, inputs: Mapping[str, Any]) -> bool:
    """``evaluation`` is a config section where the evaluation is asked for, and a folder where one is published."""
    return name != "evaluation" or isinstance(inputs[name], str)


def _leaves(kind: Literal["config", "source"], name: str, before: Any, now: Any) -> Iterator[Cause]:
    """The places where two values differ; a mapping is entered (a source's file names hold dots, and none is nested)."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from _leaves(kind, f"{name}.{key}" if name else key, before.get(key), now.get(key))
    elif before != now:
        yield Cause(kind=kind, name=name, before=before, now=now)


def _code(stage: str, recorded: Any) -> Iterator[Cause]:
    packages = STAGE_PACKAGES[stage]
    known = _mapping(recorded)
    changed = [name for name in packages if name in known and known[name] != code_digest([name])]
    if not changed:  # a record from before packages were told apart
        changed = [f"one of {', '.join(packages)}"]
    for name in changed:
        yield Cause(kind="code", name=name)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _told(value: Any) -> JsonValue:
    return value.rpartition("/")[2] if isinstance(value, str) else value


def _shown(value: JsonValue) -> str:
    if value is None:
        return "not set"
    # Canonical JSON writes 1.0 as 1.
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if len(text) == 64 and " " not in text:
        return text[:_SHORT]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
