"""The Hub on loopback, for tests: repositories in memory, behind the interface of the real one.

What it does is what tconv and Python's huggingface_hub use: resolve (with HEAD, redirects to a store
of large files), trees in pages, information on repositories, creating them, preupload, the batch
interface of LFS (basic, multipart, verify) and commits. scripts/interop.d/hub.py runs the same
operations with huggingface_hub, so that this server is known to speak as that client expects.
"""

import base64
import hashlib
import json
import re
import urllib.parse
from dataclasses import dataclass, field

from remote_server import Handler, Listener, Remote, Server

LARGE = 1000  # files of this size and more lie in the store, as do those of these kinds
LARGE_KINDS = (".safetensors", ".bin", ".pt", ".npz", ".deathtensors")
KINDS = "models", "datasets", "spaces"


def is_large(path, size):
    return size > 0 and (size >= LARGE or path.endswith(LARGE_KINDS))


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + bytes(data)).hexdigest()


@dataclass
class Repo:
    private: bool = False
    gated: bool = False
    refs: dict = field(default_factory=dict)  # a branch's name: its commit
    commits: dict = field(default_factory=dict)  # a commit: {path: data}
    messages: list = field(default_factory=list)
    parents: dict = field(default_factory=dict)

    def commit(self, files, branch="main", message="a commit"):
        name = hashlib.sha1(f"{len(self.commits)} {branch} {message}".encode()).hexdigest()
        self.parents[name] = self.refs.get(branch)
        self.commits[name] = files
        self.refs[branch] = name
        self.messages.append(message)
        return name

    def find(self, revision):
        """The commit that a revision stands for; None: there is none."""
        return self.refs.get(revision) or (revision if revision in self.commits else None)


