"""Runs ``hopline`` commands, each in a child that forks from this process. Run by ``workbench.Forks``; a script.

One JSON object a line on stdin (see ``Forks.__call__``), one a line on stdout: code, stdout, stderr, calls.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

CHANGES = ("link", "mkdir", "remove", "rename", "replace", "rmdir", "unlink")
MODULES = ("alone", "published", "evaluate_stage", "generate_stage", "publish_stage", "train_stage", "identity")


def serve() -> None:
    for name in MODULES:
        importlib.import_module(f"hopline.stages.{name}")
    # What is imported late: it takes long, and another user may not be able to read the interpreter's modules.
    for name in (
        "hopline.cli.stages",
        "hopline.stages.encoding",
        "torch.distributed.checkpoint",
        "torch._inductor.config",
    ):
        importlib.import_module(name)
    "".encode("utf-16be")
    identity = sys.modules["hopline.stages.identity"]
    for stage in identity.STAGE_PACKAGES:
        identity.stage_code(stage)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(run(json.loads(line))) + "\n")
        answers.flush()


def run(order: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as calls:
        child = os.fork()
        if child == 0:
            work(order, out.fileno(), err.fileno(), calls.fileno())
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err, calls):
            file.seek(0)
            texts.append(file.read().decode())
    return {
        "code": os.waitstatus_to_exitcode(status),
        "stdout": texts[0],
        "stderr": texts[1],
        "calls": len(texts[2]),
    }


def work(order: dict[str, Any], out: int, err: int, calls: int) -> None:
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with the server
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.environ.clear()
        os.environ.update(order["environment"])
        count_changes(calls, order["kill_at"])
        if order["kill_after"] is not None:
            kill_after(order["kill_after"], order["by"])
        if order["user"] is not None:
            os.setgroups([])
            os.setgid(order["user"])
            os.setuid(order["user"])
        from hopline.cli import main

        main(order["arguments"])
    except SystemExit as done:
        code = int(done.code or 0)
    except Exception:  # noqa: BLE001 - it is told in the answer
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def count_changes(calls: int, kill_at: int | None) -> None:
    """Note every change of the file system, and end this process by SIGKILL just before the n-th."""
    parent, count = os.getpid(), 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal count
            if os.getpid() == parent:
                count += 1
                if count == kill_at:
                    os.kill(parent, signal.SIGKILL)
                os.write(calls, b".")
            return function(*arguments, **keywords)

        return call

    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))


def kill_after(text: str, number: int) -> None:
    """Send this process a signal just after it has said an event with this text."""
    from hopline.progress import Event, JsonLinesSink

    emit = JsonLinesSink.emit

    def emit_and_die(self: JsonLinesSink, event: Event) -> None:
        emit(self, event)
        if text in event.to_json():
            os.kill(os.getpid(), number)

    JsonLinesSink.emit = emit_and_die  # type: ignore[method-assign]


if __name__ == "__main__":
    serve()
