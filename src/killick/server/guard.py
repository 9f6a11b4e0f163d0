"""Who may ask: where a request says it goes, where it comes from, and whose token it shows."""

import ipaddress
from collections.abc import Mapping
from typing import Final, Literal

from killick.errors import KillickError
from killick.server.failing import Refused
from killick.server.tokens import May, Tokens

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


class Guard:
    """The rules of one server. Whoever has made a token is asked for one everywhere."""

    def __init__(self, host: str, allowed_hosts: tuple[str, ...], tokens: Tokens) -> None:
        self._allowed = {host.lower(), *LOOPBACK_NAMES, *(one.lower() for one in allowed_hosts)}
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

    def may(self, headers: Mapping[str, str]) -> May | None:
        """What this request's token allows; everything when there are none, on loopback alone.

        A server that others reach lets nobody in once its last token was revoked.
        """
        if not self._tokens.any():
            return None if self._any_address else "write"
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        return self._tokens.find(secret.strip()) if scheme.lower() == "bearer" else None

    def still_may_read(self, headers: Mapping[str, str]) -> bool:
        """Whether the token of a request that goes on was not revoked meanwhile."""
        try:
            return self.may(headers) is not None
        except (KillickError, OSError):
            return False

    def authorise(
        self, headers: Mapping[str, str], needs: Literal["open", "read", "write"]
    ) -> None:
        """Raises Refused unless the token allows it."""
        if needs == "open":
            return
        may = self.may(headers)
        if may is None:
            raise Refused(
                401, "token_needed", "A token is needed: Authorization: Bearer …",
                headers={"WWW-Authenticate": "Bearer"},
            )  # fmt: skip
        if needs == "write" and may == "read":
            raise Refused(403, "read_only", "This token may only read.")


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
