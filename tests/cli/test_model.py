"""``hopline model show``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hopline.cluster import check_document, job_spec, render_pytorchjob
from hopline.config import load_config
from hopline.datasets import Dataset
from hopline.model import build_model
from hopline.stages import encode_config, model_view
from hopline.stages.model_view import view_model
from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG, hopline

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "configs" / "reasoner-3b.yaml"


def test_the_numbers_are_those_of_the_real_model(finished: Finished) -> None:
    """G48: the parameters, the buckets and every shape are those of the model that training makes."""
    shown = hopline("model", "show", "-c", CONFIG, "--root", finished.root, "--json").result
    config = load_config(CONFIG).config
    folder = finished.root / "datasets" / finished.results["generate"]["dataset_hash"]
    model = build_model(config, Dataset.open(folder).vocabulary)
    assert shown["parameters"] == sum(p.numel() for p in model.parameters())
    assert shown["parameter_buckets"] == dict(model.parameter_buckets())
    tensors = {f"{part['name']}.{name}": shape for part in shown["parts"] for name, shape in part["tensors"].items()}
    assert tensors == {name: list(p.shape) for name, p in model.named_parameters()}
    assert (shown["num_relations"], shown["num_entities"]) == (6, 0)


def test_the_text_has_parts_memory_and_work() -> None:
    done = hopline("model", "show", "-c", CONFIG, "--gpus", "2,4")
    assert (done.code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tiny: ")
    assert lines[1] == "vocabulary: 6 relations, 0 entities (from the synthetic world)"
    assert any(line.startswith("propagation ") and "(each 2 times)" in line for line in lines)
    rows = [line.split()[:2] for line in lines if line.startswith(("none", "ddp", "fsdp"))]
    assert rows == [["none", "1"], ["ddp", "2"], ["ddp", "4"], ["fsdp", "2"], ["fsdp", "4"]]
    assert "Memory of a rank in MiB, fp32" in done.stdout
    assert "GFLOP forward" in lines[-1]


def test_a_frozen_encoder_needs_less() -> None:
    """G9, D48."""
    plain = hopline("model", "show", "-c", CONFIG, "--json").result
    frozen = hopline("model", "show", "-c", CONFIG, "--json", "--set", "training.freeze_query_encoder=true").result
    encoder = plain["parameter_buckets"]["query_encoder"]
    assert frozen["parameters"] - frozen["trained"] == encoder
    assert plain["memory"][0]["gradients"] - frozen["memory"][0]["gradients"] == 4 * encoder
    assert plain["memory"][0]["weights"] == frozen["memory"][0]["weights"]


def test_a_chunk_is_a_share_of_the_batch_within_its_bounds() -> None:
    rows = {m["gpus"]: m["chunk_rows"] for m in _memory("training.batch_size=64", "--gpus", "1,4,100")}
    assert rows == {1: 64, 4: 16, 100: 1}
    assert {m["chunk_rows"] for m in _memory("training.backward_chunk_size=8", "--gpus", "1")} == {8}
    assert {m["chunk_rows"] for m in _memory("training.backward_chunk_nodes=24", "--gpus", "1")} <= {1, 2, 3}


def _memory(override: str, *arguments: str) -> list[dict]:
    return hopline("model", "show", "-c", CONFIG, "--json", "--set", override, *arguments).result["memory"]


def test_the_sizes_of_a_vocabulary(tmp_path: Path) -> None:
    """From the options; without a dataset in the root the error names both ways."""
    config = ROOT / "configs" / "umls.yaml"
    error = hopline("model", "show", "-c", config, "--root", tmp_path).error
    assert "hopline generate -c" in error
    assert "or give --relations (and --entities)" in error
    shown = hopline("model", "show", "-c", config, "--root", tmp_path, "--relations", 46, "--entities", 135, "--json")
    result = shown.result
    assert (result["num_relations"], result["num_entities"], result["vocabulary"]) == (46, 135, "the options")
    assert result["cost"] is None
    assert result["memory"][0]["activations"] is None
    assert "needs entities" in hopline("model", "show", "-c", config, "--root", tmp_path, "--relations", 46).error


def test_the_sizes_of_a_dataset_in_the_root(tmp_path: Path) -> None:
    (tmp_path / "triples").mkdir()
    for name in ("train", "valid", "test"):
        shift = {"train": 0, "valid": 3, "test": 5}[name]
        lines = [f"e{i}\tr{i % 3}\te{(i * 7 + 1 + shift) % 40}" for i in range(40 if name == "train" else 6)]
        (tmp_path / "triples" / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    config = tmp_path / "triples.yaml"
    text = f"name: own\ndataset: {{source: {tmp_path / 'triples'}, entities: identity, workers: 1, min_nodes: 4,"
    text += " max_nodes: 9,"
    text += " kinds: {multi_hop: 0, count: 0, aggregate: 0, boolean: 0, relation: 0}}\n"
    config.write_text(f"{text}model: {{hidden_dim: 16, layers: 2, transductive: true, transductive_rank: 8}}\n")
    made = hopline("generate", "-c", config, "--root", tmp_path / "root", "--json").result
    shown = hopline("model", "show", "-c", config, "--root", tmp_path / "root", "--json").result
    assert shown["vocabulary"] == f"dataset {made['dataset_hash'][:12]}"
    assert shown["num_relations"] == 3
    assert shown["num_entities"] >= 40
    assert shown["cost"]["nodes"] <= 9
    assert shown["cost"]["activation_bytes"] > 0


@pytest.mark.parametrize("gpus", ["", "8,", "a", "0"])
def test_wrong_numbers_of_gpus(gpus: str) -> None:
    done = hopline("model", "show", "-c", CONFIG, "--gpus", gpus)
    assert done.code == 2
    assert "expected numbers of GPUs such as 8,16,64" in done.stderr


def test_the_recipe_has_three_billion_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 3B recipe: max_steps 100,000, a curriculum by step (G18), selection on policy (G25), bf16, sharded, several nodes;
    within 5% of three billion parameters, and a rank fits an 80 GB device with room to spare (G3)."""
    monkeypatch.setattr(model_view, "_SAMPLE", 2)
    resolved = load_config(RECIPE)
    config = resolved.config
    assert (config.training.max_steps, config.training.precision, config.training.parallelism) == (
        100_000,
        "bf16",
        "fsdp",
    )
    assert config.training.curriculum
    assert config.training.curriculum[-1].until_step < config.training.max_steps
    assert config.model.on_policy_selection
    assert (config.cluster.backend, config.cluster.resources.gpus) == ("pytorchjob", 8)
    assert config.cluster.nodes > 1
    view = view_model(resolved, root="/nowhere", gpus=(8, 16, 64))
    assert view.parameters == pytest.approx(3e9, rel=0.05)
    sharded = {memory.gpus: memory for memory in view.memory if memory.parallelism == "fsdp"}
    assert sorted(sharded) == [8, 16, 64]
    totals = [sharded[world].total for world in (8, 16, 64)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] < 0.85 * 80e9
    whole = next(memory for memory in view.memory if memory.parallelism == "none")
    assert whole.weights + whole.gradients + whole.moments == 16 * view.parameters
    owned = sharded[64].weights + sharded[64].gradients + sharded[64].moments
    assert owned == pytest.approx(16 * view.parameters / 64, rel=1e-6)
    assert json.loads(view.model_dump_json())["cost"]["training_flops"] > 1e11


def test_the_job_of_the_recipe_is_valid() -> None:
    """Eight nodes of eight GPUs, as the CRD, the operator and Pod Security take it."""
    resolved = load_config(RECIPE, ["cluster.image=registry.example/hopline/train:1.0"])
    spec = job_spec(resolved.config, config_json=encode_config(resolved), root="s3://bucket/root")
    job = render_pytorchjob(spec)
    assert check_document(job).status == "OK", check_document(job).findings
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {role: replica.get("replicas", 1) for role, replica in replicas.items()} == {"Master": 1, "Worker": 7}
    assert job["spec"]["nprocPerNode"] == "8"
    (container,) = replicas["Worker"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] in (8, "8")
