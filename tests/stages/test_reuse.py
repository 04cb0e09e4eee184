"""What is redone after a change, and what is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import hopline
from hopline.stages import identity
from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG, chain, content, reused, stage, tree


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (["dataset.seed=2"], [False, False, False, False]),
        (["evaluation.calibration_bins=5"], [True, True, False, False]),
        (["publish.gate.minimum={link.mrr: 0.0}"], [True, True, True, False]),
        (
            [
                "dataset.workers=2",
                "dataset.shard_size=7",
                "training.log_every=5",
                "training.checkpoint_every=3",
                "training.keep_checkpoints=3",
                "training.backward_chunk_size=8",
            ],
            [True, True, True, False],
        ),
    ],
    ids=lambda value: value[0].partition("=")[0] if isinstance(value[0], str) else None,
)
def test_a_changed_key_redoes_what_depends_on_it(root: Path, sets: list[str], expected: list[bool]) -> None:
    assert reused(chain(root, *sets)) == expected
    assert reused(chain(root, *sets)) == [True] * 4, "and the second time nothing"
    assert reused(chain(root)) == [True] * 4, "and what was there before is still there"


def test_another_learning_rate_is_another_run_on_the_same_data(finished: Finished, root: Path) -> None:
    again = chain(root, "training.learning_rate=0.01")
    assert reused(again) == [True, False, False, False]
    assert again["generate"]["dataset_hash"] == finished.results["generate"]["dataset_hash"]
    assert again["train"]["run_hash"] != finished.results["train"]["run_hash"]
    assert {c["sha256"] for c in again["train"]["candidates"]}.isdisjoint(
        c["sha256"] for c in finished.results["train"]["candidates"]
    )


@pytest.mark.parametrize("sets", [("dataset.workers=2",), ("dataset.shard_size=13",)])
def test_workers_and_shard_size_change_no_hash(finished: Finished, tmp_path: Path, sets: tuple[str, ...]) -> None:
    made = stage("generate", tmp_path / "root", *sets).result
    assert made["reused"] is False
    assert made["dataset_hash"] == finished.results["generate"]["dataset_hash"]


def test_keys_that_change_no_weights_change_no_candidate(finished: Finished, tmp_path: Path) -> None:
    """Another machine with other processors, cadences and gates makes the same run, to the byte."""
    sets = (
        "dataset.workers=2",
        "dataset.shard_size=50",
        "training.backward_chunk_size=64",
        "training.checkpoint_every=0",
        "training.log_every=6",
        "evaluation.batch_size=30",
        "evaluation.samples=0",
        "publish.gate.minimum={link.mrr: 0.5}",
    )
    stage("generate", tmp_path / "root", *sets).result  # noqa: B018 - it checks the exit code
    run = stage("train", tmp_path / "root", *sets).result
    assert run["run_hash"] == finished.results["train"]["run_hash"]
    assert [c["sha256"] for c in run["candidates"]] == [c["sha256"] for c in finished.results["train"]["candidates"]]


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Make the stages see a copy of the package in which a source file has one line more."""
    copy = tmp_path / "copy"
    shutil.copytree(Path(hopline.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity, "hopline", SimpleNamespace(__file__=str(copy / "__init__.py")))

    def add_a_line(name: str) -> None:
        with (copy / name).open("a") as file:
            file.write("\n")
        identity._digest.cache_clear()

    identity._digest.cache_clear()
    yield add_a_line
    identity._digest.cache_clear()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("cli/stages.py", [True, True, True, True]),
        ("lineage/verify.py", [True, True, True, False]),
        ("report/html.py", [True, True, False, False]),
        ("report/templates/report.css", [True, True, False, False]),
        ("model/heads.py", [True, False, False, False]),
        ("training/losses.py", [True, False, False, False]),
        ("datasets/splits.py", [False, False, False, False]),
        ("graph/example.py", [False, False, False, False]),
    ],
)
def test_edited_code_redoes_the_stages_that_use_it(
    root: Path, edit: Callable[[str], None], source: str, expected: list[bool]
) -> None:
    """G63, D36: a run, and so its training states, belongs to its config and to this code: those of another architecture
    are never even looked at."""
    edit(source)
    results = {}
    for name, same in zip(("generate", "train", "evaluate", "publish"), expected, strict=True):
        results[name] = stage(name, root).result
        assert results[name]["reused"] is same, name
        if name == "train" and not same:
            break  # the others follow from another run hash, which other tests show


