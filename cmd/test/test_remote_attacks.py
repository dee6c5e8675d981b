#!/usr/bin/env python3
"""Servers that attack who reads from them: what they send ends in an error, soon, and leaves nothing."""

import gzip
import hashlib
import itertools
import json
import os
import sys
import time

from files import Tensor, f32
from harness import INVALID, IO, OK, TCONV, UNSAFE, USAGE, Failed, Suite, check_equal, run, tconv
from hub_server import Hub
from remote_server import RawServer, Server, Sparse
from remotes import PLAIN, error_code, hub_env, model, run_remote, tconv_hub, tree_of

CASES = []
SIZE = 300_000
# What a server may keep a command waiting for, in all: a bound that only a loop without an end passes.
LONGEST = 60


def case(function):
    CASES.append((function.__name__, function))
    return function


def large():
    return model({"a": Tensor("U8", [SIZE], bytes(SIZE))})


def part(start, end, total, body=None, more="", length=None):
    """A 206 with a range that may be another than was asked for."""
    body = bytes(end - start) if body is None else body
    told = len(body) if length is None else length
    head = f"HTTP/1.1 206 Partial\r\nContent-Range: bytes {start}-{end - 1}/{total}\r\nContent-Length: {told}\r\n{more}\r\n"
    return head.encode() + body


def attacked(folder, code, slug, answer, *args, env=None):
    """Each request is answered by what the function writes to the connection."""
    started = time.monotonic()
    with RawServer(answer) as server:
        short = {"HF_HUB_DOWNLOAD_TIMEOUT": "0.5", **(env or {})}
        result = run_remote(folder, code, *(args or ["info"]), server.url + "/m.safetensors", "--json", env=short, quiet=False)
        if slug:
            check_equal(error_code(result) in slug.split(), True, f"{error_code(result)}, one of: {slug}", result)
    if time.monotonic() - started > LONGEST:
        raise Failed("it took too long")
    return server.count


# Answers that are none


@case
def no_http(folder):
    for bytes_ in (b"", b"\0" * 100_000, b"SSH-2.0-x\r\n", b"HTTP/9.9 200 OK\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n"):
        attacked(folder, IO, "answer network http", lambda connection, request, data=bytes_: connection.sendall(data))


@case
def endless_headers(folder):
    """Lines without number, one line without an end, and answers before the answer."""
    for start, line in (
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"a" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
    ):

        def answer(connection, request, start=start, line=line):
            connection.sendall(start)
            while True:
                connection.sendall(line)

        attacked(folder, IO, "answer", answer)


@case
def drips(folder):
    """A byte now and then is no sign of life, neither of a header nor of a body."""
    for start in (b"", b"HTTP/1.1 200 OK\r\nX-A: ", part(0, 65536, SIZE, b"", length=65536)):

        def answer(connection, request, start=start):
            connection.sendall(start)
            while True:
                connection.sendall(b"a")
                time.sleep(0.05)

        attacked(folder, IO, "timeout answer", answer, env={"HF_HUB_DOWNLOAD_TIMEOUT": "0.2"})


# Ranges


@case
def lying_ranges(folder):
    """Content-Range, Content-Length and what comes do not agree."""
    for reply in (
        part(0, 65536, SIZE, bytes(70_000)),  # more than the range
        part(1, 65536, SIZE),  # another start
        part(0, 100_000, SIZE),  # more than was asked for
        part(0, 65536, 100),  # behind its own end
        part(0, 65536, 2**64),
        part(0, 65536, f"{SIZE}, bytes 0-9/10"),
        part(0, 2**70, 2**70, b"x" * 65536),
        part(0, 65536, SIZE, more="Content-Type: multipart/byteranges; boundary=x\r\n"),
        b"HTTP/1.1 206 P\r\nContent-Range: bytes */5\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 206 P\r\nContent-Range: bytes 5-1/9\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 206 P\r\nContent-Range: items 0-4/5\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 206 P\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-4/*\r\nContent-Length: 5\r\n\r\nabcde",
    ):
        attacked(folder, IO, "wrong-range answer", lambda connection, request, data=reply: connection.sendall(data))


