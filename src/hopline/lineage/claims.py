"""What a manifest claims of itself and can be computed again from it alone: pure functions, one claim each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ValidationError

import hopline
from hopline.config import GateConfig, GraphConfig, section_hash
from hopline.errors import HoplineError
from hopline.lineage.facts import section_hashes
from hopline.lineage.gate import Measured, decide
from hopline.lineage.manifest import Manifest, explain
from hopline.lineage.schema import (
    Candidate as Row,
)
from hopline.lineage.schema import (
    EvaluationPart,
)
from hopline.lineage.values import portable, printable, restored

__all__ = ["Claim", "Status", "manifest_claims"]

Status = Literal["OK", "FAIL", "NOT CHECKED"]

_TOLERANCE: Final = 1e-9
"""Relative; a score is a mean of a few numbers, and another machine may round its last bit otherwise."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that was checked, or why it was not."""

    name: str
    status: Status
    detail: str

    def __post_init__(self) -> None:
        # Both may quote what a stranger wrote: it must not steer a terminal, nor turn the order of letters around.
        object.__setattr__(self, "name", printable(self.name))
        object.__setattr__(self, "detail", printable(self.detail))


def manifest_claims(manifest: Manifest) -> Iterator[Claim]:
    """Check everything that a manifest says twice, or that follows from other things it says."""
    yield config_hashes(manifest)
    yield selection_rule(manifest)
    yield candidate_scores(manifest.evaluation)
    yield candidate_choice(manifest.evaluation)
    yield chosen_weights(manifest)
    yield test_split(manifest)
    yield gate_decision(manifest)


def config_hashes(manifest: Manifest) -> Claim:
    """Hash the recorded config again, whole and by section."""
    name, part = "config hashes", manifest.config
    config, problem = recorded_config(manifest)
    if config is None:
        if manifest.code.hopline != hopline.__version__:
            made_by = f"it was written by Hopline {manifest.code.hopline}, and this is {hopline.__version__}"
            return Claim(name, "NOT CHECKED", f"the config cannot be read by this version ({problem}); {made_by}")
        return Claim(name, "FAIL", f"the recorded config is not valid: {problem}")
    found = {**section_hashes(config), "whole config": section_hash(config)}
    said = {**part.sections, "whole config": part.config_hash}
    for section in sorted(found.keys() | said.keys()):
        if found.get(section) != said.get(section):
            return Claim(name, "FAIL", f"{section}: hash {found.get(section)}, the manifest says {said.get(section)}")
    if config.name != manifest.name:
        return Claim(name, "FAIL", f"the config is of the model {config.name}, the manifest of {manifest.name}")
    return Claim(name, "OK", f"{len(part.sections)} sections, config {part.config_hash[:12]}")


def selection_rule(manifest: Manifest) -> Claim:
    """The weights of the rule are those of the config."""
    section = manifest.config.resolved.get("evaluation")
    said = section.get("selection") if isinstance(section, dict) else None
    used = manifest.evaluation.rule.weights
    if said != used:
        return Claim("selection rule", "FAIL", f"the rule weighs {_short(used)}, and the config says {_short(said)}")
    return Claim("selection rule", "OK", manifest.evaluation.rule.text)


def candidate_scores(evaluation: EvaluationPart) -> Claim:
    """Compute every candidate's score again from its metrics on valid."""
    from hopline.evaluation import selection_score  # brings torch along, which is not needed to look at a folder

    name, rows = "candidate scores", evaluation.candidates
    weights = {metric: weight for metric, weight in evaluation.rule.weights.items() if weight > 0}
    if not weights:
        return Claim(name, "FAIL", "the rule has no weight above 0, so no score can follow from it")
    open_rows = []
    for row in rows:
        missing = sorted(set(weights) - set(row.metrics))
        if missing and row.score is not None:
            open_rows.append(f"step {row.step}: {missing[0]} is not recorded")
        if missing:
            continue
        found = selection_score(row.metrics, weights)
        if row.score is None or not math.isclose(found, row.score, rel_tol=_TOLERANCE, abs_tol=1e-12):
            return Claim(name, "FAIL", f"step {row.step}: its metrics give {found!r}, the table says {row.score!r}")
    if open_rows:
        return Claim(name, "NOT CHECKED", "; ".join(open_rows))
    return Claim(name, "OK", f"{len(rows)} candidates")


