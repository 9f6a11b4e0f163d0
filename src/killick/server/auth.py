"""Tokens: who may read and who may write, in a file that knows only their hashes."""

import contextlib
import fcntl
import hashlib
import hmac
import ipaddress
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from killick.errors import KillickError, UsageError
from killick.model.sessions import moment
from killick.server.responses import Refused
from killick.stores.owner import give, open_or_make

May = Literal["read", "write"]
VARIABLE: Final = "KILLICK_TOKENS"
_PREFIX: Final = "killick_"


class TokenFileDamaged(KillickError):
    """The file of tokens cannot be read; it admits no client."""


class Token(msgspec.Struct, frozen=True):
    """A token without its secret; `hash` is its SHA-256."""

    id: str
    name: str
    may: May
    hash: str
    made_at: str
    tenant: str | None = None
    """Whose sessions it is for; None for the tenant of the server's own store."""


LOOPBACK: Final = Token("", "this machine", "write", "", "")
"""The rights of every client of a server that only this machine reaches, and that has no tokens."""


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[Token, ...] = ()


def token_path() -> Path:
    """Return the file of tokens: the one that KILLICK_TOKENS names, or the default."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_config_dir("killick", appauthor=False)) / "tokens.json"


class Tokens:
    """The tokens of one file. A running server notices at once when one is made or revoked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_as: tuple[int, int, int] | None = None
        self._known: tuple[Token, ...] = ()

    def all(self) -> tuple[Token, ...]:
        """Every token there is. Raises TokenFileDamaged."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._read_as, self._known = None, ()
            return ()
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        if stamp != self._read_as:
            self._known = _decode(self.path.read_bytes(), self.path)
            self._read_as = stamp
        return self._known

    def any(self) -> bool:
        """Return whether clients need a token."""
        return bool(self.all())

    def find(self, secret: str) -> Token | None:
        """Return the token of this secret; None if it is none of ours."""
        hashed = _hash(secret)
        matching: Token | None = None
        for token in self.all():
            if hmac.compare_digest(token.hash, hashed):
                matching = token
        return matching

    def make(self, name: str, may: May, at_us: int, tenant: str | None = None) -> tuple[Token, str]:
        """A new token, and the secret that is shown this once.

        If interrupted: it is there or it is not; one whose secret was not shown can be revoked.
        """
        number = secrets.token_hex(4)
        secret = f"{_PREFIX}{number}_{secrets.token_urlsafe(32)}"
        made_at = moment(at_us).isoformat(timespec="seconds").replace("+00:00", "Z")
        token = Token(number, name, may, _hash(secret), made_at, tenant)
        with self._changing():
            self._save((*self.all(), token))
        return token, secret

    def revoke(self, token_id: str) -> Token:
        """Take a token away. Raises UsageError. If interrupted: it is revoked or it is not."""
        with self._changing():
            matching = [token for token in self.all() if token_id in (token.id, token.name)]
            if not matching:
                raise UsageError(f"no token {token_id!r}; 'killick token list' has them all")
            if len(matching) > 1:
                raise UsageError(f"several tokens are called {token_id!r}; give the id of one")
            self._save(tuple(token for token in self.all() if token.id != matching[0].id))
        return matching[0]

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One process at a time: the file is replaced, so the lock is one beside it."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = open_or_make(self.path.with_name(f"{self.path.name}.lock"), self.path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._read_as = None
            yield
        finally:
            os.close(lock)

    def _save(self, tokens: tuple[Token, ...]) -> None:
        new = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                give(descriptor, self.path)
                file.write(msgspec.json.format(msgspec.json.encode(_File(tokens)), indent=1))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self._read_as = None


def _decode(data: bytes, path: Path) -> tuple[Token, ...]:
    try:
        return msgspec.json.decode(data, type=_File).tokens
    except msgspec.DecodeError as error:
        raise TokenFileDamaged(f"{path} is no file of tokens: {error}") from error


def _hash(secret: str) -> str:
    # The secret is 32 random bytes: there is nothing to guess, so nothing to slow down.
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})

HEADERS: Final[tuple[tuple[bytes, bytes], ...]] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        b"connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
        b"form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
"""On every answer."""


def is_loopback(host: str) -> bool:
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Rate:
    """Requests of each token: so many a second, and what was saved up in two seconds at once."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, token_id: str, now: float) -> float:
        """Count a request; return 0, or after how many seconds there is room for it."""
        most = max(1.0, 2 * self._per_second)
        left, at = self._left.get(token_id, (most, now))
        left = min(most, left + (now - at) * self._per_second)
        taken = left if left < 1 else left - 1
        self._left[token_id] = taken, now
        return max(0.0, (1 - left) / self._per_second)


class Guard:
    """The rules of one server. Once a token exists, every client needs one."""

    def __init__(
        self,
        host: str,
        allowed_hosts: tuple[str, ...],
        tokens: Tokens,
        *,
        requests_per_second: float = 100.0,
    ) -> None:
        self._rate = Rate(requests_per_second)
        self._allowed = {host.lower(), *LOOPBACK_NAMES, *(name.lower() for name in allowed_hosts)}
        self._any_address = not is_loopback(host)
        self._tokens = tokens

    def check(self, headers: Mapping[str, str], *, navigation: bool) -> None:
        """Refuse what another site's page can cause. Raises Refused."""
        host = headers.get("host", "")
        name = host_name(host)
        if not (name in self._allowed or (self._any_address and _is_address(name))):
            raise Refused(
                421, "wrong_host", "This server does not go by that name; see --allow-host."
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (
            f"http://{host.lower()}",
            f"https://{host.lower()}",
        ):
            raise Refused(403, "cross_origin", "Another site may not ask this server.")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not navigation:
            raise Refused(403, "cross_origin", "Another site may not ask this server.")

    def token(self, headers: Mapping[str, str]) -> Token | None:
        """Return this request's token; without tokens, one for all clients on loopback alone.

        A server that others reach admits no client once its last token was revoked.
        """
        if not self._tokens.any():
            return None if self._any_address else LOOPBACK
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        return self._tokens.find(secret.strip()) if scheme.lower() == "bearer" else None

    def still_may_read(self, headers: Mapping[str, str]) -> bool:
        """Return whether the token of a request that goes on is still valid."""
        try:
            return self.token(headers) is not None
        except (KillickError, OSError):
            return False

    def authorise(
        self, headers: Mapping[str, str], needs: Literal["open", "read", "write"]
    ) -> Token:
        """Return the token that allows it, which is not too busy. Raises Refused."""
        if needs == "open":
            return LOOPBACK
        token = self.token(headers)
        if token is None:
            raise Refused(
                401, "token_needed", "A token is needed: Authorization: Bearer …",
                headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip
        if needs == "write" and token.may == "read":
            raise Refused(403, "read_only", "This token may only read.")
        wait = 0.0 if token is LOOPBACK else self._rate.wait(token.id, time.monotonic())
        if wait > 0:
            raise Refused(
                429, "too_many_requests", "This token asks too often; wait, then ask again.",
                headers={"Retry-After": str(math.ceil(wait))},
            )  # fmt: skip
        return token


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
