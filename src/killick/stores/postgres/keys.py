"""The key of a session: its tenant's number and its own, in one.

Both are needed to find a row, and both are random enough to spread over partitions: the first is a
hash of the tenant's name, the second is drawn when the session is created. Nothing counts them.
"""

import secrets
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from killick.journal.codec import to_bytes
from killick.stores.postgres.connection import Bigints

_BITS: Final = 63
_MASK: Final = (1 << 64) - 1


def tenant_number(name: str) -> int:
    return int.from_bytes(blake2b(to_bytes(name), digest_size=8).digest()) >> 1


def new_number() -> int:
    return secrets.randbits(_BITS)


def join(tenant: int, session: int) -> int:
    return tenant << 64 | session


def split(key: int) -> tuple[int, int]:
    return key >> 64, key & _MASK


def of(key: int, **more: Any) -> dict[str, Any]:
    """The parameters of a statement about one session."""
    return {"tenant": key >> 64, "session": key & _MASK, **more}


def columns(keys: Sequence[int]) -> dict[str, Any]:
    """The parameters of a statement about several."""
    return {
        "tenants": Bigints(key >> 64 for key in keys),
        "sessions": Bigints(key & _MASK for key in keys),
    }


def identity_key(identity: str) -> bytes:
    """An identity as the index holds it; the session stands before it there."""
    return blake2b(to_bytes(identity), digest_size=16).digest()