def test_a_copy_of_the_code_is_the_same_code(root: Path, edit: Callable[[str], None]) -> None:
    assert edit
    assert reused(chain(root)) == [True] * 4


def test_an_edited_source_file_is_another_dataset(tmp_path: Path) -> None:
    source = tmp_path / "triples"
    source.mkdir()
    triples = [f"e{head}\tr{relation}\te{(3 * head + relation) % 12}\n" for head in range(12) for relation in range(5)]
    for name, start in (("test", 0), ("valid", 1), ("train", 2)):
        part = triples[start::6] if name != "train" else [t for i, t in enumerate(triples) if i % 6 > 1]
        (source / f"{name}.txt").write_text("".join(part))
    sets = (f"dataset.source={source}", "dataset.entities=identity")
    first = stage("generate", tmp_path / "root", *sets).result
    assert stage("generate", tmp_path / "root", *sets).result["reused"] is True
    with (source / "train.txt").open("a") as file:
        file.write("e1\tr1\tnew\n")
    second = stage("generate", tmp_path / "root", *sets).result
    assert second["reused"] is False
    assert second["dataset_hash"] != first["dataset_hash"]


def test_the_name_of_the_config_file_changes_nothing(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CONFIG.read_text())
    assert reused(chain(root, config=other)) == [True] * 4


@pytest.mark.parametrize("name", ["run.json", "steps.jsonl"])
@pytest.mark.parametrize("damage", ["remove", "alter"])
def test_a_run_without_its_record_or_log_writes_them_again(root: Path, name: str, damage: str) -> None:
    """From its last training state; nothing is trained again, and the stages after it find what they need."""
    (path,) = root.glob(f"runs/*/{name}")
    before = path.read_bytes()
    path.write_bytes(b"[]") if damage == "alter" else path.unlink()
    assert stage("train", root).result["reused"] is False
    if name == "steps.jsonl":
        assert path.read_bytes() == before
    assert stage("train", root).result["reused"] is True
    assert stage("evaluate", root).result["reused"] is True


@pytest.mark.parametrize(
    ("gone", "redone"),
    [
        ("datasets/*/train-00000.arrow", "generate"),
        ("datasets/*/index.json", "generate"),
        ("runs/*/candidates/step-00000004/model.safetensors", "train"),
        ("runs/*/candidates/step-00000004/index.json", "train"),
        ("runs/*/evaluations/*/report.html", "evaluate"),
    ],
)
def test_an_output_that_is_gone_is_made_again(finished: Finished, root: Path, gone: str, redone: str) -> None:
    before = tree(root)
    (path,) = root.glob(gone)
    path.unlink()
    results = chain(root)
    assert [name for name, result in results.items() if not result["reused"]] == [redone]
    for name in ("generate", "train", "publish"):
        assert content(results[name], root) == content(finished.results[name], finished.root)
    assert tree(root)[path.relative_to(root).as_posix()] == before[path.relative_to(root).as_posix()]


def test_a_version_that_is_gone_while_it_is_the_champion_is_told(root: Path) -> None:
    (manifest,) = root.glob("models/*/*/manifest.json")
    manifest.unlink()
    error = stage("publish", root).error
    assert "champion.json: the champion is version" in error
    assert "remove the pointer" in error
    (root / "models/tiny/champion.json").unlink()
    assert stage("publish", root).result["champion"] is True
    assert len(list(root.glob("models/*/*/manifest.json"))) == 1
