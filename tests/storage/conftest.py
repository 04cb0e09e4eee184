"""A proxy in front of the real S3 server that fails as networks and servers do."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest


@dataclass
class FaultProxy:
    """Passes requests on, and applies ``plan`` to them: a list of (method, fault), each used once by the first that fits.

    Faults: ``refuse`` (503 and not passed on), ``drop`` (connection closed, not passed on), ``lose`` (passed on and
    carried out, but the answer never arrives), ``cut`` (half of the answer's body), ``flip`` (one bit of the answer's
    body), ``corrupt`` (one bit of the request's body), ``hang`` (no answer), ``bare`` (the answer without checksums), or a
    pair of status and XML body.
    """

    upstream: str
    url: str = ""
    plan: list[tuple[str, object]] = field(default_factory=list)
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    on_fault: Callable[[], object] = lambda: None
    released: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, method: str, content_range: str | None) -> object:
        with self._lock:
            self.seen.append((method, content_range))
            for index, (wanted, fault) in enumerate(self.plan):
                if wanted == method:
                    del self.plan[index]
                    return fault
        return None

    def count(self, method: str) -> int:
        return sum(seen == method for seen, _ in self.seen)


@pytest.fixture
def fault_proxy(s3_server, s3_root) -> Iterator[FaultProxy]:
    proxy = FaultProxy(s3_server.endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 20

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.next_fault(self.command, self.headers.get("Range"))
            if fault is not None:
                proxy.on_fault()
            if fault == "refuse":
                fault = (503, "<Error><Code>ServiceUnavailable</Code></Error>")
            if fault == "corrupt":
                body = flip(body)
            if isinstance(fault, tuple):
                self.answer(fault[0], [("Content-Type", "application/xml")], fault[1].encode())
            elif fault == "drop":
                self.close_connection = True
            elif fault == "hang":
                proxy.released.wait(20)
                self.close_connection = True
            else:
                self.pass_on(body, fault)

        def pass_on(self, body: bytes, fault: object) -> None:
            target = urlsplit(proxy.upstream)
            upstream = http.client.HTTPConnection(target.hostname, target.port, timeout=20)
            try:
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in ("expect", "connection"):
                        upstream.putheader(name, value)
                upstream.endheaders(body)
                answer = upstream.getresponse()
                data = answer.read()
            finally:
                upstream.close()
            if fault == "lose":
                self.close_connection = True
                return
            headers = [
                (name, value)
                for name, value in answer.getheaders()
                if name.lower() not in ("connection", "transfer-encoding", "content-length")
                and not (fault == "bare" and name.lower().startswith("x-amz-checksum"))
            ]
            length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            if fault == "flip":
                data = flip(data)
            self.answer(answer.status, headers, data, length, cut=fault == "cut")

        def answer(self, status: int, headers: list, data: bytes, length: str | None = None, cut: bool = False) -> None:
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)) if length is None else length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data[: len(data) // 2] if cut else data)
            if cut:
                self.close_connection = True

        do_GET = do_PUT = do_HEAD = do_DELETE = handle_any  # noqa: N815 - the names that http.server looks for

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the client went away, which some tests are about
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield proxy
    proxy.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:] if data else data
