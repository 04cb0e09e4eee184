"""Mistakes and damage: one line that says what and where, exit code 2, and nothing half-written taken for whole."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hopline.config import load_config
from hopline.lineage import Manifest
from hopline.storage import sha256_bytes
from tests.stages.conftest import Finished
from tests.stages.workbench import CONFIG, STAGES, Forks, chain, content, flip, hopline, options, reused, stage, tree

NOBODY = 65534


def only(root: Path, pattern: str) -> Path:
    """The one file of a pattern."""
    (path,) = root.glob(pattern)
    return path


def forget(root: Path, *names: str) -> None:
    """Remove the records of some stages, so that they work again."""
    for name in names:
        shutil.rmtree(root / "requests" / name)


# What the config says


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize(
    ("one", "said"),
    [
        ("training.learning_rat=0.1", "unknown key 'training.learning_rat'; did you mean 'training.learning_rate'?"),
        ("training.max_steps=many", "training.max_steps: found 'many', expected"),
        ("training.max_steps=1.5", "training.max_steps: found 1.5, expected"),
        ("model.hidden_dim=-4", "model.hidden_dim: found -4, expected"),
        ("training", "expected key.path=value"),
    ],
)
def test_a_wrong_key_or_type(tmp_path: Path, name: str, one: str, said: str) -> None:
    assert said in stage(name, tmp_path / "root", one).error
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nmodle: {layers: 2}\n", "unknown key 'modle'; did you mean 'model'?"),
        ("name: x\nmodel: {layers: two}\n", "model.layers: found 'two', expected"),
        ("name: x\nmodel: [2]\n", "model: found [2], expected"),
        ("model: {layers: 2}\n", "key 'name' is missing"),
        ("name: ../x\n", "name: expected 1 to 63 letters"),
        ("- name\n", "expected a mapping"),
        ("name: [\n", "expected YAML"),
        ("", "expected a mapping"),
    ],
)
def test_a_wrong_config_file(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text(text)
    error = stage("generate", tmp_path / "root", config=config).error
    assert error.startswith(f"hopline: {config}")
    assert said in error
    assert not (tmp_path / "root").exists()


def test_a_missing_config_file(tmp_path: Path) -> None:
    assert "no such config file" in stage("train", tmp_path / "root", config=tmp_path / "none.yaml").error


# What the source holds


@pytest.fixture
def triples(tmp_path: Path) -> Path:
    """A folder of good triples."""
    folder = tmp_path / "triples"
    folder.mkdir()
    lines = [f"e{head}\tr{relation}\te{(3 * head + relation) % 12}\n" for head in range(12) for relation in range(5)]
    (folder / "train.txt").write_text("".join(lines[12:]))
    (folder / "valid.txt").write_text("".join(lines[:6]))
    (folder / "test.txt").write_text("".join(lines[6:12]))
    return folder


def no_file(folder: Path) -> None:
    (folder / "valid.txt").unlink()


def no_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def two_fields(folder: Path) -> None:
    with (folder / "train.txt").open("a") as file:
        file.write("e1\tr1\n")


def no_lines(folder: Path) -> None:
    (folder / "test.txt").write_text("")


def no_text(folder: Path) -> None:
    (folder / "train.txt").write_bytes(b"e1\tr1\te2\n\xff\xfe\te\te\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_file, ["valid.txt"]),
        (no_folder, ["triples"]),
        (two_fields, ["train.txt:49: found 2 fields, expected 3"]),
        (no_lines, ["test"]),
        (no_text, ["train.txt:2: not UTF-8"]),
    ],
)
def test_a_wrong_source(triples: Path, tmp_path: Path, spoil: Callable[[Path], None], said: list[str]) -> None:
    spoil(triples)
    sets = (f"dataset.source={triples}", "dataset.entities=identity")
    error = stage("generate", tmp_path / "root", *sets).error
    assert all(word in error for word in said), error
    assert not list((tmp_path / "root").rglob("*.json"))
    assert (
        "`hopline generate " in stage("train", tmp_path / "root", *sets).error or spoil is no_folder or spoil is no_file
    )


@pytest.mark.parametrize("source", ["pykeen://atlantis", "gs://bucket/triples", "pykeen://"])
def test_a_source_that_is_none(tmp_path: Path, source: str) -> None:
    assert source in stage("generate", tmp_path / "root", f"dataset.source={source}").error


# What the root holds


@pytest.mark.parametrize("name", STAGES[1:])
def test_a_stage_before_its_turn_names_the_command_that_is_missing(root: Path, name: str) -> None:
    before = STAGES[STAGES.index(name) - 1]
    forget(root, before)
    error = stage(name, root, "publish.shard_bytes=2000000").error
    assert error.endswith(
        f"run `hopline {before} -c {CONFIG} --set publish.shard_bytes=2000000 --root {root.as_uri()}` first"
    )


def test_the_command_that_is_named_can_be_typed(root: Path, tmp_path: Path) -> None:
    """With spaces in its words, and values that are no words."""
    config = tmp_path / "my configs" / "it's.yaml"
    config.parent.mkdir()
    shutil.copy(CONFIG, config)
    sets = (
        "publish.gate.minimum={overall.score: 0.5, link.mrr: 0}",
        "training.patience=null",
        "training.deterministic=true",
        'model.model_version="3"',
        "training.precision=fp32",
        "training.learning_rate=1e-3",
    )
    error = stage("evaluate", root, *sets, config=config).error
    words = shlex.split(error.split("`")[1])
    assert words[:2] == ["hopline", "train"]
    typed = words[words.index("-c") + 1 : words.index("--root")]
    again = load_config(typed[0], [word for word in typed[1:] if word != "--set"])
    assert again == load_config(config, sets)


@pytest.mark.parametrize(("split", "reader"), [("train", "train"), ("valid", "train"), ("test", "evaluate")])
def test_an_altered_shard(root: Path, split: str, reader: str) -> None:
    shard = only(root, f"datasets/*/{split}-00000.arrow")
    flip(shard)
    forget(root, reader)
    if reader == "train":
        shutil.rmtree(only(root, "runs/*"))
    for name in ("generate", reader):
        error = stage(name, root).error
        assert shard.name in error
        assert "sha256" in error
    assert not (root / "requests" / reader).exists()


def test_an_altered_dataset_index(root: Path) -> None:
    index = only(root, "datasets/*/index.json")
    document = json.loads(index.read_text())
    document["splits"]["train"]["blocks"][0] = "0" * 64
    index.write_text(json.dumps(document))
    forget(root, "train", "evaluate")
    for name in ("generate", "train"):
        assert str(index) in stage(name, root).error


def test_a_truncated_shard(root: Path) -> None:
    shard = only(root, "datasets/*/valid-00000.arrow")
    shard.write_bytes(shard.read_bytes()[:-8])
    assert shard.name in stage("generate", root).error


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "vocabulary.json", "scores.json", "index.json"])
def test_an_altered_candidate(finished: Finished, root: Path, file: str) -> None:
    step = finished.results["evaluate"]["step"]
    altered = only(root, f"runs/*/candidates/step-{step:08d}/{file}")
    flip(altered)
    forget(root, "publish")
    shutil.rmtree(root / "models")
    for name in ("train", "evaluate", "publish"):
        error = stage(name, root).error
        assert altered.parent.name in error
        assert file in error
    assert not (root / "models").exists()


@pytest.mark.parametrize("file", ["state.json", "index.json"])
def test_altered_training_states_are_passed_over(finished: Finished, root: Path, file: str) -> None:
    """G55, D36: the newest that can be read is continued from; the warning names what was altered."""
    forget(root, "train")
    run = only(root, "runs/*")
    for name in ("run.json", "steps.jsonl"):
        (run / name).unlink()
    newest = max(run.glob("checkpoints/*"))
    assert newest.name == "step-00000006"
    flip(only(newest, f"**/{file}"), 0)
    done = stage("train", root)
    assert content(done.result, root) == content(finished.results["train"], finished.root)
    (warning,) = [event["message"] for event in done.events if event["kind"] == "warning"]
    assert warning.startswith("the training state of step 6 cannot be used: ")
    assert file in warning
    assert any("continues from step 4" in event["message"] for event in done.events if event["kind"] == "note")


@pytest.mark.parametrize("file", ["metrics.json", "report.html", "index.json"])
def test_an_altered_evaluation(root: Path, file: str) -> None:
    altered = only(root, f"runs/*/evaluations/*/{file}")
    flip(altered)
    forget(root, "publish")
    for name in ("evaluate", "publish"):
        if (name, file) != ("publish", "report.html"):
            assert file in stage(name, root).error


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "vocabulary.json", "metrics.json", "report.html"])
def test_an_altered_published_file(root: Path, tmp_path: Path, file: str) -> None:
    altered = only(root, f"models/tiny/*/{file}")
    flip(altered)
    questions = tmp_path / "questions.jsonl"
    questions.write_text("")
    assert file in hopline("predict", altered.parent, "--input", questions).error
    checked = hopline("verify", altered.parent)
    assert checked.code == 1
    assert any(line.startswith("FAIL") and file in line for line in checked.stdout.splitlines())
    assert file in stage("publish", root).error


def test_an_altered_manifest(root: Path, tmp_path: Path) -> None:
    altered = only(root, "models/tiny/*/manifest.json")
    altered.write_bytes(altered.read_bytes().replace(b'"steps":6', b'"steps":7'))
    questions = tmp_path / "questions.jsonl"
    questions.write_text("")
    assert "manifest.json" in hopline("predict", altered.parent, "--input", questions).error
    assert hopline("verify", altered.parent).code == 1
    assert "manifest" in stage("publish", root).error


def test_a_damaged_champion_pointer(root: Path) -> None:
    pointer = root / "models/tiny/champion.json"
    pointer.write_text("{}")
    assert str(pointer) in stage("publish", root).error
    assert pointer.read_text() == "{}"


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("damage", ["half", "empty", "a list", "no result", "another request", "a wrong type"])
def test_a_damaged_record(root: Path, name: str, damage: str) -> None:
    record = only(root, f"requests/{name}/*.json")
    document = json.loads(record.read_text())
    if damage == "half":
        record.write_bytes(record.read_bytes()[:100])
    elif damage == "empty":
        record.write_bytes(b"")
    elif damage == "a list":
        record.write_text("[1]")
    elif damage == "no result":
        record.write_text(json.dumps({**document, "result": {}}))
    elif damage == "another request":
        record.write_text(json.dumps({**document, "request": {**document["request"], "schema": 0}}))
    else:
        record.write_text(json.dumps({**document, "root": 3}))
    before = tree(root)
    error = stage(name, root).error
    assert record.name in error
    assert tree(root) == before
    record.unlink()
    assert stage(name, root).result["reused"] is False


# A model of another architecture


def test_a_candidate_of_another_architecture(root: Path) -> None:
    """Everything about it is consistent, as if an older Hopline had written it."""
    for index in root.glob("runs/*/candidates/*/index.json"):
        before = sha256_bytes(index.read_bytes())
        index.write_bytes(index.read_bytes().replace(b"hopline-graph-v1", b"hopline-graph-v0"))
        for record in root.glob("requests/train/*.json"):
            after = sha256_bytes(index.read_bytes())
            record.write_bytes(record.read_bytes().replace(before.encode(), after.encode()))
    forget(root, "evaluate")
    for name in ("train", "evaluate"):
        error = stage(name, root).error
        assert "found architecture version hopline-graph-v0, expected hopline-graph-v1" in error


def test_a_published_model_of_another_architecture(root: Path, tmp_path: Path) -> None:
    data = only(root, "models/tiny/*/manifest.json").read_bytes().replace(b"hopline-graph-v1", b"hopline-graph-v0")
    version = only(root, "models/tiny/*/manifest.json").parent.rename(root / "models/tiny" / sha256_bytes(data))
    (version / "manifest.json").write_bytes(data)
    assert Manifest.parse(data, source="it").manifest_hash == version.name
    questions = tmp_path / "questions.jsonl"
    questions.write_text("")
    error = hopline("predict", version, "--input", questions).error
    assert "its architecture version is hopline-graph-v0" in error
    assert hopline("verify", version).code == 0, "it is what it claims to be, nevertheless"


# Where the root is


@pytest.mark.parametrize("name", STAGES)
def test_a_root_below_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    error = stage(name, tmp_path / "file" / "root").error
    assert str(tmp_path / "file") in error


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in stage("generate", tmp_path / "file").error


@pytest.mark.parametrize("root", ["gs://bucket/x", "s3://", "http://127.0.0.1/x"])
def test_a_root_of_another_kind(root: str) -> None:
    assert root in stage("generate", root).error


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can reach: those of pytest are for its own user alone."""
    with tempfile.TemporaryDirectory(prefix="hopline-tests-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        yield folder


def test_a_root_without_permission(forks: Forks, open_folder: Path) -> None:
    root, cache = open_folder / "root", open_folder / "cache"
    root.mkdir(mode=0o555)
    cache.mkdir()
    cache.chmod(0o777)
    shutil.copy(CONFIG, open_folder)
    done = forks(
        "generate",
        *options(root, config=open_folder / CONFIG.name),
        user=NOBODY if os.geteuid() == 0 else None,
        environment={"HOPLINE_CACHE": str(cache)},
    )
    assert str(root) in done.error
    assert "ermission" in done.error
    assert list(root.iterdir()) == []


def test_a_root_that_may_be_read_but_not_written(finished: Finished, forks: Forks, open_folder: Path) -> None:
    """Its results are found; what would have to be made is refused."""
    root, cache = Path(shutil.copytree(finished.root, open_folder / "root")), open_folder / "cache"
    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    cache.mkdir()
    cache.chmod(0o777)
    config = Path(shutil.copy(CONFIG, open_folder))
    user = NOBODY if os.geteuid() == 0 else None
    environment = {"HOPLINE_CACHE": str(cache)}
    for name in STAGES:
        found = forks(name, *options(root, config=config), user=user, environment=environment)
        assert found.result["reused"] is True
    for name, one in (("generate", "dataset.seed=2"), ("train", "training.seed=2")):
        refused = forks(name, *options(root, one, config=config), user=user, environment=environment)
        assert "ermission" in refused.error
    for path in (root, *root.rglob("*")):
        path.chmod(0o755)


def test_an_endpoint_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_MAX_ATTEMPTS": "2",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("generate", "train"):
        error = stage(name, "s3://bucket/root").error
        assert "http://127.0.0.1:9" in error
    for command in (["verify", "s3://bucket/m/manifest.json"], ["predict", "s3://bucket/m", "--input", CONFIG]):
        assert "http://127.0.0.1:9" in hopline(*command).error


def test_after_a_mistake_the_right_command_works(finished: Finished, tmp_path: Path) -> None:
    root = tmp_path / "root"
    stage("generate", root, f"dataset.source={tmp_path / 'none'}").error  # noqa: B018 - it checks the message
    results = chain(root)
    assert reused(results) == [False] * 4
    assert content(results["train"], root) == content(finished.results["train"], finished.root)