@case
def two_ranges(folder):
    """A second Content-Range that is none: with the end of the first, the range would end before it starts."""
    data = large()

    def answer(connection, request):
        start, end = request.range
        if start == 0:
            connection.sendall(part(start, end, len(data), data[start:end]))
            return
        lines = f"Content-Range: bytes 0-4/{len(data)}\r\nContent-Range: bytes {start}\r\n"
        connection.sendall(f"HTTP/1.1 206 P\r\n{lines}Transfer-Encoding: chunked\r\n\r\n".encode())
        while True:
            connection.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")

    attacked(folder, IO, "wrong-range", answer, "hash")


@case
def short_parts(folder):
    """Ever shorter parts: a byte a request is too little to go on with."""
    asked = attacked(folder, IO, "wrong-range network", lambda connection, request: connection.sendall(part(0, 65536, SIZE, b"x")))
    check_equal(asked < 50, True, f"{asked} requests")


@case
def chunks_without_end(folder):
    """A body without a length goes no further than what was asked for."""

    def answer(connection, request):
        connection.sendall(
            f"HTTP/1.1 206 P\r\nContent-Range: bytes 0-65535/{SIZE}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        while True:
            connection.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")

    attacked(folder, IO, "wrong-range", answer)


@case
def whole_again_and_again(folder):
    """A server without ranges whose connection is always cut is given up."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    asked = attacked(folder, IO, "network", lambda connection, request: connection.sendall(head + bytes(100_000)))
    check_equal(asked < 50, True, f"{asked} requests")


@case
def versions(folder):
    """Whatever tells that a file is another one than before ends the run."""
    data = large()
    for before, after in (
        ({"ETag": '"a"'}, {"ETag": '"b"'}),
        ({"Last-Modified": "Tue, 01 Jan 2030 00:00:00 GMT"}, {"Last-Modified": "Wed, 02 Jan 2030 00:00:00 GMT"}),
        ({}, {"size": len(data) + 1}),
        ({"ETag": '"a"', "Last-Modified": "Tue, 01 Jan 2030 00:00:00 GMT"}, {"Last-Modified": "Tue, 01 Jan 2030 00:00:00 GMT"}),
        ({"ETag": '"a"'}, {}),
        ({"Last-Modified": "Tue, 01 Jan 2030 00:00:00 GMT"}, {}),
        ({}, {"ETag": '"a"'}),
        ({}, {"Last-Modified": "Tue, 01 Jan 2030 00:00:00 GMT"}),
        ({"ETag": '"a"'}, {"ETag": 'W/"a"'}),
        ({"ETag": 'W/"a"', "Last-Modified": "Tue, 01 Jan 2030 00:00:00 GMT"}, {"ETag": 'W/"a"', "Last-Modified": "Wed, 02 Jan 2030 00:00:00 GMT"}),
    ):
        count = [0]

        def answer(connection, request, before=before, after=after, count=count):
            start, end = request.range
            count[0] += 1
            lines = dict(before if count[0] == 1 else after)
            total = lines.pop("size", len(data))
            more = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            connection.sendall(part(start, min(end, len(data)), total, data[start:end], more))

        attacked(folder, IO, "changed", answer, "hash")


@case
def packed_answers(folder):
    """A packed body, though it was asked not to, is refused, of files and of lists."""
    attacked(
        folder, IO, "answer", lambda connection, request: connection.sendall(part(0, 9, 9, b"\x1f\x8b" + bytes(7), "Content-Encoding: gzip\r\n"))
    )
    attacked(
        folder, IO, "answer",
        lambda connection, request: connection.sendall(part(0, 9, 9, bytes(9), "Content-Encoding: br\r\nContent-Encoding: identity\r\n")),
    )  # fmt: skip
    with Hub() as hub:
        hub.add_repo("org/name", {"a": b"1"})
        hub.hook = lambda handler, path: handler.answer(200, b"\x1f\x8b" + bytes(50), {"Content-Encoding": "gzip"}) or True
        expect_hub(folder, hub, {IO}, "answer", "list", "org/name")


@case
def lengths_beyond_numbers(folder):
    """A length that no number holds, or no disk: an error at once, whether ranges were asked for or not."""
    for length in (2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -1, "x"):
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()
        attacked(
            folder, {IO, UNSAFE}, "answer network wrong-range no-space spool-limit",
            lambda connection, request, head=head: connection.sendall(head + bytes(100_000)),
        )  # fmt: skip
    with Server() as server:
        url = server.add("/m.safetensors", Sparse(b"", 1 << 50), ranges=False)
        run_remote(folder, {IO, UNSAFE}, "info", url)
        check_equal(server.sent < 8 << 20, True, f"{server.sent} bytes of what can't be kept")


@case
def ends_without_an_end(folder):
    """All bytes came, and then the connection ends as it should not: they are taken, once."""
    data = large()
    (folder / "m.safetensors").write_bytes(data)
    here = tconv("hash", "m.safetensors", cwd=folder).out

    def answer(connection, request):
        start, end = request.range[0], min(request.range[1], len(data))
        head = f"HTTP/1.1 206 P\r\nContent-Range: bytes {start}-{end - 1}/{len(data)}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode() + b"%x\r\n" % (end - start) + data[start:end] + b"\r\n")

    with RawServer(answer) as server:
        result = run_remote(folder, OK, "hash", server.url + "/m.safetensors")
        check_equal(result.out, here, "hashes", result)


@case
def bad_places(folder):
    """Ports and hosts that are none, on the command line and in redirects."""
    for place in ("127.0.0.1:99999", "127.0.0.1:0", "127.0.0.1:123456789012345678901", "127.0.0.1:1x", "[::1", "a%2fb", "a b", "ex{ample"):
        result = tconv("info", f"https://{place}/m.npy", "--json", cwd=folder, env=PLAIN)
        check_equal((result.code, error_code(result)), (USAGE, "address"), place, result)
        attacked(
            folder, UNSAFE, "redirect",
            lambda connection, request, place=place: connection.sendall(
                f"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: https://{place}/x\r\n\r\n".encode()
            ),
        )  # fmt: skip


# Redirects


@case
def redirect_chains(folder):
    """To ever new addresses, of this server and by others."""
    asked = attacked(
        folder, IO, "redirect",
        lambda connection, request: connection.sendall(
            b"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: /%d\r\n\r\n" % time.monotonic_ns()
        ),
    )  # fmt: skip
    check_equal(asked < 15, True, f"{asked} requests")
    for place in (b"", b"\r\nX: y", b"http://", b"https://u:p@127.0.0.1/", b"javascript:1", b"\xff\xfe", b"/" * 9000):
        attacked(
            folder, {IO, UNSAFE}, "redirect answer network",
            lambda connection, request, place=place: connection.sendall(
                b"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: " + place + b"\r\n\r\n"
            ) if request.target == "/m.safetensors" else None,
        )  # fmt: skip


@case
def stolen_token(folder):
    """Whatever answer leads to another host, the token does not go there."""
    with Hub() as hub, Server() as thief:
        thief.add("/x", b"[]")
        hub.add_repo("org/name", {"m.safetensors": model()})
        (folder / "m.safetensors").write_bytes(model({"z": f32(3)}))

        def lead(handler, path):
            handler.answer(status, b"", {"Location": thief.url + "/x", "X-Repo-Commit": "0" * 40})
            return True

        def batch(handler, path):
            if not path.endswith("/batch"):
                return False
            href = {"href": thief.url + "/x", "header": {"X-Note": "y"}}
            objects = [{**each, "actions": {"upload": href, "verify": href}} for each in json.loads(handler.body)["objects"]]
            hub.reply(handler, {"transfer": "basic", "objects": objects})
            return True

        for status in (301, 302, 303, 307, 308):
            hub.hook = lead
            env = hub_env(hub, "hf_test")
            run_remote(folder, {OK, IO, INVALID, UNSAFE}, "info", "hf://org/name/m.safetensors", env=env)
            for words in ("list org/name", "info org/name", "pull org/name", "push org/name m.safetensors"):
                tconv_hub(folder, hub, *words.split())
        hub.hook = batch
        tconv_hub(folder, hub, "push", "org/name", "m.safetensors")
        if not thief.requests:
            raise Failed("nothing was led astray")
        got = [each for each in thief.requests if "hf_test" in str(each)]
        check_equal(got, [], "what the other host got")


@case
def repeated_token(folder):
    """A server that repeats the token in what it says of an error: nothing of that is shown."""
    token = "hf_" + "aBc" * 12
    # as it is, and as JSON can write it, in part or as a whole
    hidden = "".join(f"\\u{ord(letter):04x}" for letter in token)
    capital = "".join(f"\\u{ord(letter):04X}" for letter in token)
    ways = itertools.cycle([token, hidden, token[:9] + hidden[54:], capital[:60] + token[10:], hidden])
    with Hub(token=token) as hub:
        hub.add_repo("org/name", {"m.safetensors": model()})
        (folder / "m.safetensors").write_bytes(model({"z": f32(3)}))
        commit = hub.repos["models/org/name"].refs["main"]
        for status, body in (
            (400, {"error": f"Invalid token {token}"}), (404, {"error": token}), (422, {"error": "x" * 70_000 + token}),
            (200, [{"type": "file", "path": token, "size": 1, "oid": "0" * 40}]),
            (200, {"id": token, "sha": commit, "commitOid": commit, "commitUrl": f"https://x/?t={token}", "files": []}),
        ):  # fmt: skip

            def echo(handler, path, status=status, body=body):
                written = next(ways)
                handler.send_response(status)
                handler.end_headers()
                text = json.dumps(body).replace(token, written).encode()
                handler.write(text[: len(text) - 20])  # in two pieces
                time.sleep(0.05)
                handler.write(text[len(text) - 20 :])
                handler.close_connection = True
                return True

            hub.hook = echo
            for words in ("list org/name", "info org/name", "pull org/name", "push org/name m.safetensors") * 5:
                env = {**PLAIN, **hub_env(hub, token, HF_HUB_CACHE=str(folder / "cache"))}
                result = tconv("hub", *words.split(), "--json", cwd=folder, env=env)
                check_equal(result.code, IO, words, result)
                if token.encode() in result.out + result.err:
                    raise result.failed("the token is shown")


@case
def repeated_addresses(folder):
    """A store that repeats the signed address that it was asked by, and a Hub whose answer breaks off in one: nothing of it is shown."""
    secret = "X-Amz-Signature=s3cr3t"
    oid = hashlib.sha256(model({"z": f32(3)})).hexdigest()
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": model()})
        (folder / "n.safetensors").write_bytes(model({"z": f32(3)}))
        there = {"href": f"{hub.store_url}/put?{secret}"}
        parts = {**there, "header": {"chunk_size": "100", **{str(i): there["href"] for i in range(1, 9)}}}
        broken = json.dumps({"objects": [{"oid": oid, "actions": {"upload": there}}]}).encode()

        def lead(handler, path, status=0, actions=None, text=None, by=None):
            """The last way but one: the list of files lies in a store, which says no."""
            if secret in handler.path:
                hub.reply(handler, {"error": f"no: {handler.path}"}) if status == 200 else handler.answer(
                    status, json.dumps({"error": f"no: {handler.path}", "message": handler.path}).encode()
                )
            elif by and by in path:
                handler.answer(302, b"", {"Location": there["href"]})
            elif path.endswith("/batch") and (actions or text):
                objects = [{"oid": oid, "size": 1, "actions": actions}]
                handler.answer(200, text) if text else hub.reply(handler, {"transfer": "basic", "objects": objects})
            else:
                return False
            return True

        push = "push org/name n.safetensors"
        ways = [(push, {"status": status, "actions": {"upload": way}}) for status in (400, 403, 404, 410, 422, 500) for way in (there, parts)]
        ways += [(push, {"status": 404, "actions": {"upload": {"href": f"{hub.store_url}/x"}, "verify": there}})]
        ways += [(push, {"text": broken[:cut]}) for cut in (len(broken) - 1, broken.index(b"s3cr3t") + 6)]
        ways += [(push, {"text": broken.replace(b'"oid"', b'"href": "' + there["href"].encode() + b'", "href"')})]
        ways += [(words, {"status": status, "by": by}) for status in (200, 404) for words, by in (("list org/name", "/tree/"), ("info org/name", "/api/"))]
        for words, how in ways:
            hub.hook = lambda handler, path, how=how: lead(handler, path, **how)
            result = tconv_hub(folder, hub, *words.split(), "--json")
            check_equal(result.code, IO, f"{words}: {how}", result)
            if b"s3cr3t" in result.out + result.err:
                raise result.failed("a signed address is shown")


@case
def lines_of_an_upload(folder):
    """Lines that the Hub wants sent along are sent, but none that say how, or to whom."""
    wire = {"Host": "evil.test", "Content-Length": "3", "Transfer-Encoding": "chunked", "Connection": "close, X-Own",
            "Expect": "100-continue", "Proxy-Authorization": "x", "Cookie": "a=b", "X-Bad\r\nX-Split": "y", "X-Own": "good",
            "X-Split2": "a\r\nX-Split3: b", "Range": "bytes=0-1"}  # fmt: skip
    with Hub() as hub, Server() as store:
        hub.add_repo("org/name", {"x": b"1"})
        store.add("/put", b"")
        (folder / "m.safetensors").write_bytes(model({"z": f32(3)}))

        def batch(handler, path):
            if not path.endswith("/batch"):
                return False
            there = {"href": store.url + "/put", "header": wire}
            objects = [{**each, "actions": {"upload": there}} for each in json.loads(handler.body)["objects"]]
            hub.reply(handler, {"transfer": "basic", "objects": objects})
            return True

        hub.hook = batch
        tconv_hub(folder, hub, "push", "org/name", "m.safetensors")
        got = store.requests[0][2]
        check_equal(got.get("X-Own"), "good", "a line of its own")
        check_equal(got["Host"], store.url.partition("://")[2], "the host")
        check_equal(got["Content-Length"], str(len(model({"z": f32(3)}))), "the length")
        bad = [name for name in got if name in wire and name not in ("Host", "Content-Length", "X-Own")]
        check_equal(bad + [name for name in got if "Split" in name], [], "other lines")


@case
def answers_to_a_push(folder):
    """What the Hub says of the files to send must be about them, each once, and known."""
    with Hub() as hub:
        hub.add_repo("org/name", {"x": b"1"})
        (folder / "m.safetensors").write_bytes(model({"z": f32(3)}))
        good = {"path": "m.safetensors", "uploadMode": "lfs", "shouldIgnore": False}
        for entries in (
            [], [good, good], [{**good, "path": "other"}], [{**good, "uploadMode": "xyz"}], [{"path": "m.safetensors"}],
            [good] * 100_000, {"0": good}, "x", None, [1], [None],
        ):  # fmt: skip

            def lie(handler, path, entries=entries):
                if "/preupload/" in path:
                    hub.reply(handler, {"files": entries})
                return "/preupload/" in path

            hub.hook = lie
            expect_hub(folder, hub, {IO}, "answer", "push", "org/name", "m.safetensors")
        check_equal(len(hub.repos["models/org/name"].commits), 1, "commits")
        oid = hashlib.sha256(model({"z": f32(3)})).hexdigest()
        part = {"href": hub.store_url + "/x", "header": {"chunk_size": "1"}}
        for objects in (
            None, [], "x", [{"oid": oid, "size": 1, "error": {"message": "no", "code": 1}}], [{"oid": "0" * 64}],
            [{"oid": oid, "actions": {"upload": {}}}], [{"oid": oid, "actions": {"upload": {"href": 1}}}],
            [{"oid": oid, "actions": {"upload": {"href": "ftp://x/y"}}}], [{"oid": oid, "actions": {"upload": {"href": "/api/models/org/name/x"}}}],
            [{"oid": oid, "actions": {"upload": part}}], [{"oid": oid, "actions": {"upload": {**part, "header": {"chunk_size": "0"}}}}],
            [{"oid": oid, "actions": {"upload": {**part, "header": {"chunk_size": "-5"}}}}],
        ):  # fmt: skip

            def lie_more(handler, path, objects=objects):
                if path.endswith("/batch"):
                    hub.reply(handler, {"transfer": "basic", "objects": objects})
                return path.endswith("/batch")

            hub.hook = lie_more
            expect_hub(folder, hub, {IO, UNSAFE, USAGE}, None, "push", "org/name", "m.safetensors")
        check_equal(len(hub.repos["models/org/name"].commits), 1, "commits")


# The Hub's answers


def expect_hub(folder, hub, codes, slug, *words):
    started = time.monotonic()
    result = tconv_hub(folder, hub, *words, "--json")
    check_equal(result.code in codes, True, f"exit {result.code}: {' '.join(words)}", result)
    if slug:
        check_equal(error_code(result) in slug.split(), True, f"{error_code(result)}, one of: {slug}", result)
    if time.monotonic() - started > LONGEST:
        raise Failed("it took too long")


@case
def paths_of_lists(folder):
    """Names of a list that would lead elsewhere, or show as something else."""
    good = {"type": "file", "oid": "0" * 40, "size": 2}
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": model()})
        for path in (
            "..", "../x", "a/..", "a/../b", "/x", "//x", "a//b", "a/", "./a", "a/.", "", "a\0b", "a\nb", "a\rb",
            "a\x1b[31mb", "a\\b", "a\x7fb", "x" * 5000, "a\u202eb", "C:\\x", ".git/hooks/post-checkout", "a/.GIT/config",
        ):  # fmt: skip

            def lie(handler, name, path=path):
                if "/tree/" in name:
                    hub.reply(handler, [{**good, "path": path}])
                return "/tree/" in name

            hub.hook = lie
            codes = {OK} if path in ("a\u202eb",) else {IO, UNSAFE}
            result = tconv_hub(folder, hub, "list", "org/name")
            check_equal(result.code in codes, True, repr(path), result)
            if any(byte < 32 and byte != 10 for byte in result.out + result.err) or "\u202e".encode() in result.out:
                raise result.failed("a character that changes what is shown")
            check_equal(tconv_hub(folder, hub, "pull", "org/name").code in {IO, UNSAFE}, True, repr(path))
            run_remote(folder, {IO, UNSAFE, INVALID}, "-q", "hf://org/name", "out/", "-t", "npz", env=hub_env(hub))
        check_equal(sorted(path.name for path in folder.iterdir() if path.name != "cache"), [], "what was written")


@case
def pages_without_end(folder):
    """Pages that lead to themselves, in a circle, to nothing new, or elsewhere."""
    entry = {"type": "file", "oid": "0" * 40, "size": 2, "path": "a"}
    with Hub() as hub, Server() as other:
        hub.add_repo("org/name", {"m.safetensors": model()})
        here, number = "/api/models/org/name/tree/main", [0]

        def pages(make):
            def lie(handler, path):
                if "/tree/" not in path:
                    return False
                number[0] += 1
                entries, link = make(number[0])
                hub.reply(handler, entries, {"Link": f'<{link}>; rel="next"'})
                return True

            hub.hook, number[0] = lie, 0

        for make in (
            lambda n: ([{**entry, "path": f"f{n}"}], f"{here}?recursive=true"),
            lambda n: ([{**entry, "path": f"f{n}"}], f"{here}?c={n % 2}"),
            lambda n: ([], f"{here}?c={n}"),
            lambda n: ([entry], f"{other.url}{here}"),
            lambda n: ([entry], "/api/models/other/repo/tree/main"),
            lambda n: ([entry], "/api/../etc"),
        ):
            pages(make)
            expect_hub(folder, hub, {IO, UNSAFE}, "answer address", "list", "org/name")
            check_equal(number[0] < 10, True, f"{number[0]} pages")
        check_equal(other.requests, [], "requests to another host")


@case
def huge_answers(folder):
    """JSON of hundreds of MB, deep, or wide: bounded before it is parsed."""
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": model()})

        def flood(handler, path):
            handler.send_response(200)
            handler.send_header("Content-Length", str(300_000_000))
            handler.end_headers()
            for _ in range(300):
                handler.write(b"[" * 1_000_000 if deep else b'"a",' * 250_000)
            return True

        for deep in (True, False):
            hub.hook = flood
            expect_hub(folder, hub, {IO}, "answer", "list", "org/name")
        for text in (b"[" * 1_000_000, b'{"a":' * 100_000, b"[" + b"{}," * 1_000_000 + b"{}]", b"", b"\0", b"[1", b"nul"):
            hub.hook = lambda handler, path, text=text: handler.answer(200, text) or True
            for words in ("list", "info"):
                expect_hub(folder, hub, {IO}, "answer", words, "org/name")


@case
def wrong_sizes(folder):
    """A size that the Hub tells and the store does not have."""
    data = large()
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": data})
        for size in (0, 1, len(data) - 1, len(data) + 1, 2**62, 2**63, 2**64, -1, "x"):

            def lie(handler, path, size=size):
                if handler.command != "HEAD":
                    return False
                oid = hashlib.sha256(data).hexdigest()
                lines = {"X-Linked-Size": str(size), "X-Linked-Etag": f'"{oid}"', "X-Repo-Commit": hub.repos["models/org/name"].refs["main"]}
                handler.answer(302, b"", {**lines, "Location": f"{hub.store_url}/store/{oid}?Signature=s"})
                return True

            hub.hook = lie
            run_remote(folder, {IO, INVALID, UNSAFE}, "hash", "hf://org/name/m.safetensors", env=hub_env(hub))
            check_equal(tconv_hub(folder, hub, "pull", "org/name").code in {IO, INVALID, UNSAFE}, True, f"size {size}")
        blobs = folder / "cache" / "models--org--name" / "blobs"
        check_equal([path.name for path in blobs.iterdir() if not path.name.endswith(".incomplete")] if blobs.exists() else [], [], "contents")


# The cache


@case
def links_in_the_cache(folder):
    """Links that somebody laid into the cache lead nothing out of it."""
    data = model()
    oid = hashlib.sha256(data).hexdigest()
    outside = folder / "outside"
    with Hub() as hub:
        commit = hub.add_repo("org/name", {"d/m.safetensors": data}).refs["main"]
        for number, (place, target) in enumerate({
            "models--org--name": "", "models--org--name/blobs": "", "models--org--name/refs": "",
            "models--org--name/snapshots": "", f"models--org--name/snapshots/{commit}": "",
            f"models--org--name/snapshots/{commit}/d": "", ".locks": "", ".locks/models--org--name": "",
            f"models--org--name/blobs/{oid}.incomplete": "file", f".locks/models--org--name/{oid}.lock": "file",
        }.items()):  # fmt: skip
            root = folder / f"c{number}"
            outside.mkdir(exist_ok=True)
            (outside / "file").write_bytes(b"kept")
            (root / place).parent.mkdir(parents=True)
            (root / place).symlink_to(outside / target)
            result = pull_into(folder, hub, root)
            check_equal(result.code, IO, place, result)
            check_equal(tree_of(outside), {"file": b"kept"}, place)
        # A snapshot's own link, and a content that is a link, are replaced.
        for place in (f"models--org--name/snapshots/{commit}/d/m.safetensors", f"models--org--name/blobs/{oid}"):
            root = folder / f"r{len(place)}"
            (root / place).parent.mkdir(parents=True)
            (root / place).symlink_to(outside / "file")
            result = pull_into(folder, hub, root)
            check_equal((result.code, tree_of(outside)), (OK, {"file": b"kept"}), place, result)
            check_equal((root / place).read_bytes(), data, place)


def pull_into(folder, hub, root):
    env = {**PLAIN, **hub_env(hub, "hf_test", HF_HUB_CACHE=str(root))}
    return tconv("hub", "pull", "org/name", cwd=folder, env=env)


@case
def two_hashes(folder):
    """The list of files and the file itself name different contents: neither is kept."""
    data = model()
    for hashes in ({"oid": "1" * 40, "lfs": {"oid": "2" * 64, "size": len(data), "pointerSize": 1}}, {"oid": "3" * 40}):
        with Hub() as hub:
            hub.add_repo("org/name", {"m.safetensors": data})

            def lie(handler, path, hashes=hashes):
                if "/tree/" in path:
                    hub.reply(handler, [{"type": "file", "path": "m.safetensors", "size": len(data), **hashes}])
                return "/tree/" in path

            hub.hook = lie
            expect_hub(folder, hub, {IO}, "changed", "pull", "org/name")
            check_equal([name for name in tree_of(folder) if "snapshots" in name or "blobs" in name], [], "what is kept")


@case
def planted_rests(folder):
    """What somebody laid where a fetched file begins, a pipe or another name of a file, makes way and is not written to."""
    data, victim = model(), folder / "victim"
    oid = hashlib.sha256(data).hexdigest()
    place = folder / "cache/models--org--name/blobs"
    place.mkdir(parents=True)
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": data})
        for plant in (os.mkfifo, lambda path: os.link(victim, path)):
            victim.write_text("precious")
            (place / oid).unlink(missing_ok=True)
            plant(place / f"{oid}.incomplete")
            result = tconv_hub(folder, hub, "pull", "org/name")
            check_equal(result.code, OK, "the pull", result)
            check_equal((victim.read_bytes(), (place / oid).read_bytes() == data), (b"precious", True), "files")


@case
def planted_beside(folder):
    """The name by which a note or a link begins may be taken: by a pipe, a folder, or another name of a file elsewhere."""
    data, victim = model(), folder / "victim"
    with Hub() as hub:
        commit = hub.add_repo("org/name", {"m.safetensors": data}).refs["main"]
        root = folder / "cache" / "models--org--name"
        plant = folder / "plant.py"
        # tconv has the number that the process had before.
        plant.write_text(
            "import os, sys\n"
            "for place in (f'refs/.main.{os.getpid()}', f'snapshots/%s/.m.safetensors.{os.getpid()}'):\n"
            "    os.makedirs(os.path.dirname(f'{sys.argv[1]}/{place}'), exist_ok=True)\n"
            "    os.mkfifo(f'{sys.argv[1]}/{place}') if sys.argv[2] == 'pipe' else os.link(sys.argv[3], f'{sys.argv[1]}/{place}')\n"
            "os.execv(sys.argv[4], sys.argv[4:])\n" % commit
        )
        for kind in ("pipe", "link"):
            victim.write_text("precious")
            env = {**os.environ, **PLAIN, **hub_env(hub, "hf_test", HF_HUB_CACHE=str(folder / "cache"))}
            words = [sys.executable, str(plant), str(root), kind, str(victim), TCONV, "hub", "pull", "org/name"]
            result = run(*words, cwd=folder, env=env)
            check_equal(result.code, OK, kind, result)
            check_equal((victim.read_text(), (root / "refs/main").read_text()), ("precious", commit), kind)
            check_equal((root / "snapshots" / commit / "m.safetensors").read_bytes() == data, True, kind)
            (root / "refs/main").unlink()
            (root / "snapshots" / commit / "m.safetensors").unlink()


@case
def names_of_a_copy(folder):
    """A repository brings files of any name: a copy replaces none that is there, neither in a folder of files nor of folders."""
    for files_ in ({"m.safetensors": model(), ".bashrc": b"evil"}, {"m.safetensors": model(), ".bashrc": b"evil", "d/x": b"1"}):
        with Hub() as hub:
            hub.add_repo("org/name", files_)
            home = folder / f"home{len(files_)}"
            home.mkdir()
            (home / ".bashrc").write_text("mine")
            expect_hub(folder, hub, {USAGE}, "exists", "pull", "org/name", "-o", f"{home.name}/")
            check_equal(tree_of(home), {".bashrc": b"mine"}, "the folder")
            result = tconv_hub(folder, hub, "pull", "org/name", ".bashrc", "-o", f"{home.name}/.bashrc")
            check_equal((result.code, tree_of(home)), (OK, {".bashrc": b"evil"}), "a file that the user names", result)


@case
def odd_redirects(folder):
    """Folded lines, control characters, and numbers in other digits: nothing but this machine is reached."""
    for place, code in (
        (b"http://127.0.0.1:9/\r\n\t@evil.test/x", IO), (b"http://127.0.0.1\0.evil.test/", IO), (b"http://127.0.0.1:9\r/x", IO),
        (b"http://127.0.0.1:9/%0d%0aX-Evil:1", IO), (b"javascript:1", UNSAFE), (b"file:///etc/passwd", UNSAFE), (b"//0/x", UNSAFE),
        (b"http:127.0.0.1", UNSAFE), (b"http:///x", UNSAFE), (b"http://0:9/", UNSAFE), (b"http://0.0.0.0:9/", UNSAFE),
        (b"http://localhost.:9/", UNSAFE), (b"http://10.0.0.1:9/", UNSAFE), (b"http://[::]:9/", UNSAFE), (b"hf://org/name/x", UNSAFE),
        (b"http://a@127.0.0.1:9/", UNSAFE), (b"http://2852039166:9/", UNSAFE), (b"http://0xa9fea9fe:9/", UNSAFE), (b"\xff\xfe", IO),
    ):  # fmt: skip
        reply = b"HTTP/1.1 302 F\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n"
        attacked(folder, code, None, lambda connection, request, data=reply: connection.sendall(data))


@case
def packed_transfers(folder):
    """Bodies that are packed on their way: no more of them is taken than was asked for."""
    bomb = gzip.compress(bytes(64 << 20), 1)
    body = b"%x\r\n" % len(bomb) + bomb + b"\r\n0\r\n\r\n"
    for coding in (b"gzip, chunked", b"deflate, chunked", b"gzip, gzip, gzip, gzip, chunked", b"chunked, gzip", b"x-gzip"):
        head = f"HTTP/1.1 206 P\r\nContent-Range: bytes 0-1023/{SIZE}\r\nTransfer-Encoding: ".encode() + coding + b"\r\n\r\n"
        attacked(folder, IO, "wrong-range answer network", lambda connection, request, data=head + body: connection.sendall(data))


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(CASES))
