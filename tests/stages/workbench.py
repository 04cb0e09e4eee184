"""The ``hopline`` command for tests: in this process, in a fresh one, or in a forked one that dies where it is told to."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopline.cli import main

CONFIG = Path(__file__).with_name("tiny.yaml")
STAGES = ("generate", "train", "evaluate", "publish")
KEYS = {
    "generate": ["dataset_uri", "dataset_hash", "examples", "reused"],
    "train": ["run_uri", "run_hash", "candidates", "steps", "stop_reason", "reused"],
    "evaluate": ["checkpoint_uri", "checkpoint_sha256", "step", "metrics", "report_uri", "reused"],
    "publish": ["manifest_uri", "manifest_hash", "champion", "reasons", "reused"],
}


@dataclass(frozen=True)
class Done:
    """What a command said and how it ended; a negative code is the signal that killed it. ``calls``: file system changes."""

    code: int
    stdout: str
    stderr: str
    calls: int = 0

    @property
    def result(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        assert self.code == 0, self.stderr
        assert self.stdout.count("\n") == 1, self.stdout
        return json.loads(self.stdout)

    @property
    def said(self) -> list[str]:
        """The lines on stderr that are for people: not the events of stages."""
        return [line for line in self.stderr.splitlines() if not line.startswith('{"time"')]

    @property
    def error(self) -> str:
        """The one line that a person who made a mistake gets."""
        assert self.code == 2, (self.code, self.stderr)
        assert self.stdout == ""
        assert len(self.said) == 1, self.stderr
        assert self.said[0].startswith("hopline: "), self.said
        return self.said[0]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of stages on stderr."""
        return [json.loads(line) for line in self.stderr.splitlines() if line.startswith('{"time"')]


def hopline(*arguments: str | Path) -> Done:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    code = 1
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as done:
            code = int(done.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def options(root: str | Path, *sets: str, config: Path = CONFIG) -> list[str]:
    """The options of a stage command."""
    return ["-c", str(config), "--root", str(root), "--json", *(word for one in sets for word in ("--set", one))]


def stage(name: str, root: str | Path, *sets: str, config: Path = CONFIG) -> Done:
    """Run a stage in this process."""
    return hopline(name, *options(root, *sets, config=config))


def chain(root: str | Path, *sets: str, config: Path = CONFIG) -> dict[str, dict[str, Any]]:
    """Run all four stages in this process; the result of each by its name."""
    return {name: stage(name, root, *sets, config=config).result for name in STAGES}


def reused(results: Mapping[str, Mapping[str, Any]]) -> list[bool]:
    """Which stages did nothing."""
    return [bool(results[name]["reused"]) for name in STAGES]


def content(result: Mapping[str, Any], root: str | Path) -> dict[str, Any]:
    """A result without what depends on when and where it was made: the root, and whether it was reused."""
    text = json.dumps({name: value for name, value in result.items() if name != "reused"}, sort_keys=True)
    return json.loads(text.replace(Path(root).as_uri(), "ROOT"))


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder with the digest of its bytes."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def flip(path: Path, position: int | None = None) -> None:
    """Alter one byte of a file, in its middle unless told otherwise."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if position is None else position] ^= 1
    path.write_bytes(data)


class Forks:
    """Commands in processes that fork from one that has everything imported: what takes three seconds takes a half."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self,
        *arguments: str | Path,
        kill_at: int | None = None,
        kill_after: str | None = None,
        by: int = signal.SIGKILL,
        user: int | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = 100,
    ) -> Done:
        """Run a command.

        Args:
            kill_at: the process kills itself with SIGKILL just before its n-th change of the file system, from 1.
            kill_after: it sends itself the signal ``by`` just after it has written an event that contains this text.
            user: the numeric user that it becomes.
            environment: variables beside those of this process.
            seconds: after these it is killed, and the test fails.
        """
        assert self._server.stdin
        assert self._server.stdout
        order = {
            "arguments": [str(argument) for argument in arguments],
            "kill_at": kill_at,
            "kill_after": kill_after,
            "by": int(by),
            "user": user,
            "environment": {**os.environ, **(environment or {})},
        }
        timer = threading.Timer(seconds, self._server.kill)
        timer.start()
        try:
            self._server.stdin.write(json.dumps(order) + "\n")
            self._server.stdin.flush()
            answer = self._server.stdout.readline()
        finally:
            timer.cancel()
        assert answer, f"{arguments} took more than {seconds} seconds, or the fork server died"
        return Done(**json.loads(answer))

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(30)


def manifest(published: Mapping[str, Any], root: str | Path) -> dict[str, Any]:
    """The manifest of a published version without what depends on when and where: the root, and the attempts."""
    text = Path(published["manifest_uri"].removeprefix("file://")).read_text()
    document = json.loads(text.replace(Path(root).as_uri(), "ROOT"))
    del document["training"]["attempts"]
    return document
