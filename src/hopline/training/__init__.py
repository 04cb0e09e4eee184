"""Training: loss, schedule, guard, trainer, checkpoints, candidates and the run manifest."""

from hopline.config import ARCHITECTURE_VERSION
from hopline.training.batches import BatchSource, Chunk, SplitBatches, StepBatches
from hopline.training.candidate import CandidateIndex, LoadedCandidate, read_candidate, write_candidate
from hopline.training.candidates import Candidates, candidate_is_whole, fetch_candidate
from hopline.training.checkpoint_store import Checkpoints
from hopline.training.device import (
    DEVICE_MEMORY_HEADROOM,
    TRAINING_BYTES_PER_PARAMETER,
    rank_device,
    require_device_memory,
    resolve_device,
    settle_threads,
)
from hopline.training.distributed import ALONE, World, close_distributed, current_world, setup_distributed
from hopline.training.losses import COMPONENTS, PAIR_MARGIN, LossInputs, LossOutput, MultiTaskLoss
from hopline.training.manifest import build_run_manifest
from hopline.training.outputs import EvaluationEvent, TrainStepOutput
from hopline.training.parallel import require_parallelism
from hopline.training.reproducibility import CUBLAS_WORKSPACE_ENV, Determinism, model_hash, seed_everything
from hopline.training.state import CandidateRecord, TrainingState
from hopline.training.step_log import StepLog
from hopline.training.trainer import GraphTrainer

__all__ = [
    "ALONE",
    "ARCHITECTURE_VERSION",
    "COMPONENTS",
    "CUBLAS_WORKSPACE_ENV",
    "DEVICE_MEMORY_HEADROOM",
    "PAIR_MARGIN",
    "TRAINING_BYTES_PER_PARAMETER",
    "BatchSource",
    "CandidateIndex",
    "CandidateRecord",
    "Candidates",
    "Checkpoints",
    "Chunk",
    "Determinism",
    "EvaluationEvent",
    "GraphTrainer",
    "LoadedCandidate",
    "LossInputs",
    "LossOutput",
    "MultiTaskLoss",
    "SplitBatches",
    "StepBatches",
    "StepLog",
    "TrainStepOutput",
    "TrainingState",
    "World",
    "build_run_manifest",
    "candidate_is_whole",
    "close_distributed",
    "current_world",
    "fetch_candidate",
    "model_hash",
    "rank_device",
    "read_candidate",
    "require_device_memory",
    "require_parallelism",
    "resolve_device",
    "seed_everything",
    "settle_threads",
    "setup_distributed",
    "write_candidate",
]
