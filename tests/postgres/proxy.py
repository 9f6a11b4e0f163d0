"""A wire between a store and its server that a test can cut, at a moment that it chooses."""

import contextlib
import socket
import threading
from typing import Literal

Fate = Literal["lost", "swallowed", "terminated", "late"]
"""Of a request: it never reaches the server; or it does, and the answer never comes back; or the
server says in place of the answer that an administrator has ended it; or it is on its way until
`deliver`."""

_FIELDS = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
TERMINATED = b"E" + (len(_FIELDS) + 4).to_bytes(4) + _FIELDS


class Proxy:
    """Passes everything on between a port of its own and the server's."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._mutex = threading.Lock()
        self._open = True
        self._traps: list[tuple[bytes, Fate, bool]] = []
        self.instead: tuple[bytes, bytes] | None = None
        """What of the server's words is said otherwise; both are of one length."""
        self.sprung = threading.Event()
        self._late: list[tuple[bytes, socket.socket]] = []
        self._ended: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Drop every connection, and refuse new ones."""
        self.refuse()
        self._drop_all()

    def refuse(self) -> None:
        """Refuse new connections; those that are there stay."""
        with self._mutex:
            self._open = False

    def heal(self) -> None:
        with self._mutex:
            self._open = True

    def blink(self) -> None:
        """Drop every connection; new ones are let through."""
        self._drop_all()

    def trap(self, text: bytes, fate: Fate, *, stay_cut: bool = False) -> None:
        """Let the next request with this text in it meet its fate."""
        self.sprung.clear()
        with self._mutex:
            self._traps.append((text, fate, stay_cut))

    def deliver(self) -> None:
        """Let the server have what was late; returns when it has dealt with it."""
        for data, server in self._late:
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            while server.recv(1 << 20):
                pass
            server.close()
        self._late.clear()

    def close(self) -> None:
        self._closed = True
        self._listening.close()
        self._drop_all()

    def _drop_all(self) -> None:
        with self._mutex:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)  # closed by whoever passes things on

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if not self._open:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._mutex:
                self._pairs.append((client, server))
            self._serve(client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        there = threading.Thread(target=self._to_server, args=(client, server), daemon=True)
        there.start()

        def back() -> None:
            self._pass_back(server, client)
            there.join(5)
            client.close()
            server.close()

        threading.Thread(target=back, daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                trap = self._sprung_by(data)
                if trap is None:
                    server.sendall(data)
                    continue
                _, fate, stay_cut = trap
                if stay_cut:
                    self.refuse()  # before the client knows that it has to come again
                if fate == "terminated":
                    self._ended.add(server)
                    server.sendall(data)
                    continue
                self._meet(fate, data, client, server)
                if stay_cut:
                    self._drop_all()
                self.sprung.set()
                return
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _sprung_by(self, data: bytes) -> tuple[bytes, Fate, bool] | None:
        with self._mutex:
            for trap in self._traps:
                if trap[0] in data:
                    self._traps.remove(trap)
                    return trap
        return None

    def _meet(self, fate: Fate, data: bytes, client: socket.socket, server: socket.socket) -> None:
        # The client's end goes first, so that no answer is passed back.
        client.shutdown(socket.SHUT_RDWR)
        if fate == "late":
            self._late.append((data, server.dup()))
            return
        if fate == "swallowed":
            server.sendall(data)
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_WR)  # the server ends what it was told, then leaves
        else:
            server.shutdown(socket.SHUT_RDWR)

    def _pass_back(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                if self.instead is not None:
                    data = data.replace(*self.instead)
                if source in self._ended:
                    with contextlib.suppress(OSError):
                        target.sendall(TERMINATED)
                    self.sprung.set()
                    break
                with contextlib.suppress(OSError):
                    target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
