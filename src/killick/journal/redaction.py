"""Takes secrets out of what is about to be written, if a store was opened with a redaction.

What is taken out is counted in the entry and kept nowhere. Signatures, encrypted content and a
provider's opaque data are never touched, nor is reasoning that is signed. Streamed reasoning whose
signature comes after something in it was masked is no longer what was signed: it loses it.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from killick.errors import InvalidEntry
from killick.journal.assembly import is_whole_object
from killick.journal.kinds import KINDS
from killick.model import entries as e
from killick.model.messages import File, Image, Json, Reasoning, Text, ToolCall, ToolResult

Redact = Callable[[str], str]
"""A text without what must not be stored. Runs inside a transaction: it must be quick."""

MASK: Final = "\ue0ff"
"""Stands for each character taken out of a delta, whose length must not change."""

_MASKED: Final = re.compile(f"{MASK}+")

SECRETS: Final = {
    "private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]+?-----END [A-Z ]*PRIVATE KEY-----",
    "AWS key id": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})\b",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{24,}",
    "OpenAI key": r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{32,}",
    "Google key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "Slack token": r"\bxox[abeprs]-[A-Za-z0-9-]{20,}",
    "Stripe key": r"\b[rs]k_live_[A-Za-z0-9]{20,}\b",
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}\b",
    "npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "JSON web token": r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
}
"""What is certainly a secret; each is named where it stood."""

_NAMES: Final = tuple(SECRETS)


@cache
def _any_secret() -> re.Pattern[str]:
    """Compiled when it is first needed: most stores are opened without it."""
    return re.compile("|".join(f"(?P<s{n}>{text})" for n, text in enumerate(SECRETS.values())))


def replace_secrets(text: str, label: Callable[[str, str], str]) -> str:
    """Put `label(kind, secret)` in place of every secret of a text."""
    return _any_secret().sub(
        lambda match: label(_NAMES[int((match.lastgroup or "s0")[1:])], match[0]), text
    )


def redact_secrets(text: str) -> str:
    """Replace every secret of a text by its kind."""
    return replace_secrets(text, lambda kind, _secret: f"[redacted: {kind}]")


class Redactor:
    """Applies one redaction to bodies and to deltas."""

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._count = 0

    def body(self, body: e.Body) -> e.Body:
        """Redact a body. Raises InvalidEntry when the redaction itself fails."""
        if isinstance(body, e.Unknown):
            return body
        self._count = 0
        changes = {
            name: changed
            for name in KINDS[type(body)].redacts
            if (value := getattr(body, name)) is not None
            and not isinstance(value, bool)
            and (changed := self._value(value)) is not value
        }
        if not self._count:
            return body
        return msgspec.structs.replace(body, **changes, redacted=body.redacted + self._count)

    def text(self, text: str) -> str:
        """Redact a text. Raises InvalidEntry when the redaction itself fails."""
        try:
            redacted = self._redact(text)
        except Exception as error:
            raise InvalidEntry(f"the redaction failed, so nothing was stored: {error}") from error
        if not isinstance(redacted, str):
            raise InvalidEntry("the redaction returned something that is no text")
        redacted, masks = _MASKED.subn("[redacted]", redacted)
        # How many places were changed is known of our own patterns; any other change is one.
        named = redacted.count("[redacted: ") - text.count("[redacted: ")
        self._count += max(named, int(redacted != text and not masks)) + masks
        return redacted

    def request(self, system: str | None, tools: Json) -> tuple[str | None, Json, int]:
        """Redact what a model is asked with; also return how many secrets were taken out of it."""
        apart = Redactor(self._redact)  # what is counted here is not the writer's
        redacted = None if system is None else apart.text(system)
        return redacted, apart._json(tools), apart._count

    def rest(self, known: str, text: str) -> str | None:
        """Return what of a text goes beyond what is stored, redacted; None when it does not."""
        whole, rest = self.text(text), text[len(known) :]
        if not text.startswith(known):
            return whole[len(known) :] if whole.startswith(known) else None
        if known + self.text(rest) == whole:
            return rest
        return _masked(text, whole)[len(known) :]  # a secret is cut in two where it was cut off

    def forms(self, arguments: str) -> tuple[str, str]:
        """Return what arguments may be stored as: written whole, or flushed while they came."""
        whole = self.arguments(arguments)
        return whole, _MASKED.sub("[redacted]", _masked(arguments, whole))

    def mask(self, deltas: Sequence[e.Delta]) -> tuple[e.Delta, ...]:
        """Mask secrets in deltas, keeping lengths; one that two flushes share is not seen."""
        return tuple(
            msgspec.structs.replace(delta, text=_masked(delta.text, self.text(delta.text)))
            if delta.text and not (delta.signature or delta.encrypted)
            else delta
            for delta in map(self._without_secrets, deltas)
        )

    # -- values --------------------------------------------------------------------------------

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            changed = self.text(value)
            return value if changed == value else changed
        if isinstance(value, tuple):
            items = tuple(self._item(item) for item in value)
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        if isinstance(value, ToolResult):
            return self._result(value)
        return self._json(value)

    def _item(self, item: Any) -> Any:
        item = self._without_secrets(item)
        match item:
            case str():
                return self._value(item)
            case (
                Text()
                | Reasoning(signature=None, encrypted=None)
                | e.Delta(signature=None, encrypted=None)
            ):
                return self._replaced(item, "text")
            case Reasoning() if MASK in item.text:
                return self._replaced(unsigned(item), "text")
            case ToolCall():
                arguments = self.arguments(item.arguments)
                if arguments == item.arguments:
                    return item
                return msgspec.structs.replace(item, arguments=arguments)
            case ToolResult():
                return self._result(item)
            case Image(alt=str()):
                return self._replaced(item, "alt")
            case File(name=str()):
                return self._replaced(item, "name")
            case _:
                return item

    def _without_secrets(self, item: Any) -> Any:
        """Leave out further fields that hold a secret: a provider takes them exactly, or not."""
        extra = getattr(item, "extra", None)
        signed = getattr(item, "signature", None) or getattr(item, "encrypted", None)
        if extra is None or signed or self._json(extra) == extra:
            return item
        return msgspec.structs.replace(item, extra=None)

    def _replaced(self, item: Any, field: str) -> Any:
        value = getattr(item, field)
        changed = self._value(value)
        return item if changed is value else msgspec.structs.replace(item, **{field: changed})

    def arguments(self, arguments: str) -> str:
        """Redact arguments; a whole object stays one, whatever the redaction does to text."""
        changed = self.text(arguments)
        if changed == arguments or is_whole_object(changed) or not is_whole_object(arguments):
            return changed
        counted = self._count
        kept = self._by_values(arguments)
        self._count = counted
        return kept or json.dumps({"redacted": changed}, ensure_ascii=False)

    def _by_values(self, arguments: str) -> str | None:
        """Redact an object value by value; None if that is not enough."""
        try:
            value = self._json(json.loads(arguments))
            dense = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            spaced = json.dumps(value, ensure_ascii=False)
        except RecursionError:
            return None
        # What is taken out may lie in no value alone, but in a name and its value together.
        return dense if self.text(dense) == dense and self.text(spaced) == spaced else None

    def _result(self, result: ToolResult) -> ToolResult:
        content = self._value(result.content)
        structured = self._json(result.structured)
        if content is result.content and structured == result.structured:
            return result
        return msgspec.structs.replace(result, content=content, structured=structured)

    def _json(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            return [self._json(inner) for inner in value]
        return value

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        """Redact names and values; number names that became the same."""
        kept: dict[str, Any] = {}
        for name, inner in value.items():
            redacted = unique = self.text(name)
            number = 1
            while unique in kept:
                number += 1
                unique = f"{redacted} #{number}"
            kept[unique] = self._json(inner)
        return kept


def unsigned(part: Reasoning) -> Reasoning:
    """Return reasoning without what signs it: its text was masked before its signature came."""
    return msgspec.structs.replace(part, signature=None, encrypted=None)


def failed(body: e.Body) -> e.Body:
    """Return a body without any text: it must be written although its redaction failed."""
    return Redactor(lambda text: "[not stored: the redaction failed]" if text else "").body(body)


def _masked(before: str, after: str) -> str:
    """`before`, with what `after` has changed in it masked, character by character."""
    if before == after:
        return before
    start = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    tail = 0
    while tail < min(len(before), len(after)) - start and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    end = len(before) - tail
    return before[:start] + MASK * (end - start) + before[end:]
