#!/usr/bin/env python3
"""scripts/release: the same tarball wherever it is made; and the version is the one in meson.build."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile

from harness import DATA, OK, Failed, Skip, Suite, check_equal, expect

ROOT = DATA.parent
VERSION = re.search(r"^ *version : '([^']+)',$", (ROOT / "meson.build").read_text(), re.M)[1]
COMMITTED_AT = 1_600_000_000
NEEDED = ("scripts/release", "scripts/lib.sh", "meson.build", "CHANGELOG.md")
# Nobody's settings but those a case makes.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_DATE": f"{COMMITTED_AT} +0000",
    "GIT_COMMITTER_DATE": f"{COMMITTED_AT} +0000",
}


def run(folder, *command, umask=0o022, expected=0, **environment):
    result = subprocess.run(
        command, cwd=folder, umask=umask, env={**ENVIRONMENT, **environment}, capture_output=True, text=True
    )
    if result.returncode != expected:
        raise Failed(f"{command} in {folder}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def repository(folder):
    """What a release needs, as it is in the tree now, in a repository of its own."""
    if not (ROOT / ".git").exists():
        raise Skip("this is no clone")
    source = folder / "source"
    for name in NEEDED:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
        (source / name).chmod(0o755 if name == "scripts/release" else 0o644)
    (source / "CHANGELOG.md").write_text(f"# Changes\n\n## {VERSION}\n- All.\n")
    (source / ".gitignore").write_text("build/\n")
    run(source, "git", "init", "-q")
    run(source, "git", "add", ".")
    run(source, "git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "All")
    return source


def check_reproducible(folder):
    source = repository(folder)
    hashes = {}
    for name, umask, settings, environment in (
        ("plain", 0o022, (), {}),
        ("umask", 0o077, ("tar.umask=user",), {}),
        ("settings", 0o002, ("core.autocrlf=true",), {"TZ": "Asia/Tokyo", "LC_ALL": "C", "GZIP": "-1", "USER": "b"}),
    ):
        clone = folder / name
        run(folder, "git", "clone", "-q", str(source), str(clone), umask=umask)
        for setting in settings:
            run(clone, "git", "config", *setting.split("="))
        os.utime(clone / "meson.build", (1, 1))
        said = run(clone, "scripts/release", umask=umask, **environment).stdout
        tarball = clone / f"build/tconv-{VERSION}.tar.gz"
        hashes[name] = hashlib.sha256(tarball.read_bytes()).hexdigest()
        check_equal(said.split()[0], hashes[name], "the hash it tells")
        check_equal("To check before it is published:\n" in said, True, "what to check")
        check_members(tarball)
    check_equal(set(hashes.values()), {hashes["plain"]}, "hashes")


def check_members(tarball):
    with tarfile.open(tarball) as archive:
        members = {member.name: member for member in archive}
    files = {name.removeprefix(f"tconv-{VERSION}/") for name, member in members.items() if member.isfile()}
    check_equal(files, {*NEEDED, ".gitignore"}, "files")
    for name, member in members.items():
        check_equal((member.uid, member.gid, member.mtime), (0, 0, COMMITTED_AT), name)
        runs = member.isdir() or name.endswith("scripts/release")
        check_equal(oct(member.mode), oct(0o755 if runs else 0o644), f"mode of {name}")


def check_refusals(folder):
    source = repository(folder)
    (source / "new").write_text("x")
    check_equal("not committed" in run(source, "scripts/release", expected=1).stderr, True, "a change")
    (source / "new").unlink()
    (source / "CHANGELOG.md").write_text("# Changes\n")
    run(source, "git", "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qam", "Less")
    said = run(source, "scripts/release", expected=1).stderr
    check_equal(f"no part for {VERSION}" in said, True, "a version that the changes lack")
    check_equal((source / f"build/tconv-{VERSION}.tar.gz").exists(), False, "a tarball")


def check_version(folder):
    check_equal(expect(folder, OK, "version").out.decode(), f"tconv {VERSION}\n", "version")
    page = expect(folder, OK, "--help=man").out.decode()
    check_equal(f'"tconv {VERSION}"' in page, True, "the manual page's version")


def main():
    suite = Suite(__doc__)
    return suite.run(
        [
            ("release/reproducible", check_reproducible),
            ("release/refusals", check_refusals),
            ("release/version", check_version),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
