"""Keeps one SeaweedFS server alive for as long as some test process wants it. Run by ``tests/conftest.py``; a script.

Usage: s3_keeper.py FOLDER. Every test process that uses the server holds a shared lock on FOLDER/wanted. This process
goes to the background, starts the server, writes its address to FOLDER/server.json, and then waits for the exclusive lock:
it gets that when the last test process has ended, however it ended, even by kill -9. Then it stops the server that it
started, and removes the data.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

BUCKET = "hopline-tests"
READY_WITHIN = 60.0  # seconds


def main(folder: Path) -> int:
    data = folder / "data"
    server = None
    try:
        for _ in range(3):  # another process may take a port between our look and the server's start
            shutil.rmtree(data, ignore_errors=True)
            data.mkdir(parents=True)
            access = {"endpoint": "", "access_key": secrets.token_hex(10), "secret_key": secrets.token_hex(20)}
            server, access["endpoint"] = start(folder, data, access)
            if ready(server, access):
                write(folder / "server.json", json.dumps(access))
                break
            stop(server)
            server = None
        else:
            write(folder / "failed", f"SeaweedFS did not start; see {folder / 'seaweedfs.log'}")
            return 1
        with (folder / "wanted").open("a") as wanted:
            fcntl.flock(wanted, fcntl.LOCK_EX)
            (folder / "server.json").unlink()
            stop(server)
            server = None
        return 0
    finally:
        if server is not None:
            stop(server)
        shutil.rmtree(data, ignore_errors=True)


def start(folder: Path, data: Path, access: dict[str, str]) -> tuple[subprocess.Popen[bytes], str]:
    names = [f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": access["access_key"], "secretKey": access["secret_key"]}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    config = data / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    command = [
        str(Path(sys.executable).parent / "weed"),
        "-logtostderr=true",
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer",
        "-s3",
        f"-s3.config={config}",
        f"-s3.localSocket={data / 's3.sock'}",
        "-s3.autoCreateBucket=false",
        "-s3.allowDeleteBucketNotEmpty=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=200",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    with (folder / "seaweedfs.log").open("ab") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=data, preexec_fn=die_with_parent
        )
    return server, f"http://127.0.0.1:{ports['s3.port']}"


def ready(server: subprocess.Popen[bytes], access: dict[str, str]) -> bool:
    """Wait for the first successful put: the gateway answers before the volumes can be written."""
    client = boto3.client(
        "s3",
        endpoint_url=access["endpoint"],
        aws_access_key_id=access["access_key"],
        aws_secret_access_key=access["secret_key"],
        region_name="us-east-1",
        config=Config(
            retries={"total_max_attempts": 1},
            connect_timeout=2,
            read_timeout=10,
            request_checksum_calculation="when_required",
        ),
    )
    deadline = time.monotonic() + READY_WITHIN
    while time.monotonic() < deadline and server.poll() is None:
        try:
            if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
        except (BotoCoreError, ClientError):
            time.sleep(0.1)
        else:
            return True
    return False


def stop(server: subprocess.Popen[bytes]) -> None:
    server.kill()  # its data is thrown away; a graceful stop takes twelve seconds
    server.wait()


def die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()
    sys.exit(main(Path(sys.argv[1])))
