"""python3 api.py PORT [FILE]: an API with the operation POST /v1/guest-tokens, as Python's programs look for it.

The answer names the readings of the request's target that find the operation. With a file, each request is a line of it
before it is answered.
"""

import json
import posixpath
import sys
import threading
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse, urlsplit
from wsgiref.simple_server import WSGIRequestHandler

OPERATION = "/v1/guest-tokens"
RECORD = open(sys.argv[2], "a", buffering=1) if len(sys.argv) > 2 else None
LOCK = threading.Lock()


class API(WSGIRequestHandler):
    directory = "/"
    timeout = 20
    handle = BaseHTTPRequestHandler.handle

    def readings(self):
        yield "the target", lambda: self.path
        yield "urlsplit", lambda: urlsplit(self.path).path
        yield "urlsplit, decoded", lambda: unquote(urlsplit(self.path).path)
        yield "urlparse", lambda: urlparse(self.path).path
        yield "urlparse, decoded", lambda: unquote(urlparse(self.path).path)
        yield "urlparse, normalised", lambda: posixpath.normpath(unquote(urlparse(self.path).path))
        yield "PATH_INFO", lambda: self.get_environ()["PATH_INFO"]
        yield "a file's path", lambda: SimpleHTTPRequestHandler.translate_path(self, self.path).rstrip("/")

    def served(self):
        found = []
        for name, read in self.readings():
            try:
                if self.command == "POST" and read() == OPERATION:
                    found.append(name)
            except ValueError:
                pass  # no URL: an API answers 400
        return found

    def answer(self):
        try:
            self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 1 << 20))
        except ValueError:
            pass
        by = self.served()
        if RECORD:
            lines = {name: self.headers.get_all(header, []) for name, header in (
                ("agent", "User-Agent"), ("forwarded", "X-Forwarded-For"), ("user", "X-User-Id"), ("cookie", "Cookie"))}
            line = json.dumps({"method": self.command, "target": self.path, "served": by, **lines})
            with LOCK:
                RECORD.write(line + "\n")
        body = "\n".join(by).encode()
        self.send_response(201 if by else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = answer

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    base_environ = {}

    def handle_error(self, *_):
        pass  # a client that is gone


Server(("127.0.0.1", int(sys.argv[1])), API).serve_forever()
