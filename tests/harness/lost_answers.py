"""An HTTP proxy in front of a node that loses the answer to the first attempt of each request of an AWS SDK.

The node has carried the request out when the proxy closes the connection. The SDK sends the request again, with the same
`amz-sdk-invocation-id`, and that attempt is answered. Older SDKs have no such header; they send the same body again.
"""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

TO_THE_CONNECTION = {"connection", "transfer-encoding", "content-length"}


class LostAnswers:
    def __init__(self, endpoint):
        """`endpoint` is the address of the node."""
        self._node = urlsplit(endpoint).netloc
        self._attempted = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def _handler(self):
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                node = http.client.HTTPConnection(proxy._node)
                node.request("POST", self.path, body, {name: self.headers[name] for name in self.headers})
                answer = node.getresponse()
                content = answer.read()
                node.close()
                invocation = self.headers["amz-sdk-invocation-id"] or body
                if invocation not in proxy._attempted:
                    proxy._attempted.add(invocation)
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in TO_THE_CONNECTION:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        return Handler
