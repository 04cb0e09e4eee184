"""A published model, fetched, checked, and ready to answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hopline.config import ARCHITECTURE_VERSION, GraphConfig
from hopline.datasets import Vocabulary
from hopline.errors import DataError
from hopline.evaluation import Predictor
from hopline.lineage import Manifest, fetch_version, read_weights
from hopline.model import build_model
from hopline.stages.evaluation_record import METRICS_FILE, EvaluationRecord
from hopline.stages.roots import cache_folder

__all__ = ["PublishedModel", "load_published"]


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A published version on this machine."""

    manifest: Manifest
    manifest_hash: str
    config: GraphConfig
    vocabulary: Vocabulary
    predictor: Predictor


def load_published(uri: str) -> PublishedModel:
    """Fetch the version at ``uri`` (its folder or manifest.json), check every file against the manifest, build the model.

    Raises:
        NotFoundError: there is no such version.
        IntegrityError: a file was altered.
        DataError: it is no model, or one of another architecture version.
    """
    version = fetch_version(uri, cache_folder("models"))
    found = version.manifest.training.run_manifest.architecture_version
    if found != ARCHITECTURE_VERSION:
        raise DataError(
            f"{uri}: its architecture version is {found}, and this version of Hopline builds {ARCHITECTURE_VERSION}; "
            f"use Hopline {version.manifest.code.hopline}, or retrain"
        )
    config = GraphConfig.model_validate_json(_text(version.folder / "config.json"))
    vocabulary = Vocabulary.from_json(_text(version.folder / "vocabulary.json"))
    metrics = version.folder / METRICS_FILE
    record = EvaluationRecord.parse(metrics.read_bytes(), source=str(metrics))
    model = build_model(config, vocabulary)
    try:
        model.load_state_dict(read_weights(version.folder))
    except RuntimeError as error:
        what = " ".join(str(error).split())
        raise DataError(f"{uri}: its weights do not fit its config: {what}") from None
    predictor = Predictor(
        model.eval(),
        vocabulary,
        calibration=record.calibration.calibration(),
        max_paths=config.dataset.max_paths,
    )
    return PublishedModel(version.manifest, version.manifest_hash, config, vocabulary, predictor)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
