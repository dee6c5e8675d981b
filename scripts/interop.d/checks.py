"""Counts checks, and runs tconv."""
import hashlib
import json
import re
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from models import Model, Tensor

# What `tconv hash` escapes in a name: quote, backslash, control characters (C1 too), line ends and bidirectional controls.
ESCAPED = re.compile('["\\\\\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]')


class Checks:
    def __init__(self):
        self.passed = 0
        self.failures: list[str] = []
        self.skipped: list[str] = []
        self.notes: list[str] = []
        self._case = ""

    @contextmanager
    def case(self, name: str):
        """Names the case in its failures. A peer that raises on a file fails the case, not the section."""
        self._case = name
        try:
            yield
        except Exception as error:
            self.fail(f"{type(error).__name__}: {error}")

    def equal(self, what: str, got, want) -> bool:
        return self.true(got == want, lambda: f"{what}: {difference(got, want)}")

    def true(self, holds: bool, why) -> bool:
        if holds:
            self.passed += 1
        else:
            self.fail(why())
        return holds

    def fail(self, why: str):
        self.failures.append(f"{self._case}: {why}")

    def same_model(self, got: Model, want: Model):
        """One check a tensor, one for their order, and one for each kind of metadata."""
        self.equal("names in order", list(got.tensors), list(want.tensors))
        for name, tensor in want.tensors.items():
            self.equal(f"tensor {name[:60]!r}", got.tensors.get(name), tensor)
        self.equal("metadata", got.metadata, want.metadata)
        self.equal("tensor metadata", got.tensor_metadata, want.tensor_metadata)


class Tconv:
    def __init__(self, program: str, work: Path, checks: Checks):
        self.program, self.work, self.checks = program, work, checks

    def run(self, *arguments) -> bytes | None:
        """Its standard output; a failed run is a failed check and gives None."""
        command = [self.program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
        ran = self.checks.true(
            done.returncode == 0,
            lambda: f"{' '.join(command)}: exit code {done.returncode}, {done.stderr.decode(errors='replace')!r}",
        )
        return done.stdout if ran else None

    def fails(self, *arguments) -> subprocess.CompletedProcess:
        """A run that is meant to fail: its exit code and, as text, what it says."""
        command = [self.program, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, encoding="utf-8", errors="replace"
        )

    def convert(self, source: Path, target: Path, *options) -> bool:
        return self.run("--no-sync", *options, source, target) is not None

    def check_hash(self, path: Path, model: Model):
        """The hashes that tconv prints are those of the bytes that the peer wrote."""
        want = hash_text(model).encode()
        lines, digest = self.run("hash", path), self.run("hash", "--digest", path)
        self.checks.equal("hash", lines, want)
        self.checks.equal("hash --digest", digest and digest.split()[0].decode(), hashlib.sha256(want).hexdigest())

    @contextmanager
    def folder(self):
        with tempfile.TemporaryDirectory(dir=self.work) as path:
            yield Path(path)


def hash_text(model: Model) -> str:
    by_name = sorted(model.tensors.items(), key=lambda item: item[0].encode())
    return "".join(
        f"{hashlib.sha256(tensor.data).hexdigest()}  {tensor.dtype}  "
        f'[{",".join(map(str, tensor.shape))}]  "{ESCAPED.sub(escape, name)}"\n'
        for name, tensor in by_name
    )


def escape(match: re.Match) -> str:
    return json.dumps(match[0])[1:-1]


def difference(got, want) -> str:
    if isinstance(got, Tensor) and isinstance(want, Tensor) and got[:2] == want[:2]:
        got, want = got.data, want.data
    if not (isinstance(got, bytes) and isinstance(want, bytes)):
        return f"got {brief(got)}, expected {brief(want)}"
    at = next((at for at, pair in enumerate(zip(got, want)) if pair[0] != pair[1]), min(len(got), len(want)))
    near = slice(max(0, at - 16), at + 32)
    return f"got {len(got)} bytes, expected {len(want)}; from {near.start}: got {got[near]}, expected {want[near]}"


def brief(value) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)}"
    text = repr({key: brief(item) for key, item in value.items()} if isinstance(value, dict) else value)
    return text if len(text) <= 400 else f"{text[:400]}…"
