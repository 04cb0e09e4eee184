"""Fixtures for all rooms: a real S3 server for the session."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class S3Server:
    """A SeaweedFS server on 127.0.0.1, with the keys that may do everything there and one bucket that exists."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str = "hopline-tests"

    def env(self) -> dict[str, str]:
        """The environment that leads a process to this server, and to nothing else."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One real S3 server for the whole run: the processes of xdist share it, and it ends with the last of them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "s3-server"
    folder.mkdir(exist_ok=True)
    with (folder / "wanted").open("a") as wanted:
        with (folder / "starting").open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            # Waits while a server that nobody wanted any more is being stopped.
            fcntl.flock(wanted, fcntl.LOCK_SH)
            if not (folder / "server.json").exists():
                _start_keeper(folder)
        yield S3Server(**json.loads((folder / "server.json").read_text()))


@pytest.fixture
def s3_root(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh ``s3://bucket/prefix`` for one test, with the environment set so that ``open_store`` reaches it."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_MAX_ATTEMPTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"


def _start_keeper(folder: Path) -> None:
    with (folder / "keeper.log").open("ab") as log:
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name("s3_keeper.py")), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=True,
        )
    deadline = time.monotonic() + 200
    while not (folder / "server.json").exists():
        if (folder / "failed").exists() or time.monotonic() > deadline:
            raise RuntimeError(f"the S3 server for the tests did not start; see {folder}/keeper.log and seaweedfs.log")
        time.sleep(0.05)
