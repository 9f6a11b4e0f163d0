"""Tokens: who may read and who may write, in a file that knows only their hashes."""

import contextlib
import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from killick.errors import KillickError, UsageError
from killick.model.sessions import moment

May = Literal["read", "write"]
VARIABLE: Final = "KILLICK_TOKENS"
_PREFIX: Final = "hf_"


class TokenFileDamaged(KillickError):
    """The file of tokens cannot be read; nobody is let in by it."""


class Token(msgspec.Struct, frozen=True):
    """What is known of a token: never the token itself. `hash` is its SHA-256."""

    id: str
    name: str
    may: May
    hash: str
    made_at: str


class _File(msgspec.Struct, frozen=True):
    tokens: tuple[Token, ...] = ()


def token_path() -> Path:
    """Where tokens lie when nobody said where."""
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
            found = self.path.stat()
        except FileNotFoundError:
            self._read_as, self._known = None, ()
            return ()
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if stamp != self._read_as:
            self._known = _decode(self.path.read_bytes(), self.path)
            self._read_as = stamp
        return self._known

    def any(self) -> bool:
        """Whether anybody is asked for a token."""
        return bool(self.all())

    def find(self, secret: str) -> May | None:
        """What this token allows; None if it is none of ours."""
        given = _hash(secret)
        allowed: May | None = None
        for token in self.all():
            if hmac.compare_digest(token.hash, given):
                allowed = token.may
        return allowed

    def make(self, name: str, may: May, at_us: int) -> tuple[Token, str]:
        """A new token, and the secret that is shown this once.

        If interrupted: it is there or it is not; one that nobody was shown can be revoked.
        """
        number = secrets.token_hex(4)
        secret = f"{_PREFIX}{number}_{secrets.token_urlsafe(32)}"
        made_at = moment(at_us).isoformat(timespec="seconds").replace("+00:00", "Z")
        token = Token(number, name, may, _hash(secret), made_at)
        with self._changing():
            self._save((*self.all(), token))
        return token, secret

    def revoke(self, token_id: str) -> Token:
        """Take a token away. Raises UsageError. If interrupted: it is revoked or it is not."""
        with self._changing():
            found = [one for one in self.all() if token_id in (one.id, one.name)]
            if not found:
                raise UsageError(f"no token {token_id!r}; 'killick token list' has them all")
            if len(found) > 1:
                raise UsageError(f"several tokens are called {token_id!r}; give the id of one")
            self._save(tuple(one for one in self.all() if one.id != found[0].id))
        return found[0]

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """One process at a time: the file is replaced, so the lock is one beside it."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
