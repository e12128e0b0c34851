"""A small Hugging Face Hub on this machine: what huggingface_hub asks for when it fetches a model, and nothing more."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


class LocalHub:
    """Models by name and revision, each a folder; `asked` lists the files that were sent."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Path]] = {}
        self.asked: list[str] = []
        self.address = ""

    def add(self, model: str, folder: Path, revision: str = "main") -> str:
        """The commit that the folder has there."""
        commit = hashlib.sha1(str(folder).encode()).hexdigest()
        self.models.setdefault(model, {}).update({revision: folder, commit: folder})
        return commit

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        of_api = parts[:2] == ["api", "models"]
        owner, name, what, revision, *file = (parts[2:] if of_api else parts) + ["revision", "main"][: 2 * (len(parts) == 4)]
        revisions = self.models.get(f"{owner}/{name}")
        if revisions is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        if revision not in revisions:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        folder = revisions[revision]
        commit = next(key for key, value in revisions.items() if value == folder and len(key) == 40)
        files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        if of_api and what == "revision":
            siblings = [{"rfilename": one} for one in files]
            return 200, {}, json.dumps({"id": f"{owner}/{name}", "sha": commit, "siblings": siblings}).encode()
        if of_api:
            about = {one: {"size": path.stat().st_size, "oid": _oid(path)} for one, path in files.items()}
            rows = [{"type": "file", "path": one, **facts} for one, facts in about.items()]
            return 200, {}, json.dumps(rows).encode()
        wanted = files["/".join(file)]
        return 200, {"X-Repo-Commit": commit, "ETag": f'"{_oid(wanted)}"'}, wanted.read_bytes()


def _oid(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


@contextmanager
def serving() -> Iterator[LocalHub]:
    hub = LocalHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._send(body=False)

        def do_GET(self) -> None:
            self._send(body=True)
            if "/resolve/" in self.path:
                hub.asked.append(unquote(self.path.split("/resolve/")[1].partition("/")[2]))

        def _send(self, body: bool) -> None:
            status, headers, content = hub.answer(self.path)
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), "Content-Type": "application/json", **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
