"""The program that the children of `tests.crash.processes` are forked from."""

import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback

from tests.crash.processes import Channel, Gone


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    # Imported once, here, so that children begin warm.
    importlib.import_module("killick.session.aio")
    importlib.import_module("killick.stores.sqlite")
    importlib.import_module("killick.stores.postgres")
    importlib.import_module("anyio._backends._asyncio")
    importlib.import_module("anyio._backends._trio")
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(control, children)
        if control.fileno() not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(control, 1_000_000, 1)
        if not data:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            return
        request = json.loads(data)
        importlib.import_module(request["module"])
        pid = os.fork()
        if pid == 0:
            control.close()
            signal.set_wakeup_fd(-1)
            os.close(woken)
            os.close(wake)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _run(request, Channel(socket.socket(fileno=descriptors[0])))
            return
        os.close(descriptors[0])
        children.add(pid)
        _tell(control, {"started": pid})


def _run(request: dict[str, object], parent: Channel) -> None:
    body = getattr(sys.modules[str(request["module"])], str(request["name"]))
    arguments = request["arguments"]
    assert isinstance(arguments, list)
    try:
        body(parent, *arguments)
    except SystemExit:
        raise
    except Gone:
        os._exit(1)  # the test is over
    except BaseException:  # noqa: BLE001  (raised in the test)
        parent.send({"failed": traceback.format_exc()})
        os._exit(1)


def _reap(control: socket.socket, children: set[int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        children.discard(pid)
        _tell(control, {"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _tell(control: socket.socket, news: dict[str, int]) -> None:
    control.sendall(json.dumps(news).encode() + b"\n")


if __name__ == "__main__":
    main()
