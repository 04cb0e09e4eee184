"""Datasets: made or imported, written as shards, named by their content, and read at random."""

from hopline.datasets.build import GENERATOR_NAME, GENERATOR_VERSION, build_dataset
from hopline.datasets.convert import columns_from_examples, concat_columns, examples_from_columns, take_rows
from hopline.datasets.dataset import Dataset, ShardFiles, Split, UnitSizes
from hopline.datasets.index import INDEX_FILE, DatasetIndex, ShardInfo, SourceFile, SourceFiles, SplitIndex
from hopline.datasets.jsonl import ImportedExample, example_to_json, read_examples, write_examples
from hopline.datasets.overview import GraphSizes, SizeSummary, graph_sizes
from hopline.datasets.paths import candidate_paths
from hopline.datasets.patterns import Patterns
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.sampler import BatchSampler, Eligible, UnitSet, epoch_order
from hopline.datasets.solver import Verdict
from hopline.datasets.source import snapshot_source
from hopline.datasets.splits import SPLITS
from hopline.datasets.validation import check_solution, check_structure
from hopline.datasets.vocabulary import Rule, Vocabulary

__all__ = [
    "GENERATOR_NAME",
    "GENERATOR_VERSION",
    "INDEX_FILE",
    "SPLITS",
    "BatchSampler",
    "Dataset",
    "DatasetIndex",
    "Eligible",
    "GraphSizes",
    "ImportedExample",
    "Patterns",
    "Rule",
    "RuleBook",
    "ShardFiles",
    "ShardInfo",
    "SizeSummary",
    "SourceFile",
    "SourceFiles",
    "Split",
    "SplitIndex",
    "UnitSet",
    "UnitSizes",
    "Verdict",
    "Vocabulary",
    "build_dataset",
    "candidate_paths",
    "check_solution",
    "check_structure",
    "columns_from_examples",
    "concat_columns",
    "epoch_order",
    "example_to_json",
    "examples_from_columns",
    "graph_sizes",
    "read_examples",
    "snapshot_source",
    "take_rows",
    "write_examples",
]
