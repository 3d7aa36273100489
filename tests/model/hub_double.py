"""A double of the Hugging Face hub: what huggingface_hub asks for models, on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz01234567"
Files = dict[str, bytes]


class Hub:
    """Repositories: branches, and commits with all of their files."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.repos: dict[str, dict[str, str]] = {}
        self.commits: dict[str, Files] = {}
        self.asked: list[str] = []
        self.large: dict[str, bytes] = {}

    def commit(self, repo: str, files: Files, branch: str = "main") -> str:
        sha = hashlib.sha1(f"{repo} {len(self.commits)}".encode()).hexdigest()
        self.commits[sha] = files
        self.repos.setdefault(repo, {})[branch] = sha
        return sha

    def files(self, repo: str, revision: str = "main") -> Files:
        return self.commits[self.repos[repo].get(revision, revision)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _route(self) -> None:
        self.hub: Hub = self.server.hub
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length) if length else self._chunks()
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        is_open = self.command in ("GET", "HEAD") or path.startswith("/large/")
        if not is_open and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"error": "Invalid username or password."})
        for method, pattern, answer in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in method.split():
                return answer(self, *found.groups())
        return self._send(404, {"error": "not found"}, {"X-Error-Code": "RepoNotFound"})

    do_GET = do_HEAD = do_POST = do_PUT = _route

    def _chunks(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return b""
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, told: object, headers: dict[str, str] | None = None) -> None:
        data = told if isinstance(told, bytes) else json.dumps(told).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _sha(self, repo: str, revision: str) -> str | None:
        branches = self.hub.repos.get(repo)
        if branches is None:
            self._send(404, {}, {"X-Error-Code": "RepoNotFound"})
            return None
        sha = branches.get(revision, revision)
        if sha not in self.hub.commits:
            self._send(404, {}, {"X-Error-Code": "RevisionNotFound"})
            return None
        return sha

    def create(self) -> None:
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or 'user'}/{asked['name']}"
        if name in self.hub.repos:
            told = {"error": "You already created this model repo", "url": f"{self.hub.url}/{name}"}
            return self._send(409, told)
        self.hub.commit(name, {".gitattributes": b"*.safetensors filter=lfs\n"})
        return self._send(200, {"url": f"{self.hub.url}/{name}", "name": name, "id": "1"})

    def branch(self, repo: str, name: str) -> None:
        if name in self.hub.repos[repo]:
            return self._send(409, {"error": "Reference already exists"})
        self.hub.repos[repo][name] = self.hub.repos[repo]["main"]
        return self._send(200, {})

    def info(self, repo: str, revision: str = "main") -> None:
        if sha := self._sha(repo, revision):
            listed = [{"rfilename": name} for name in self.hub.commits[sha]]
            told = {"id": repo, "modelId": repo, "sha": sha, "siblings": listed, "private": False}
            self._send(200, {**told, "tags": [], "downloads": 0, "likes": 0})

    def tree(self, repo: str, revision: str) -> None:
        if sha := self._sha(repo, revision):
            files = self.hub.commits[sha]
            self._send(200, [_entry(name, data) for name, data in files.items()])

    def preupload(self, repo: str, revision: str) -> None:
        files = [
            {
                **{"path": one["path"], "shouldIgnore": False},
                "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular",
            }
            for one in json.loads(self.body)["files"]
        ]
        self._send(200, {"files": files})

    def batch(self, repo: str) -> None:
        asked = json.loads(self.body)["objects"]
        objects = [
            {
                **{"oid": one["oid"], "size": one["size"]},
                "actions": {"upload": {"href": f"{self.hub.url}/large/{one['oid']}"}},
            }
            for one in asked
        ]
        self._send(200, {"transfer": "basic", "objects": objects})

    def put(self, oid: str) -> None:
        assert hashlib.sha256(self.body).hexdigest() == oid
        self.hub.large[oid] = self.body
        self._send(200, b"")

    def commit(self, repo: str, revision: str) -> None:
        files = dict(self.hub.files(repo, revision))
        for line in self.body.splitlines():
            told = json.loads(line)
            value = told["value"]
            if told["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif told["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
            elif told["key"] == "deletedFile":
                del files[value["path"]]
        sha = self.hub.commit(repo, files, revision)
        told = {"commitUrl": f"{self.hub.url}/{repo}/commit/{sha}", "commitOid": sha}
        self._send(200, {**told, "success": True, "pullRequestUrl": None})

    def resolve(self, repo: str, revision: str, name: str) -> None:
        if sha := self._sha(repo, revision):
            data = self.hub.commits[sha].get(name)
            if data is None:
                return self._send(404, {}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
            etag = hashlib.sha256(data).hexdigest()
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": sha, "Content-Type": "text/plain"}
            self._send(200, data, headers)

    def log_message(self, *given: object) -> None:
        pass


def _entry(name: str, data: bytes) -> dict:
    sha = hashlib.sha256(data).hexdigest()
    entry = {"type": "file", "path": name, "size": len(data), "oid": sha[:40]}
    if name.endswith(".safetensors"):
        entry["lfs"] = {"oid": sha, "size": len(data), "pointerSize": 130}
    return entry


REPO = "([^/]+/[^/]+)"
ROUTES = [
    ("POST", "/api/repos/create", _Handler.create),
    ("POST", f"/api/models/{REPO}/branch/([^/]+)", _Handler.branch),
    ("POST", f"/api/models/{REPO}/preupload/([^/]+)", _Handler.preupload),
    ("POST", f"/api/models/{REPO}/commit/([^/]+)", _Handler.commit),
    ("POST", "/api/validate-yaml", lambda self: self._send(200, {"errors": [], "warnings": []})),
    ("POST", f"/{REPO}.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT", "/large/([0-9a-f]+)", _Handler.put),
    ("GET", f"/api/models/{REPO}", _Handler.info),
    ("GET", f"/api/models/{REPO}/revision/([^/]+)", _Handler.info),
    ("GET", f"/api/models/{REPO}/tree/([^/]+)", _Handler.tree),
    ("GET HEAD", f"/{REPO}/resolve/([^/]+)/(.+)", _Handler.resolve),
]


@contextmanager
def hub_double():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
