"""Whether one config has one dataset hash, and readable shards, whatever version of pyarrow wrote them.

    python benchmarks/pyarrow_versions.py                   the oldest version that is allowed, and the one installed
    python benchmarks/pyarrow_versions.py 20.0.0 22.0.0     other versions beside the one installed

Each version is installed into a folder of its own, put before all others, and makes a synthetic dataset and one of triples.
Then every version reads what every version wrote, and digests it again.

Target: the hashes are equal, and so is what was read (ratio 1). A table, then one line of JSON; exit code 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

_MAKE = """
import sys
from pathlib import Path
import pyarrow
from hopline.config import DatasetConfig, ExampleCounts
from hopline.datasets import build_dataset
counts = ExampleCounts(train=3000, valid=100, calibration=100, test=200)
for name, source in (("synthetic", "synthetic"), ("triples", "pykeen://nations")):
    config = DatasetConfig(source=source, examples=counts, workers=1, shard_size=1000)
    build_dataset(config, Path(sys.argv[1]) / name)
print(pyarrow.__version__)
"""

_READ = """
import sys
from pathlib import Path
import numpy as np
from hopline.datasets import Dataset
from hopline.datasets.fingerprint import BLOCK_UNITS, block_digest
for folder in map(Path, sys.argv[1:]):
    dataset = Dataset.open(folder)
    for name, info in dataset.index.splits.items():
        split = dataset.split(name)
        firsts = range(0, len(split), BLOCK_UNITS)
        blocks = [block_digest(split.columns(np.arange(a, min(a + BLOCK_UNITS, len(split))))) for a in firsts]
        assert tuple(blocks) == info.blocks, (folder, name)
    print(dataset.dataset_hash)
"""


def oldest_version() -> str:
    """The oldest pyarrow that pyproject.toml allows."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    (bound,) = (need.partition(">=")[2] for need in project["dependencies"] if need.startswith("pyarrow"))
    return f"{bound}.0.0" if bound.isdigit() else bound


def install(version: str, folder: Path) -> None:
    """Put a version of pyarrow into a folder of its own."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--only-binary=:all:", "--target", str(folder), f"pyarrow=={version}"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"pyarrow {version} cannot be installed: {done.stderr.strip().splitlines()[-1]}")


def run(code: str, arguments: Sequence[str], first: Path | None) -> list[str]:
    """Run Python with a folder before all others, and return what it prints."""
    path = os.pathsep.join(filter(None, [str(first) if first else "", os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.split()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make and read with each version, print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=[oldest_version()], help="beside the one installed")
    parser.add_argument("--quick", action="store_true", help="as without: this takes about a minute anyway")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        installs: dict[str, Path | None] = {"installed": None}
        for version in options.versions:
            installs[version] = folder / version
            install(version, folder / version)
        found = {label: run(_MAKE, [str(folder / "made" / label)], first)[0] for label, first in installs.items()}
        assert all(label in ("installed", found[label]) for label in installs), found
        made = [folder / "made" / label / kind for label in installs for kind in ("synthetic", "triples")]
        hashes = {label: run(_READ, list(map(str, made)), first) for label, first in installs.items()}
    print("written by         read by            synthetic         triples")
    for reader, read in hashes.items():
        for number, writer in enumerate(installs):
            pair = read[2 * number : 2 * number + 2]
            print(f"pyarrow {found[writer]:10} pyarrow {found[reader]:10} {pair[0][:16]}  {pair[1][:16]}")
    same = all(read[place] == hashes["installed"][place % 2] for read in hashes.values() for place in range(len(read)))
    print(json.dumps({"same_hash": float(same), "versions": sorted(set(found.values()))}))
    return int(not same)


if __name__ == "__main__":
    raise SystemExit(main())