class Hub(Server):
    """A server whose `token` may change everything, and which may be told to fail."""

    def __init__(self, token="hf_test", **how):
        super().__init__(**how)
        self.token = token
        self.repos, self.store, self.parts = {}, {}, {}
        self.page = 1000  # entries of a page of a tree
        self.part = None  # bytes of a part: larger files go in several
        # Large files lie on another host, which is another port here.
        self.store_listener = Listener(("127.0.0.1", 0), Handler)
        self.store_listener.owner = self
        self.store_url = f"http://127.0.0.1:{self.store_listener.server_address[1]}"
        self.serve(self.store_listener)
        self.api_faults = []  # as the faults of a file, one at each call
        self.faults = {}  # of files in the store, by their hash
        self.hook = None  # sees each request first; true: it was answered

    def __exit__(self, *what):
        self.store_listener.shutdown()
        self.store_listener.server_close()
        super().__exit__(*what)

    def add_repo(self, name, files, kind="models", **how):
        repo = self.repos[f"{kind}/{name}"] = Repo(**how)
        self.keep(files)
        repo.commit(dict(files))
        return repo

    def keep(self, files):
        for path, data in files.items():
            if is_large(path, len(data)):
                self.store[hashlib.sha256(data[: len(data)]).hexdigest()] = data

    # Answers

    def fail(self, handler, status, code, message="no"):
        body = json.dumps({"error": message}).encode()
        headers = {"X-Error-Code": code, "X-Error-Message": message} if code else {}
        handler.answer(status, body, {"Content-Type": "application/json", **headers})

    def reply(self, handler, value, headers=()):
        body = json.dumps(value).encode()
        handler.answer(200, body, {"Content-Type": "application/json", **dict(headers)})

    def may_write(self, handler):
        if handler.headers.get("Authorization") == f"Bearer {self.token}":
            return True
        self.fail(handler, 401, "", "Invalid credentials")
        return False

    def find_repo(self, handler, key):
        """The repository, where the request may see it."""
        repo = self.repos.get(key)
        known = handler.headers.get("Authorization") == f"Bearer {self.token}"
        if handler.headers.get("Authorization") and not known:
            self.fail(handler, 401, "", "Invalid user token.")
        elif repo is None or (repo.private and not known):
            self.fail(handler, 404 if known else 401, "RepoNotFound", "Repository not found")
        elif repo.gated and not known:
            self.fail(handler, 401, "GatedRepo", "Access to this repository is restricted")
        else:
            return repo
        return None

    # Requests

    def handle(self, handler):
        length = int(handler.headers.get("Content-Length") or 0)
        handler.body = handler.rfile.read(length) if length else b""
        path, _, query = handler.path.partition("?")
        handler.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        with self.lock:
            self.requests.append((handler.command, handler.path, dict(handler.headers.items())))
        if self.hook and self.hook(handler, path):
            return
        if path in self.files:
            remote = self.files[path]
            fault = remote.faults.pop(0) if remote.faults else ""
            self.send_file(handler, remote, fault)
            return
        for pattern, method in ROUTES:
            found = re.fullmatch(pattern, path)
            if found:
                with self.lock:
                    fault = self.api_faults.pop(0) if self.api_faults and method in API else ""
                if fault:
                    self.send_file(handler, None, fault)
                else:
                    method(self, handler, *map(urllib.parse.unquote, found.groups(default="")))
                return
        self.fail(handler, 404, "", "no such page")

    def find_commit(self, handler, name, revision):
        """A repository and the commit that a revision names; (None, None) after an answer that says why not."""
        repo = self.find_repo(handler, name)
        commit = repo.find(revision) if repo else None
        if repo and commit is None:
            self.fail(handler, 404, "RevisionNotFound", "Invalid rev id")
        return (repo, commit) if commit is not None else (None, None)

    def resolve(self, handler, kind, name, revision, path):
        repo, commit = self.find_commit(handler, f"{kind or 'models'}/{name}", revision)
        if commit is None:
            return
        data = repo.commits[commit].get(path)
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if data is None:
            handler.answer(404, b"", {"X-Error-Code": "EntryNotFound", **headers})
        elif is_large(path, len(data)):
            oid = hashlib.sha256(data[: len(data)]).hexdigest()
            headers["X-Linked-Size"] = str(len(data))
            headers["X-Linked-Etag"] = f'"{oid}"'
            headers["Location"] = f"{self.store_url}/store/{oid}?Signature=secret"
            handler.answer(302, b"", headers)
        else:
            self.add_ranges(handler, data, f'"{git_hash(data)}"', headers)

    def add_ranges(self, handler, data, etag, headers):
        self.send_range(handler, Remote(data, etag=etag, headers=headers), "", "")

    def send_stored(self, handler, oid):
        if handler.headers.get("Authorization"):
            handler.answer(400, b"Only one auth mechanism allowed")  # as S3 does
        elif handler.command == "PUT":
            self.store[oid] = handler.body
            handler.answer(200, b"", {"ETag": f'"{hashlib.md5(handler.body).hexdigest()}"'})
        elif oid in self.store and "Signature" in handler.query:
            faults = self.faults.get(oid, [])
            fault = (faults.pop(0) if faults else None) or ""
            self.send_file(handler, Remote(self.store[oid], etag=f'"cdn-{oid[:32]}"'), fault)
        else:
            handler.answer(403, b"denied")

    def send_info(self, handler, kind, name, revision):
        repo = self.find_repo(handler, f"{kind}/{name}")
        if not repo:
            return
        commit = repo.find(revision or "main")
        if commit is None and revision:
            self.fail(handler, 404, "RevisionNotFound", "Invalid rev id")
            return
        siblings = [{"rfilename": path} for path in sorted(repo.commits.get(commit, {}))]
        self.reply(
            handler,
            {
                "_id": "1",
                "id": name,
                "sha": commit,
                "private": repo.private,
                "gated": "manual" if repo.gated else False,
                "disabled": False,
                "downloads": 7,
                "likes": 3,
                "tags": ["safetensors"],
                "lastModified": "2026-01-02T03:04:05.000Z",
                "createdAt": "2026-01-01T00:00:00.000Z",
                "siblings": siblings,
            },
        )

    def send_tree(self, handler, kind, name, revision, folder):
        repo, commit = self.find_commit(handler, f"{kind}/{name}", revision)
        if commit is None:
            return
        entries = self.entries(repo.commits[commit], folder, "recursive" in handler.query)
        if folder and not entries:
            self.fail(handler, 404, "EntryNotFound", "no such folder")
            return
        start = int(handler.query.get("cursor", 0))
        headers = {}
        if start + self.page < len(entries):
            query = urllib.parse.urlencode({**handler.query, "cursor": start + self.page})
            target = handler.path.partition("?")[0]
            headers["Link"] = f'<{self.url}{target}?{query}>; rel="next"'
        self.reply(handler, entries[start : start + self.page], headers)

    def entries(self, files, folder, recursive):
        prefix = f"{folder}/" if folder else ""
        found, folders = [], set()
        for path, data in sorted(files.items()):
            if not path.startswith(prefix):
                continue
            rest = path[len(prefix) :].split("/")
            parents = ["/".join(rest[:i]) for i in range(1, len(rest))]
            for parent in parents if recursive else parents[:1]:
                if parent not in folders:
                    folders.add(parent)
                    oid = git_hash(parent.encode())
                    found.append({"type": "directory", "oid": oid, "size": 0, "path": prefix + parent})
            if parents and not recursive:
                continue
            entry = {"type": "file", "oid": git_hash(data[: len(data)]), "size": len(data), "path": path}
            if is_large(path, len(data)):
                oid = hashlib.sha256(data[: len(data)]).hexdigest()
                entry["lfs"] = {"oid": oid, "size": len(data), "pointerSize": 130}
            found.append(entry)
        return found

    def create(self, handler):
        if not self.may_write(handler):
            return
        asked = json.loads(handler.body)
        kind = f"{asked.get('type', 'model')}s"
        name = f"{asked.get('organization') or 'tester'}/{asked['name']}"
        if f"{kind}/{name}" in self.repos:
            handler.answer(409, json.dumps({"error": "exists", "url": f"{self.url}/{name}"}).encode())
            return
        repo = self.repos[f"{kind}/{name}"] = Repo(private=bool(asked.get("private")))
        repo.commit({".gitattributes": b"*.safetensors filter=lfs\n"}, message="initial commit")
        self.reply(handler, {"url": f"{self.url}/{name}", "name": name, "id": "1"})

    def preupload(self, handler, kind, name, revision):
        if not self.may_write(handler):
            return
        _, parent = self.find_commit(handler, f"{kind}/{name}", revision)
        if parent is None:
            return
        answers = []
        for each in json.loads(handler.body)["files"]:
            base64.b64decode(each["sample"], validate=True)
            mode = "lfs" if is_large(each["path"], each["size"]) else "regular"
            answers.append({"path": each["path"], "uploadMode": mode, "shouldIgnore": False, "oid": None})
        self.reply(handler, {"files": answers, "commitOid": parent})

    def batch(self, handler, kind, name):
        if not self.may_write(handler):
            return
        asked = json.loads(handler.body)
        answers = []
        for each in asked["objects"]:
            answer = {"oid": each["oid"], "size": each["size"]}
            if each["oid"] not in self.store:
                answer["actions"] = self.upload_actions(each, kind, name)
            answers.append(answer)
        multipart = self.part and any(each["size"] > self.part for each in asked["objects"])
        self.reply(handler, {"transfer": "multipart" if multipart else "basic", "objects": answers})

    def upload_actions(self, each, kind, name):
        oid, size = each["oid"], each["size"]
        prefix = f"{kind}/" if kind else ""
        verify = {
            "href": f"{self.url}/{prefix}{name}.git/info/lfs/objects/verify",
            "header": {"Authorization": "Basic b3RoZXI="},
        }
        if not self.part or size <= self.part:
            return {"upload": {"href": f"{self.store_url}/store/{oid}?Signature=up"}, "verify": verify}
        header = {"chunk_size": str(self.part)}
        for i in range(-(-size // self.part)):
            header[f"{i + 1:05}"] = f"{self.store_url}/part/{oid}/{i + 1}?Signature=up"
        href = f"{self.url}/complete/{oid}?uploadId=1"
        return {"upload": {"href": href, "header": header}, "verify": verify}

    def put_part(self, handler, oid, number):
        if handler.headers.get("Authorization"):
            handler.answer(400, b"Only one auth mechanism allowed")
            return
        etag = f'"{hashlib.md5(handler.body).hexdigest()}"'
        self.parts.setdefault(oid, {})[int(number)] = (etag, handler.body)
        handler.answer(200, b"", {"ETag": etag})

    def complete(self, handler, oid):
        asked, parts = json.loads(handler.body), self.parts.get(oid, {})
        right = [(each["partNumber"], each["etag"]) for each in asked["parts"]] == [
            (number, parts[number][0]) for number in sorted(parts)
        ]
        data = b"".join(parts[number][1] for number in sorted(parts))
        if not right or asked["oid"] != oid or hashlib.sha256(data).hexdigest() != oid:
            handler.answer(400, b"parts are not right")
            return
        self.store[oid] = data
        self.reply(handler, {})

    def verify(self, handler, kind, name):
        asked = json.loads(handler.body)
        data = self.store.get(asked["oid"])
        if not self.may_write(handler):
            return
        if data is None or len(data) != asked["size"]:
            self.fail(handler, 404, "", "not there")
        elif hashlib.sha256(data).hexdigest() != asked["oid"]:
            self.fail(handler, 422, "", "another hash")
        else:
            self.reply(handler, {})

    def commit(self, handler, kind, name, revision):
        if not self.may_write(handler):
            return
        repo, parent = self.find_commit(handler, f"{kind}/{name}", revision)
        if parent is None:
            return
        files, message = dict(repo.commits[parent]), ""
        for line in handler.body.splitlines():
            entry = json.loads(line)
            key, value = entry["key"], entry["value"]
            if key == "header":
                message = value["summary"]
                if value.get("parentCommit") not in (None, parent):
                    self.fail(handler, 412, "", "the branch has moved on")
                    return
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"], validate=True)
            elif key == "lfsFile":
                if value["oid"] not in self.store:
                    self.fail(handler, 400, "", "an object is not there")
                    return
                files[value["path"]] = self.store[value["oid"]]
            elif key == "deletedFile":
                if files.pop(value["path"], None) is None:
                    self.fail(handler, 400, "", "no such file to delete")
                    return
        branch = f"refs/pr/{len(repo.refs)}" if "create_pr" in handler.query else revision
        done = repo.commit(files, branch, message)
        answer = {
            "success": True,
            "commitOid": done,
            "commitUrl": f"{self.url}/{name}/commit/{done}",
            "hookOutput": "",
        }
        if "create_pr" in handler.query:
            answer["pullRequestUrl"] = f"{self.url}/{name}/discussions/{len(repo.refs) - 1}"
        self.reply(handler, answer)

    def whoami(self, handler):
        if self.may_write(handler):
            self.reply(handler, {"type": "user", "name": "tester", "orgs": []})


def sample_hub(folder, files):
    """A Hub with a repository org/model of these files, and the environment to use it."""
    hub = Hub()
    hub.add_repo("org/model", files)
    env = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "HF_HOME": str(folder / "hf-home")}
    return hub, env


NAME = r"([\w.-]+/[\w.-]+|[\w.-]+)"
KIND = r"(models|datasets|spaces)"
ROUTES = [
    (rf"/api/{KIND}/{NAME}/tree/([^/]+)(?:/(.+))?", Hub.send_tree),
    (rf"/api/{KIND}/{NAME}/preupload/([^/]+)", Hub.preupload),
    (rf"/api/{KIND}/{NAME}/commit/([^/]+)", Hub.commit),
    (rf"/api/{KIND}/{NAME}(?:/revision/([^/]+))?", Hub.send_info),
    (r"/api/repos/create", Hub.create),
    (r"/api/whoami-v2", Hub.whoami),
    (r"/store/([0-9a-f]{64})", Hub.send_stored),
    (r"/part/([0-9a-f]{64})/(\d+)", Hub.put_part),
    (r"/complete/([0-9a-f]{64})", Hub.complete),
    (rf"/(?:(datasets|spaces)/)?{NAME}\.git/info/lfs/objects/batch", Hub.batch),
    (rf"/(?:(datasets|spaces)/)?{NAME}\.git/info/lfs/objects/verify", Hub.verify),
    (rf"/(?:(datasets|spaces)/)?{NAME}/resolve/([^/]+)/(.+)", Hub.resolve),
]
API = {Hub.send_tree, Hub.preupload, Hub.commit, Hub.send_info, Hub.create, Hub.batch, Hub.verify}
