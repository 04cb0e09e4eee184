"""Training states and candidates of a run in the root store."""

from __future__ import annotations

from hopline.config import GraphConfig
from hopline.datasets import Vocabulary
from hopline.stages.results import CandidateResult
from hopline.stages.roots import key_of, run_prefix
from hopline.storage import Store
from hopline.training import Candidates, Checkpoints, LoadedCandidate, candidate_is_whole, fetch_candidate

__all__ = ["candidate_is_there", "load_candidate", "run_candidates", "run_checkpoints"]


def run_checkpoints(store: Store, run_hash: str) -> Checkpoints:
    """The training states of a run: ``runs/<run_hash>/checkpoints/``."""
    return Checkpoints(store, f"{run_prefix(run_hash)}/checkpoints")


def run_candidates(store: Store, run_hash: str, config: GraphConfig, vocabulary: Vocabulary) -> Candidates:
    """The candidates of a run: ``runs/<run_hash>/candidates/``."""
    return Candidates(store, f"{run_prefix(run_hash)}/candidates", config, vocabulary)


def load_candidate(store: Store, candidate: CandidateResult) -> LoadedCandidate:
    """A recorded candidate; see :func:`hopline.training.fetch_candidate`."""
    return fetch_candidate(store, key_of(store, candidate.uri), candidate.sha256)


def candidate_is_there(store: Store, candidate: CandidateResult) -> bool:
    """Whether a recorded candidate is complete; see :func:`hopline.training.candidate_is_whole`."""
    return candidate_is_whole(store, key_of(store, candidate.uri), candidate.sha256)
