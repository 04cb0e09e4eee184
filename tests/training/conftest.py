"""A tiny dataset, and trainings on it that take a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from hopline.config import DatasetConfig, ExampleCounts, GraphConfig, ModelConfig, TrainingConfig
from hopline.datasets import Dataset, build_dataset
from hopline.model import GraphModel, build_model
from hopline.progress import Event
from hopline.storage import open_store
from hopline.training import Candidates, Checkpoints, GraphTrainer, SplitBatches, seed_everything

DATA = DatasetConfig(
    examples=ExampleCounts(train=64, valid=24, calibration=16, test=16),
    workers=1,
    min_nodes=8,
    max_nodes=14,
    missing_share=0.3,
)


class Events:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.all: list[Event] = []

    def emit(self, event: Event) -> None:
        self.all.append(event)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.all if event.kind == kind]


def assert_same_training(one: GraphTrainer, other: GraphTrainer) -> None:
    """Weights, moments, loop state and log are equal to the bit."""
    pairs = zip(one.model.state_dict().items(), other.model.state_dict().items(), strict=True)
    for (name, a), (other_name, b) in pairs:
        assert name == other_name
        assert torch.equal(a, b), name
    moments, others = (get_optimizer_state_dict(t.model, t.optimizer)["state"] for t in (one, other))
    assert moments.keys() == others.keys()
    for name, values in moments.items():
        for key, value in values.items():
            assert torch.equal(value, others[name][key]), (name, key)
    assert one.state == other.state
    assert one.log.to_bytes() == other.log.to_bytes()


class Bench:
    """Trainings on the tiny dataset, each with its stores in a folder of its own."""

    def __init__(self, dataset: Dataset, folder: Path) -> None:
        self.dataset = dataset
        self.folder = folder
        self.events = Events()

    def config(self, model: Mapping[str, Any] | None = None, **training: Any) -> GraphConfig:
        training = {
            "batch_size": 16,
            "max_steps": 12,
            "backward_chunk_size": 10,
            "evaluation_every": 4,
            "checkpoint_every": 4,
            "log_every": 3,
            **training,
        }
        model = {"hidden_dim": 8, "layers": 1, "dropout": 0.1, **(model or {})}
        return GraphConfig(name="test", dataset=DATA, model=ModelConfig(**model), training=TrainingConfig(**training))

    def model(self, config: GraphConfig) -> GraphModel:
        seed_everything(config.training.seed, deterministic=True)
        return build_model(config, self.dataset.vocabulary)

    def trainer(self, config: GraphConfig | None = None, **options: Any) -> GraphTrainer:
        config = config or self.config()
        return GraphTrainer(self.model(config), config, "cpu", sink=self.events, **options)

    def batches(self, config: GraphConfig | None = None, split: str = "train") -> SplitBatches:
        config = config or self.config()
        relations = self.dataset.vocabulary.num_relations
        return SplitBatches(self.dataset.split(split), config.training, num_relations=relations)

    def states(self, name: str = "run") -> Checkpoints:
        return Checkpoints(open_store(str(self.folder / name)), "states")

    def candidates(self, config: GraphConfig, name: str = "run") -> Candidates:
        return Candidates(open_store(str(self.folder / name)), "candidates", config, self.dataset.vocabulary)

    def state_file(self, file: str, step: int | None = None, name: str = "run") -> Path:
        """A file of a committed state, the newest unless a step is given."""
        states = self.states(name)
        step = states.committed()[-1] if step is None else step
        folder = self.folder / name / "states" / f"step-{step:08d}"
        return next(path for path in folder.rglob("*") if path.name == file)

    def resumed(self, config: GraphConfig, name: str = "run") -> GraphTrainer:
        """A fresh trainer that restored the newest state in the folder ``name``."""
        trainer = self.trainer(config)
        assert trainer.load_checkpoint(self.states(name)) is not None
        return trainer

    same = staticmethod(assert_same_training)

    def run(
        self,
        config: GraphConfig | None = None,
        *,
        name: str = "run",
        score: Callable[[int], float] = lambda step: (step * 7 % 11) / 11,
        **options: Any,
    ) -> GraphTrainer:
        """Train from the newest state in the folder ``name``, with scores by step, and return the trainer."""
        config = config or self.config()
        trainer = self.trainer(config)
        trainer.load_checkpoint(self.states(name))
        trainer.train(
            self.batches(config),
            evaluate=lambda model: {"overall.score": score(trainer.step)},
            checkpoints=self.states(name),
            candidates=self.candidates(config, name),
            **options,
        )
        return trainer


@pytest.fixture(scope="session")
def dataset_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    build_dataset(DATA, folder)
    return folder


@pytest.fixture(scope="session")
def dataset(dataset_folder: Path) -> Dataset:
    return Dataset.open(dataset_folder)


@pytest.fixture
def bench(dataset: Dataset, tmp_path: Path) -> Bench:
    return Bench(dataset, tmp_path)


@dataclass(frozen=True)
class Undisturbed:
    """A training of the default config from its start to its end, for comparison."""

    trainer: GraphTrainer
    states: list[int]
    candidates: list[int]


@pytest.fixture(scope="session")
def undisturbed(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    bench = Bench(dataset, tmp_path_factory.mktemp("undisturbed"))
    with torch_as_it_was():
        trainer = bench.run()
    return Undisturbed(trainer, bench.states().committed(), bench.candidates(trainer.config).steps())


@pytest.fixture(autouse=True)
def leave_torch_as_it_was() -> Iterator[None]:
    with torch_as_it_was():
        yield


@contextmanager
def torch_as_it_was() -> Iterator[None]:
    """Seeding switches global settings of torch on; other tests of the same process have theirs."""
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark, np.random.get_state()
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.backends.cudnn.benchmark = before[1]
    torch.backends.cudnn.deterministic = False
    np.random.set_state(before[2])