def candidate_choice(evaluation: EvaluationPart) -> Claim:
    """Choose again from the table."""
    from hopline.evaluation import Candidate, choose

    name, chosen = "candidate choice", evaluation.chosen
    table = [Candidate(row.step, _score(row), row.sha256, row.metrics) for row in evaluation.candidates]
    try:
        choice = choose(table, evaluation.rule.weights)
    except HoplineError as error:
        return Claim(name, "FAIL", f"the rule chooses none: {error}")
    if (choice.step, choice.sha256) != (chosen.step, chosen.sha256):
        return Claim(
            name,
            "FAIL",
            f"the rule chooses step {choice.step} ({choice.sha256[:12]}), the manifest says step {chosen.step} "
            f"({chosen.sha256[:12]})",
        )
    return Claim(name, "OK", f"step {choice.step} of {len(table)} candidates, score {choice.score:.6g}")


def chosen_weights(manifest: Manifest) -> Claim:
    """The published weights are those of the chosen candidate, and the training record is about its run."""
    name, chosen = "chosen checkpoint", manifest.evaluation.chosen
    record = manifest.training.run_manifest
    steps = manifest.training.steps
    if chosen.step is None or chosen.step > steps:
        return Claim(name, "FAIL", f"step {chosen.step} was chosen, and training took {steps} steps")
    if record.step is not None and record.step not in (chosen.step, steps):
        return Claim(name, "FAIL", f"the training record is of step {record.step}, neither the chosen nor the last")
    if record.dataset_hash is not None and record.dataset_hash != manifest.dataset.dataset_hash:
        found, said = record.dataset_hash[:12], manifest.dataset.dataset_hash[:12]
        return Claim(name, "FAIL", f"it was trained on dataset {found}, and the manifest is about dataset {said}")
    row = next((row for row in manifest.evaluation.candidates if row.sha256 == chosen.sha256), None)
    if row is None:
        return Claim(name, "FAIL", f"{chosen.sha256[:12]} is not in the table of candidates")
    if row.tensors_digest is None:
        return Claim(name, "NOT CHECKED", f"the candidate's tensors digest is null: {row.reasons['tensors_digest']}")
    published = manifest.subjects.tensors_digest
    if row.tensors_digest != published:
        return Claim(name, "FAIL", f"its weights are {row.tensors_digest[:12]}, the published ones {published[:12]}")
    return Claim(name, "OK", f"step {row.step}: the published weights are those of candidate {row.sha256[:12]}")


def test_split(manifest: Manifest) -> Claim:
    """The metrics were measured on a split of this dataset."""
    evaluation = manifest.evaluation
    split = manifest.dataset.splits.get(evaluation.split)
    if split is None or split.digest != evaluation.split_digest:
        found = "there is no such split" if split is None else f"its digest is {split.digest}"
        said = f"the metrics are of {evaluation.split!r} with digest {evaluation.split_digest}"
        return Claim("test split", "FAIL", f"{said}; in the dataset {found}")
    return Claim("test split", "OK", f"{evaluation.split}: {split.units} examples, {split.digest[:12]}")


def gate_decision(manifest: Manifest) -> Claim:
    """Decide again from the recorded metrics."""
    name, parents, evaluation = "gate decision", manifest.parents, manifest.evaluation
    gate = GateConfig(minimum=parents.gate.minimum, allowed_regression=parents.gate.allowed_regression)
    section = manifest.config.resolved.get("publish")
    said = section.get("gate") if isinstance(section, dict) else None
    if said != portable(gate.model_dump(mode="json")):
        return Claim(
            name, "FAIL", f"the gate is {_short(portable(gate.model_dump()))}, and the config says {_short(said)}"
        )
    champion = parents.champion
    before = None if champion is None else Measured(champion.manifest_hash, champion.split_digest, champion.metrics)
    decision = decide(gate, Measured("", evaluation.split_digest, evaluation.values()), before)
    if decision.accepted != parents.gate.accepted:
        words = {True: "accepts", False: "refuses"}
        return Claim(
            name,
            "FAIL",
            f"the gate {words[decision.accepted]} it, the manifest says that it {words[parents.gate.accepted]} it: "
            + "; ".join(decision.reasons),
        )
    return Claim(name, "OK", f"{'accepted' if decision.accepted else 'refused'}: {'; '.join(decision.reasons)}")


def recorded_config(manifest: Manifest) -> tuple[GraphConfig | None, str]:
    """Return the recorded config as this version reads it, or None and why it cannot."""
    problem = ""
    for value in (manifest.config.resolved, restored(manifest.config.resolved)):
        try:
            return GraphConfig.model_validate_json(json.dumps(value)), ""
        except ValidationError as error:
            problem = explain(error)
    return None, problem


def _score(row: Row) -> float:
    return -math.inf if row.score is None else row.score


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 120 else f"{text[:117]}..."
