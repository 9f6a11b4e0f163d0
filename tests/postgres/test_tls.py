"""Encrypted connections: libpq's own settings decide, from the URL and from the environment."""

import datetime
import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from killick import Message, Store, StoreError, Text
from killick.stores.postgres import PostgresDatabase
from killick.stores.postgres.connection import run
from tests.servers import Server, is_installed

PROMPT = "over a wire that nobody reads"


class Authority:
    """Signs certificates for itself and for servers."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self._name, self._key, ca=True)

    def serve(self, host: str) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names: list[x509.GeneralName] = [
            x509.DNSName(host),
            x509.IPAddress(ipaddress.ip_address("127.0.0.2")),
        ]
        return key, self._signed(name, key, names=names)

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        ca: bool = False,
        names: list[x509.GeneralName] | None = None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(self._key, hashes.SHA256())


def as_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


class Encrypted(NamedTuple):
    """A server that speaks TLS, and nothing else over TCP; whom to trust, and whom not to."""

    server: Server
    trusted: Path
    stranger: Path

    def url(self, *, host: str = "localhost", **options: Any) -> str:
        return self.server.url(**options).replace("@127.0.0.1", f"@{host}")


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Encrypted]:
    if not is_installed("15"):
        pytest.skip("the server of the wheel has no TLS, and PostgreSQL 15 is not installed")
    server = Server("15", fsync="off", ssl="on")
    ours, strangers = Authority("ours"), Authority("a stranger")
    key, certificate = ours.serve("localhost")
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for name, data in (
        ("server.key", pem),
        ("server.crt", as_pem(certificate)),
        ("trusted.crt", as_pem(ours.certificate)),
        ("stranger.crt", as_pem(strangers.certificate)),
    ):
        path = server.folder / name
        path.write_bytes(data)
        if name == "server.key":
            path.chmod(0o600)
            if owner := server.owner:
                os.chown(path, *owner)
    server.settings |= {
        "ssl_cert_file": server.folder / "server.crt",
        "ssl_key_file": server.folder / "server.key",
    }
    server.create()
    rules = "local all all trust\nhostnossl all all 127.0.0.1/32 reject\nhost all all all trust\n"
    (server.data / "pg_hba.conf").write_text(rules)
    server.run("pg_ctl", "-D", server.data, "reload")
    yield Encrypted(server, server.folder / "trusted.crt", server.folder / "stranger.crt")
    server.remove()


def use(url: str) -> tuple[str, bool]:
    """What was said comes back; and whether it went through TLS."""
    database = PostgresDatabase(url)
    with Store(database) as store:
        session = store.create_session()
        with session.turn(PROMPT) as turn:
            turn.record(Message("assistant", [Text("yes")]))
        assert database._writer is not None
        asked = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        row = run(database._writer.connection, asked).fetchone()
        assert row is not None
        return session.messages()[0].text, bool(row[0])


def test_a_server_whose_certificate_is_verified(encrypted: Encrypted) -> None:
    url = encrypted.url(sslmode="verify-full", sslrootcert=encrypted.trusted)
    assert use(url) == (PROMPT, True)


def test_the_environment_says_the_same(
    encrypted: Encrypted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", str(encrypted.trusted))
    assert use(encrypted.url()) == (PROMPT, True)
    monkeypatch.setenv("PGSSLROOTCERT", str(encrypted.stranger))
    with pytest.raises(StoreError, match="certificate"):
        Store(encrypted.url())
    # What the URL says comes first.
    assert use(encrypted.url(sslrootcert=encrypted.trusted)) == (PROMPT, True)


@pytest.mark.parametrize(
    ("host", "root", "said"),
    [
        ("localhost", "stranger", "certificate verify failed"),
        ("127.0.0.1", "trusted", "does not match host name"),
        ("localhost", "nowhere", "certificate file .* does not exist"),
    ],
)
def test_whoever_cannot_be_trusted_is_refused(
    encrypted: Encrypted, host: str, root: str, said: str
) -> None:
    """At once, in words that say it; not as a server that may come back."""
    path = {
        "stranger": encrypted.stranger,
        "trusted": encrypted.trusted,
        "nowhere": encrypted.trusted.with_name("nowhere.crt"),
    }[root]
    url = encrypted.url(host=host, sslmode="verify-full", sslrootcert=path)
    with pytest.raises(StoreError, match=rf"no encrypted connection.*{said}"):
        Store(url)


def test_a_server_that_wants_none_else_refuses_a_plain_connection(encrypted: Encrypted) -> None:
    with pytest.raises(StoreError, match="rejects connection"):
        Store(encrypted.url(host="127.0.0.1", sslmode="disable"))


def test_a_server_without_encryption_is_refused_if_it_is_asked_for() -> None:
    server = Server(fsync="off").create()
    try:
        with pytest.raises(StoreError, match="does not support SSL"):
            Store(server.url(sslmode="require"))
    finally:
        server.remove()
