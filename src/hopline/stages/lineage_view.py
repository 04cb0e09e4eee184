"""The lineage of a published version, from its manifest and from what lies in the store beside it. Nothing is changed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from hopline.errors import ConfigError, DataError, IntegrityError, NotFoundError
from hopline.lineage import Manifest
from hopline.lineage.champion import ChampionPointer, history
from hopline.lineage.folder import VersionFolder, open_version
from hopline.lineage.names import ENVELOPE, MANIFEST
from hopline.report.lineage_data import LineageEdge, LineageGraph, LineageNode, NodeState
from hopline.stages.roots import dataset_prefix, open_root, run_prefix
from hopline.storage import Store, sha256_bytes
from hopline.storage.canonical import MAX_JSON_BYTES
from hopline.training.candidate import CandidateIndex

__all__ = ["view_lineage"]

_IN_ROOT: Final = re.compile(r"(?P<root>.+)/models/(?P<name>[^/]+)/[0-9a-f]{64}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NO_ROOT: Final = "there is no root to look in; give --root"
_INDEX: Final = "index.json"


def view_lineage(target: str, *, root: str | None = None) -> LineageGraph:
    """Follow a version back to its source files, and on to the champion.

    Args:
        target: the version's folder or manifest.json: a path, ``file://`` or ``s3://`` URI.
        root: where dataset, run and pointer are looked for; None = the root that the version lies in, if it lies in one.

    Raises:
        NotFoundError: there is no such version.
        DataError: its manifest is damaged or foreign: there is nothing to draw.
        StoreError: a store refuses or cannot be reached.
    """
    folder = open_version(target)
    data = folder.manifest()
    manifest, version = Manifest.parse(data, source=f"{folder.uri}/{MANIFEST}"), sha256_bytes(data)
    match = _IN_ROOT.fullmatch(folder.uri)
    if root is None and match is not None and match["name"] == manifest.name:
        root = match["root"]
    store = None if root is None else open_root(root)
    view = _View(manifest, version, folder, store)
    return LineageGraph(
        name=manifest.name,
        version=version,
        uri=folder.uri,
        root=None if store is None else store.base_uri,
        nodes=tuple(view.nodes),
        edges=tuple(view.edges),
    )


class _View:
    """Builds nodes and edges, from the source on."""

    def __init__(self, manifest: Manifest, version: str, folder: VersionFolder, store: Store | None) -> None:
        self.nodes: list[LineageNode] = []
        self.edges: list[LineageEdge] = []
        self._manifest = manifest
        self._version = version
        self._folder = folder
        self._store = store
        sources = [self._add(node) for node in self._sources()]
        parent = [self._add(node) for node in self._initial_checkpoint()]
        dataset = self._add(self._dataset(), sources)
        attempts = self._attempts(dataset, parent)
        candidates = self._candidates(attempts or [(0, dataset)])
        choice = self._add(self._choice(), candidates)
        self._add(self._champion(), [self._add(self._published(), [choice])])

    def _add(self, node: LineageNode, sources: Iterable[str] = ()) -> str:
        self.nodes.append(node)
        self.edges += [LineageEdge(source, node.id) for source in sources]
        return node.id

    def _sources(self) -> Iterator[LineageNode]:
        part = self._manifest.dataset
        if part.source is None or not part.source.files:
            facts = {
                "name": part.generator.name,
                "version": part.generator.version or "not known",
                "seed": str(part.seed),
            }
            yield LineageNode("source-1", "source", f"{part.generator.name} generator", facts, "recorded")
            return
        for number, file in enumerate(part.source.files, start=1):
            facts = {"source": part.source.uri, "bytes": f"{file.bytes:,}", "sha256": file.sha256}
            yield LineageNode(f"source-{number}", "source", file.path, facts, "recorded")

    def _initial_checkpoint(self) -> Iterator[LineageNode]:
        """What training began from, unless that was random weights."""
        parent = self._manifest.parents.initial_checkpoint
        if parent is None:
            return
        facts = {"sha256": parent.sha256, "source": parent.uri or "not known"}
        facts |= {} if parent.step is None else {"step": f"{parent.step:,}"}
        state, note = self._parent_state(parent.uri or "", parent.sha256)
        yield LineageNode("initial-checkpoint", "source", "initial checkpoint", facts, state, note)

    def _parent_state(self, uri: str, digest: str) -> tuple[NodeState, str]:
        """Whether the checkpoint lies in this root. It may come from another one, where nobody asked to look."""
        if self._store is None:
            return "unknown", _NO_ROOT
        for prefix in (_key_under(uri, "runs"), _key_under(uri, "imports")):
            if prefix is None:
                continue
            key = f"{prefix}/{_INDEX}"
            try:
                self._store.get_bytes(key, sha256=digest, max_bytes=MAX_JSON_BYTES)
            except (NotFoundError, ConfigError):
                continue
            except IntegrityError:
                return "altered", f"{self._store.uri(key)} has another digest"
            return "there", ""
        return "unknown", "it is not in this root"

    def _dataset(self) -> LineageNode:
        part = self._manifest.dataset
        facts = {"hash": part.dataset_hash}
        facts |= {name: f"{split.units:,} examples" for name, split in part.splits.items()}
        facts["split rule"] = part.split_rule or "not known"
        shards = [(shard.file, shard.bytes) for split in part.splits.values() for shard in split.shards]
        state, note = self._files(dataset_prefix(part.dataset_hash), [(_INDEX, None), *shards])
        return LineageNode("dataset", "dataset", part.dataset_hash[:12], facts, state, note)

    def _attempts(self, dataset: str, parent: list[str]) -> list[tuple[int, str]]:
        """The attempts, each with its first sample; the first of them began from the parent."""
        training = self._manifest.training
        prefix = run_prefix(training.run_hash)
        found: list[tuple[int, str]] = []
        for number, attempt in enumerate(training.attempts or (), start=1):
            facts = {
                "run": training.run_hash,
                "started": attempt.started or "not known",
                "ended": attempt.ended or "not known",
                "end": attempt.end_reason or "it was killed",
                "processes": str(attempt.ranks or "not known"),
                "samples": f"{attempt.first_sample or 0:,} to "
                + ("not known" if attempt.last_sample is None else f"{attempt.last_sample:,}"),
                "continued from state": attempt.resumed_from or "none",
            }
            state, note = self._files(f"{prefix}/attempts", [(f"{number:04d}.json", None)])
            node = LineageNode(f"attempt-{number}", "attempt", f"attempt {number}", facts, state, note)
            before = [found[-1][1]] if attempt.resumed_from is not None and found else [] if found else parent
            found.append((attempt.first_sample or 0, self._add(node, [dataset, *before])))
        return found

    def _candidates(self, attempts: list[tuple[int, str]]) -> list[str]:
        """The candidates; each came from the last attempt that began before it."""
        evaluation = self._manifest.evaluation
        weights = evaluation.rule.weights
        batch, ids = self._examples_a_step(), []
        for candidate in evaluation.candidates:
            facts = {
                "step": f"{candidate.step:,}",
                "score": "no number" if candidate.score is None else f"{candidate.score:.4f}",
                **(_figures(candidate.metrics, weights) if len(weights) > 1 else {}),
                "sha256": candidate.sha256,
            }
            state, note = self._indexed(_key_under(candidate.uri, "runs"), candidate.sha256)
            chosen = candidate.sha256 == evaluation.chosen.sha256
            name = f"candidate-{candidate.step}"
            node = LineageNode(name, "candidate", f"step {candidate.step:,}", facts, state, note, chosen)
            made_by = [attempt for first, attempt in attempts if first < candidate.step * batch] or [attempts[0][1]]
            ids.append(self._add(node, made_by[-1:]))
        return ids

    def _examples_a_step(self) -> int:
        training = self._manifest.config.resolved.get("training")
        sizes = (
            [training.get(name) for name in ("batch_size", "gradient_accumulation")]
            if isinstance(training, dict)
            else []
        )
        return math.prod(size for size in sizes if isinstance(size, int))

    def _choice(self) -> LineageNode:
        evaluation = self._manifest.evaluation
        step = evaluation.chosen.step
        facts = {"rule": evaluation.rule.text, "chosen": evaluation.chosen.sha256}
        facts |= {f"weight of {name}": f"{weight:g}" for name, weight in evaluation.rule.weights.items()}
        measured = _figures(evaluation.values(), evaluation.rule.weights)
        facts |= {f"{name} on {evaluation.split}": value for name, value in measured.items()}
        return LineageNode("choice", "choice", "not known" if step is None else f"step {step:,}", facts, "recorded")

    def _published(self) -> LineageNode:
        manifest, folder = self._manifest, self._folder
        listing = folder.listing()
        gone = [file.path for file in manifest.subjects.files if file.path not in listing.sizes]
        odd = [file.path for file in manifest.subjects.files if listing.sizes.get(file.path, file.size) != file.size]
        state: NodeState = "there"
        note = ""
        if _HASH.fullmatch(folder.name) and folder.name != self._version:
            state, note = "altered", f"the folder is {folder.name}, and the manifest's hash is another"
        elif odd:
            state, note = "altered", f"{odd[0]} has another size than the manifest says"
        elif gone:
            state, note = "missing", f"{gone[0]} is missing"
        gate = manifest.parents.gate
        facts = {
            "hash": self._version,
            "folder": folder.uri,
            "files": f"{len(manifest.subjects.files)}, {sum(file.size for file in manifest.subjects.files):,} bytes",
            "signature": "there is one; `hopline verify --key` checks it"
            if ENVELOPE in listing.sizes
            else "not signed",
            "commit": manifest.code.git_commit or manifest.code.reasons.get("git_commit", "not known"),
            "gate": f"{'accepted' if gate.accepted else 'refused'}: {'; '.join(gate.because)}",
        }
        compared = manifest.parents.champion
        if compared is not None:
            facts["compared with"] = compared.manifest_hash
        return LineageNode("version", "version", self._version[:12], facts, state, note)

    def _champion(self) -> LineageNode:
        try:
            chain = self._pointers()
        except (NotFoundError, IntegrityError, DataError) as error:
            return LineageNode("champion", "champion", "pointer damaged", {}, "altered", str(error))
        if chain is None:
            return LineageNode("champion", "champion", "not known", {}, "unknown", _NO_ROOT)
        if not chain:
            return LineageNode("champion", "champion", "none", {}, "missing", "the model has no champion pointer")
        now = chain[0]
        mine = [place for place, pointer in enumerate(chain) if pointer.manifest_hash == self._version]
        title = "this version" if mine and mine[0] == 0 else f"another: {now.manifest_hash[:12]}"
        facts = {"champion": now.manifest_hash, "since": now.decided_at, "grounds": "; ".join(now.decision)}
        if mine and mine[0] > 0:
            facts["this version was champion"] = f"{chain[mine[0]].decided_at} to {chain[mine[0] - 1].decided_at}"
        elif not mine:
            facts["this version was champion"] = "never"
        facts["moves of the pointer"] = str(len(chain))
        return LineageNode("champion", "champion", title, facts, "there")

    def _pointers(self) -> list[ChampionPointer] | None:
        """The pointer and its history, newest first; None where there is no place to look."""
        if self._store is not None:
            return history(self._store, self._manifest.name)
        found = self._folder.pointer()
        return None if found is None else [ChampionPointer.parse(found[1], source=found[0])]

    def _files(self, prefix: str, files: list[tuple[str, int | None]]) -> tuple[NodeState, str]:
        """Whether files lie under a prefix of the root, with their sizes where those are known."""
        if self._store is None:
            return "unknown", _NO_ROOT
        sizes = {info.key: info.size for info in self._store.list(f"{prefix}/")}
        for name, size in files:
            found = sizes.get(f"{prefix}/{name}")
            if found is None:
                return "missing", f"{self._store.uri(f'{prefix}/{name}')} is missing"
            if size not in (None, found):
                return "altered", f"{self._store.uri(f'{prefix}/{name}')} has {found} bytes, expected {size}"
        return "there", ""

    def _indexed(self, prefix: str | None, digest: str) -> tuple[NodeState, str]:
        """Whether a folder is there whose index has this digest, with the files that the index names."""
        if self._store is None:
            return "unknown", _NO_ROOT
        if prefix is None:
            return "unknown", "its URI is in no root"
        key = f"{prefix}/{_INDEX}"
        try:
            index = CandidateIndex.parse(self._store.get_bytes(key, sha256=digest), source=self._store.uri(key))
        except NotFoundError:
            return "missing", f"{self._store.uri(key)} is missing"
        except IntegrityError:
            return "altered", f"{self._store.uri(key)} has another digest"
        except (ConfigError, DataError) as error:
            return "unknown", str(error)
        return self._files(prefix, [(file.path, file.bytes) for file in index.files])


def _key_under(uri: str, first: str) -> str | None:
    """The key of a URI in a root that may have moved since: from the last folder of this name on."""
    _, separator, rest = uri.rpartition(f"/{first}/")
    return f"{first}/{rest}" if separator else None


def _figures(values: Mapping[str, float | None], names: Iterable[str]) -> dict[str, str]:
    """The figures of these names that are known, for people."""
    return {name: f"{value:.4f}" for name in names if (value := values.get(name)) is not None}
