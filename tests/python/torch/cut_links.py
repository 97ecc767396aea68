# SPDX-License-Identifier: Apache-2.0
# cut_links.py - Cutter: a proxy that breaks the connections of a rank's links, or slows them down.
import select
import socket
import threading
import time

from deltawire.torch.common import links


class Cutter:
    """While it is entered, links of this process connect through a proxy.

    length: the proxy breaks each connection after so many bytes.
    pause_s: how long it waits after each part that it has received.
    """

    def __init__(self, length, pause_s=0.0):
        self._length, self._pause_s, self._real = length, pause_s, links.Link

    def __enter__(self):
        def through_proxy(uri, listen=False, **more):
            return self._real(uri if listen else self._proxy(uri), listen, **more)

        links.Link = through_proxy

    def __exit__(self, *_):
        links.Link = self._real

    def _proxy(self, uri):
        head, _, rest = uri.rpartition(":")
        port, mark, query = rest.partition("?")
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, args=(listener, int(port)), daemon=True).start()
        return f"{head}:{listener.getsockname()[1]}{mark}{query}"

    def _serve(self, listener, port):
        while True:
            near, _ = listener.accept()
            try:
                far = socket.socket()
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                far.connect(("127.0.0.1", port))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _pass_on(self, near, far):
        left = self._length
        with near, far:
            while left > 0:
                for one in select.select([near, far], [], [])[0]:
                    try:
                        data = one.recv(1 << (16 if self._pause_s else 12))
                        time.sleep(self._pause_s)
                        (far if one is near else near).sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
                    left -= len(data)
