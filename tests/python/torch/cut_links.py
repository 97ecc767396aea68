# SPDX-License-Identifier: Apache-2.0
# cut_links.py - Cutter: breaks the connections of a rank's links after some bytes, for tests.
import select
import socket
import threading

from deltawire.torch import carrier_sums


class Cutter:
    """While it is entered, links of this process connect through a proxy, which breaks each
    connection after so many bytes."""

    def __init__(self, length):
        self._length, self._real = length, carrier_sums.Link

    def __enter__(self):
        def through_proxy(uri, listen=False, **more):
            return self._real(uri if listen else self._proxy(uri), listen, **more)

        carrier_sums.Link = through_proxy

    def __exit__(self, *_):
        carrier_sums.Link = self._real

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
                far = socket.create_connection(("127.0.0.1", port))
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
                        data = one.recv(4096)
                        (far if one is near else near).sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
                    left -= len(data)
