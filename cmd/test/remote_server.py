"""A web server on loopback for tests: files in ranges, a count of what was sent, and faults.

    with Server() as server:
        server.add("/model.safetensors", data)
        tconv("info", server.url + "/model.safetensors")
        server.sent, server.requests

A file is bytes, or a Sparse one: a beginning, and zeros up to its size. What goes wrong is a list of
faults a file, one taken at each request for it: "cut:N" (the connection ends after N bytes of the
body), "silent" (nothing comes any more), "status:N", "wait:N:S" (status N with Retry-After S),
"until:N:S" (the same with a date that is S seconds from now), "rate:N:S" (the same in RateLimit),
"whole" (200 to a range), "other-range", "short" (less than Content-Range says), "long" (more),
"etag" (another version from now on), "packed" (Content-Encoding), "go:ADDRESS" (a redirect).
"""

import base64
import hashlib
import http.server
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Sparse:
    """`head`, and zeros up to `size`; further pieces lie where `pieces` has them, by their offset."""

    head: bytes
    size: int
    pieces: dict = field(default_factory=dict)

    def __len__(self):
        return self.size

    def __getitem__(self, where):
        start, stop, _ = where.indices(self.size)
        part = bytearray(stop - start)
        for at, data in {0: self.head, **self.pieces}.items():
            first, last = max(at, start), min(at + len(data), stop)
            if first < last:
                part[first - start : last - start] = data[first - at : last - at]
        return bytes(part)


@dataclass
class Remote:
    data: object
    etag: str = ""
    ranges: bool = True
    length: bool = True  # Content-Length is told
    headers: dict = field(default_factory=dict)
    faults: list = field(default_factory=list)
    needs: dict = field(default_factory=dict)  # lines that a request must have, else 403
    gather: int = 0  # so many requests for data are answered together, once; not those for its two ends


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.owner.handle(self)

    do_HEAD = do_PUT = do_POST = do_GET

    def answer(self, status, body=b"", headers=(), length=None):
        """An answer with a body; `length` is what is told of it where that is not the truth."""
        self.send_response(status)
        told = len(body) if length is None else length
        if status != 204:
            self.send_header("Content-Length", str(told))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.write(body)

    def write(self, body):
        self.wfile.write(body)
        self.wfile.flush()
        self.server.owner.count(len(body))

    def end(self):
        """Closes the connection without another word."""
        self.close_connection = True
        self.connection.shutdown(2)


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # a client that goes away in the middle is what these tests are about


