"""A small Hugging Face Hub on this machine: the addresses that its client asks for, and some ways to fail."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "5a1b" * 10
OTHER = "6c2d" * 10


class Hub(ThreadingHTTPServer):
    """Serves the files of one repository, ``owner/tiny``, at two commits; ``owner/gated`` is gated."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files  # path -> content, at the branch main
        self.other = {}  # path -> content, at the branch other
        self.cut = set()  # (commit, path) whose content ends early
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        hub = self.server
        path = self.path.split("?")[0]
        hub.asked.append((self.command, path))
        file = re.fullmatch(r"/(owner/\w+)/resolve/([^/]+)/(.+)", path)
        listing = re.fullmatch(r"/api/models/(owner/\w+)(?:/revision/([^/]+))?", path)
        repository, revision = (file or listing).groups()[:2] if file or listing else ("", "")
        if repository == "owner/gated":
            return self.fail(401, "GatedRepo")
        if repository != "owner/tiny":
            return self.fail(401, "RepoNotFound")
        commits = {"main": (COMMIT, hub.files), COMMIT: (COMMIT, hub.files)}
        commits |= {"other": (OTHER, hub.other), OTHER: (OTHER, hub.other)}
        if (revision or "main") not in commits:
            return self.fail(404, "RevisionNotFound")
        commit, files = commits[revision or "main"]
        if listing:
            facts = {"id": repository, "sha": commit, "siblings": [{"rfilename": name} for name in files]}
            return self.send(json.dumps(facts).encode(), {"Content-Type": "application/json"}, body)
        name = file.group(3)
        if name not in files:
            return self.fail(404, "EntryNotFound", {"X-Repo-Commit": commit})
        content = files[name]
        etag = hashlib.sha256(content).hexdigest()
        return self.send(content, {"ETag": f'"{etag}"', "X-Repo-Commit": commit}, body, cut=(commit, name) in hub.cut)

    def fail(self, status, code, headers=()):
        self.send(b"", {"X-Error-Code": code, "X-Error-Message": code, **dict(headers)}, True, status)

    def send(self, content, headers, body, status=200, cut=False):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut and body:
            self.close_connection = True

    def log_message(self, *_):
        pass
