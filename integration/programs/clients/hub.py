"""A model hub on this machine, for huggingface_hub: repositories of files by revision. Not a client itself.

    hub = Hub()                          serves at hub.endpoint until the process ends
    commit = hub.push(repo, folder)      a new revision of a repository, main
"""
import hashlib
import http.server
import json
import os
import re
import threading
import urllib.parse

LFS = 64 << 10  # files from here on are LFS's, which go by their SHA-256; others by their SHA-1, as git has them


class File:
    def __init__(self, data):
        self.data = data
        self.git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        self.sha256 = hashlib.sha256(data).hexdigest() if len(data) >= LFS else None
        self.etag = self.sha256 or self.git

    def described(self, path):
        said = {"type": "file", "path": path, "oid": self.git, "size": len(self.data)}
        if self.sha256:
            said["lfs"] = {"oid": self.sha256, "size": len(self.data), "pointerSize": 130}
        return said


class Hub:
    def __init__(self):
        self.revisions = {}  # (repo, revision): (commit, {path: File})
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                hub.answer(self)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{server.server_port}"

    def push(self, repo, folder):
        files = {}
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                with open(path, "rb") as f:
                    files[os.path.relpath(path, folder)] = File(f.read())
        commit = hashlib.sha1(repr(sorted((p, f.etag) for p, f in files.items())).encode()).hexdigest()
        self.revisions[repo, "main"] = self.revisions[repo, commit] = commit, files
        return commit

    def answer(self, request):
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        if m := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            found = self.revisions.get(m.group(1, 2))
            file = found and found[1].get(m[3])
            if file:
                return self.send(request, file.data, {"ETag": f'"{file.etag}"', "X-Repo-Commit": found[0]})
        elif m := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            if found := self.revisions.get((m[1], m[3])):
                commit, files = found
                said = [f.described(p) for p, f in sorted(files.items())]
                if m[2] == "revision":
                    said = {"_id": "1", "id": m[1], "modelId": m[1], "sha": commit, "private": False, "tags": [], "downloads": 0,
                            "likes": 0, "siblings": [{"rfilename": s["path"]} for s in said]}
                return self.send(request, json.dumps(said).encode(), {"Content-Type": "application/json", "X-Repo-Commit": commit})
        self.send(request, b"{}", {"X-Error-Code": "EntryNotFound", "Content-Type": "application/json"}, 404)

    @staticmethod
    def send(request, data, headers, status=200):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        size = len(data)
        if wanted and status == 200:
            first, last = int(wanted[1]), int(wanted[2] or size - 1)
            data, status = data[first:last + 1], 206
            headers = headers | {"Content-Range": f"bytes {first}-{min(last, size - 1)}/{size}"}
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(data)