class Server:
    def __init__(self, certificate=None, host="127.0.0.1"):
        self.files, self.requests, self.sent = {}, [], 0
        self.active, self.most = 0, 0  # requests at once, now and ever
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.listener = Listener((host, 0), Handler)
        self.listener.owner = self
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.chain, certificate.key)
            self.listener.socket = context.wrap_socket(
                self.listener.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        self.port = self.listener.server_address[1]
        self.url = f"{scheme}://{host}:{self.port}"
        self.serve(self.listener)

    def serve(self, listener):
        threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.listener.shutdown()
        self.listener.server_close()

    def add(self, path, data, **how):
        remote = Remote(data, **how)
        if not remote.etag and isinstance(data, bytes):
            remote.etag = f'"{hashlib.md5(data).hexdigest()}"'
        self.files[path] = remote
        return self.url + path

    def count(self, length):
        with self.lock:
            self.sent += length

    def asked(self, path=None):
        """The requests for a path, as (method, path, header lines)."""
        with self.lock:
            return [each for each in self.requests if path is None or each[1] == path]

    def handle(self, handler):
        path = handler.path.partition("?")[0]
        with self.lock:
            self.requests.append((handler.command, handler.path, dict(handler.headers.items())))
        remote = self.files.get(path)
        if remote is None:
            handler.answer(404, b"nothing here\n")
            return
        if any(handler.headers.get(name) != value for name, value in remote.needs.items()):
            handler.answer(403, b"denied\n")
            return
        with self.lock:
            fault = remote.faults.pop(0) if remote.faults else None
            self.active += 1
            self.most = max(self.most, self.active)
        start = int(re.search(r"\d+|$", handler.headers.get("Range", ""))[0] or 0)
        if remote.gather and 0 < start < len(remote.data) // 2:
            self.wait_for(remote)
        try:
            self.send_file(handler, remote, fault or "")
        finally:
            with self.lock:
                self.active -= 1

    def wait_for(self, remote):
        """Until enough requests are under way, once; and a little longer, in case there are more."""
        deadline = time.monotonic() + 20
        while self.most < remote.gather and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        remote.gather = 0

    def send_file(self, handler, remote, fault):
        word, _, rest = fault.partition(":")
        if word == "status":
            handler.answer(int(rest), b"no\n")
        elif word == "wait":
            status, seconds = rest.split(":")
            handler.answer(int(status), b"later\n", {"Retry-After": seconds})
        elif word == "rate":
            status, seconds = rest.split(":")
            lines = {"RateLimit": f'"api";r=0;t={seconds}', "RateLimit-Policy": '"fixed";q=5;w=300'}
            handler.answer(int(status), b"later\n", lines)
        elif word == "until":
            status, seconds = rest.split(":")
            date = handler.date_time_string(time.time() + int(seconds))
            handler.answer(int(status), b"later\n", {"Retry-After": date})
        elif word == "go":
            handler.answer(302, b"", {"Location": rest})
        elif word == "silent":
            self.stopped.wait(20)
            handler.end()
        else:
            if word == "etag":
                remote.etag = '"another"'
            self.send_range(handler, remote, word, rest)

    def send_range(self, handler, remote, word, rest):
        size = len(remote.data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        headers = dict(remote.headers)
        if remote.etag:
            headers["ETag"] = remote.etag
        if word == "packed":
            headers["Content-Encoding"] = "gzip"
        if not asked or not remote.ranges or word == "whole":
            if remote.length:
                self.send_body(handler, 200, remote, 0, size, headers, word, rest)
            else:
                handler.send_response(200)
                for name, value in {**headers, "Connection": "close"}.items():
                    handler.send_header(name, value)
                handler.end_headers()
                handler.write(remote.data[:size])
                handler.close_connection = True
            return
        start, end = int(asked[1]), min(int(asked[2]) + 1, size)
        if start >= size:
            handler.answer(416, b"", {"Content-Range": f"bytes */{size}"})
            return
        told = start + 1 if word == "other-range" else start
        headers["Content-Range"] = f"bytes {told}-{end - 1}/{size}"
        self.send_body(handler, 206, remote, start, end, headers, word, rest)

    def send_body(self, handler, status, remote, start, end, headers, word, rest):
        length = end - start
        if word == "short":
            handler.answer(status, remote.data[start : start + length // 2], headers)
            return
        if word == "long":
            handler.answer(status, remote.data[start:end] + bytes(1000), headers)
            return
        handler.send_response(status)
        headers["Content-Length"] = str(length)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        stop = start + int(rest) if word == "cut" else end
        for at in range(start, min(stop, end), 1 << 16):
            handler.write(remote.data[at : min(at + (1 << 16), stop, end)])
        if stop < end:
            handler.end()


@dataclass(frozen=True)
class Request:
    target: str
    range: tuple  # the first byte, and the one behind the last


class Connections:
    """Takes connections to a port of its own until it is left, each served by a thread."""

    def __init__(self):
        self.count = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.count += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()


class RawServer(Connections):
    """Answers each connection's first request by what a function writes to it, and closes it."""

    def __init__(self, answer):
        self.answer = answer
        super().__init__()

    def serve(self, connection):
        with connection:
            connection.settimeout(20)
            try:
                text = b""
                while b"\r\n\r\n" not in text:
                    more = connection.recv(65536)
                    if not more:
                        return
                    text += more
                found = re.search(rb"Range: bytes=(\d+)-(\d+)", text)
                wanted = (int(found[1]), int(found[2]) + 1) if found else (0, 0)
                self.answer(connection, Request(text.split(b" ")[1].decode(), wanted))
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
            except OSError:
                pass  # who asked has gone away


class Proxy(Connections):
    """A proxy for https: whatever host a client names, it leads to one port of this machine."""

    def __init__(self, port, password=None):
        self.port, self.password, self.lines = port, password, []
        super().__init__()

    def serve(self, connection):
        text = b""
        try:
            while b"\r\n\r\n" not in text:
                more = connection.recv(65536)
                if not more:
                    return
                text += more
            self.lines.append(text.decode())
            if self.password and base64.b64encode(self.password.encode()) not in text:
                connection.sendall(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
                return
            there = socket.create_connection(("127.0.0.1", self.port))
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        except OSError:
            return
        for a, b in ((connection, there), (there, connection)):
            threading.Thread(target=self.pass_on, args=(a, b), daemon=True).start()

    @staticmethod
    def pass_on(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@dataclass(frozen=True)
class Certificate:
    authority: str  # the file of who signed it
    chain: str
    key: str


def make_certificate(folder, host="127.0.0.1", name="server"):
    """An authority and a certificate for a host, by openssl; None without it."""
    if not shutil.which("openssl"):
        return None
    folder.mkdir(exist_ok=True)

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    kind = "IP" if host[0].isdigit() else "DNS"
    (folder / f"{name}.ext").write_text(f"subjectAltName={kind}:{host}\n")
    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(*new, "-x509", "-days", "30", "-subj", f"/CN=tests {name}", "-keyout", f"{name}-ca.key",
            "-out", f"{name}-ca.pem")  # fmt: skip
    openssl(*new, "-subj", f"/CN={host}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{name}-ca.pem", "-CAkey",
            f"{name}-ca.key", "-CAcreateserial", "-days", "30", "-extfile", f"{name}.ext",
            "-out", f"{name}.pem")  # fmt: skip
    return Certificate(
        str(folder / f"{name}-ca.pem"), str(folder / f"{name}.pem"), str(folder / f"{name}.key")
    )
