"""The references say what the code says: kinds and fields, identities, errors, words."""

import inspect
import re
from typing import Any

import msgspec
import pytest

import killick
from killick import errors
from killick.journal import rules
from killick.journal.codec import KNOWN_KINDS
from killick.journal.kinds import KINDS, identity
from killick.model import entries as e
from killick.model import limits
from killick.model.causes import CAUSES, KEEP_WAITING
from killick.session.core.session import VERIFIED_ON_OPEN
from killick.session.runtime import EXIT_SECONDS
from tests.docs.pages import DOCS, PAGES, first_column

SOURCE = DOCS.parent / "src" / "killick"
JOURNAL = (DOCS / "journal.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", JOURNAL, re.MULTILINE | re.DOTALL))
BODIES: dict[str, Any] = {str(kind.__struct_config__.tag): kind for kind in e.KnownBody.__args__}
LAID_OUT: dict[str, Any] = {
    "fence": 1,
    "amount": 1.0,
    "spent": 1.0,
    "seq": 1,
    "first": 1,
    "through": 1,
    "attempt": 1,
    "attempts": 1,
    "until_us": 1,
    "role": "user",
    "parts": [],
    "status": "failed",
    "state": "partial",
    "approved": True,
    "deltas": [],
    "result": {"type": "tool_result", "call_id": "{call_id}", "content": ""},
}


def sample(kind: str) -> e.Body:
    """A body whose ids are the names of their fields, in braces."""
    fields = msgspec.structs.fields(BODIES[kind])
    values = {f.name: LAID_OUT.get(f.name, f"{{{f.name}}}") for f in fields if f.required}
    body: e.Body = msgspec.convert({"kind": kind, **values}, BODIES[kind])
    return body


def test_every_kind_is_described_and_no_other() -> None:
    assert set(SECTIONS) == set(BODIES) == KNOWN_KINDS


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_every_field_is_described_in_order(kind: str) -> None:
    described = re.findall(r"^- `(\w+)`: ", SECTIONS[kind], re.MULTILINE)
    fields = [field.name for field in msgspec.structs.fields(BODIES[kind])]
    assert described == [field for field in fields if field not in ("v", "redacted")]


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_identity_is_described(kind: str) -> None:
    assert f"Identity `{identity(sample(kind))}`." in SECTIONS[kind]


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_who_may_write_is_described(kind: str) -> None:
    fenced = {
        True: r"Fenced\.",
        False: r"Not fenced[.;]|Gives the fence out\.|Written with `turn_started`",
    }
    assert re.search(fenced[KINDS[BODIES[kind]].fenced], SECTIONS[kind])


def order_table() -> str:
    """Print the order rules as the table that docs/journal.md holds."""
    rows = ["| entry | its turn runs | its turn is over | it needs |", "|---|---|---|---|"]
    for kind, body in BODIES.items():
        rule = rules.ORDER[body]
        needs = (rule.needs.__doc__ or "").split("\n")[0] if rule.needs else ""
        running, over = cell(rule.running, "running"), cell(rule.over, "over")
        rows.append(f"| `{kind}` | {running} | {over} | {needs} |")
    return "\n".join(rows)


def cell(step: rules.Step, state: rules.State) -> str:
    if isinstance(step, str):
        return "yes" if step == state else f"yes, then {step}"
    return f"`{step.__name__}`"


def test_the_order_rules_are_printed() -> None:
    printed = re.search(r"<!-- order -->\n(.*?)\n<!-- /order -->", JOURNAL, re.DOTALL)
    assert printed is not None
    assert printed[1] == order_table()


def test_a_deleted_session_takes_its_restoring_and_what_was_handed_over_before() -> None:
    admitted = [kind for kind, rule in rules.ORDER.items() if isinstance(rule.deleted, str)]
    assert admitted == [e.Restored, e.LateText]


def test_every_error_is_described_under_its_base() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", (DOCS / "errors.md").read_text("utf-8"), re.M)
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    kinds = [kind for kind in classes if issubclass(kind, BaseException)]
    assert dict(rows) == {kind.__name__: kind.__bases__[0].__name__ for kind in kinds}
    assert len(rows) == len(kinds)


def test_every_error_can_be_imported_as_described() -> None:
    named = re.findall(r"^\| `(\w+)`", (DOCS / "errors.md").read_text("utf-8"), re.M)
    assert set(named) <= set(killick.__all__)


def test_errors_with_a_second_base_are_named() -> None:
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    lookups = {kind.__name__ for kind in kinds if issubclass(kind, LookupError)}
    assert lookups == {k.__name__ for k in kinds if k.__name__.endswith("NotFound")} | {
        "SessionDeleted"
    }
    values = [kind.__name__ for kind in kinds if issubclass(kind, ValueError)]
    assert values == ["InvalidEntry", "InvalidQuery", "InvalidCursor", "BudgetTooSmall"]


def test_glossary_has_the_words_of_the_contract() -> None:
    words = first_column(DOCS / "glossary.md")
    assert len(words) == len(set(words))
    assert {
        "session", "turn", "model call", "message", "part", "delta", "entry", "seq", "view",
        "compaction", "lease", "fence", "late",
    } <= set(words)  # fmt: skip


def test_names_in_the_architecture_exist() -> None:
    """A module, class or function that ARCHITECTURE.md names is in the source."""
    text = next(page for page in PAGES if page.name == "ARCHITECTURE.md").read_text("utf-8")
    source_files = sorted(SOURCE.rglob("*.*"))
    source = "\n".join(p.read_text("utf-8") for p in source_files if p.suffix in {".py", ".sql"})
    for owner, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", text):
        assert f"class {owner}" in source, owner
        assert f"def {member}(" in source, member
    for path in re.findall(r"`((?:model|journal|stores|session)/[\w/]+\.py)`", text):
        assert (SOURCE / path).exists(), path


@pytest.mark.parametrize(
    ("page", "stated"),
    [
        ("ARCHITECTURE.md", f"{limits.FLUSH_BYTES:,} bytes of one stream"),
        ("docs/guarantees.md", f"{limits.STREAM_BUFFER_BYTES:,} bytes of one stream"),
        ("docs/guarantees.md", f"at most {limits.BODY_BYTES_MAX // 2:,} bytes in all"),
        ("docs/guarantees.md", f"{limits.WINDOW_SECONDS * 1000:.0f} ms unless"),
        ("docs/guarantees.md", f"newest {VERIFIED_ON_OPEN:,} entries"),
        ("docs/guarantees.md", f"at most {EXIT_SECONDS:.0f} s"),
        ("docs/journal.md", f"over {limits.BODY_BYTES_INLINE >> 20} MiB lies in a blob"),
        ("docs/journal.md", f"over {limits.BODY_BYTES_MAX >> 20} MiB"),
    ],
)
def test_limits_are_those_of_the_code(page: str, stated: str) -> None:
    words = " ".join((DOCS.parent / page).read_text("utf-8").split())
    assert stated in words


def test_causes_are_those_of_the_code() -> None:
    """The journal's page lists all of them; other pages name none that is not in the list."""
    section = JOURNAL.split("### `turn_ended`")[1].split("###")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == CAUSES
    kept = section.split("goes on waiting after")[1].split("The reason")[0]
    assert set(re.findall(r"`(\w+)`", kept)) == KEEP_WAITING
    text = (DOCS / "how-to" / "record-a-turn.md").read_text("utf-8")
    listed = set(re.findall(r"\| `(?:interrupted|failed)` \| `(\w+)` \|", text))
    listed |= set(re.findall(r"^\| .+ \| `(\w+)` \|", (DOCS / "how-to/chat.md").read_text("utf-8")))
    assert listed <= set(CAUSES)
    assert len(listed) == 5


# -- docs/parameters.md ----------------------------------------------------------------------------

FACES = (killick.Store, killick.Session, killick.Turn, killick.Stream, killick.Tool)
PARAMETERS = (DOCS / "parameters.md").read_text(encoding="utf-8")


def parameter_rows() -> dict[tuple[str, str, str], str]:
    """Each class, method and parameter that the page names, with its default."""
    found = {}
    for section in PARAMETERS.split("\n## ")[1:]:
        owner = section.splitlines()[0]
        for methods, names, default in re.findall(
            r"^\| (`.+?`) \| (`.+?`) \| (.*?) \| .+ \|$", section, re.MULTILINE
        ):
            for method in re.findall(r"`(\w+)`", methods):
                for name in re.findall(r"`(\w+)`", names):
                    assert (owner, method, name) not in found
                    found[owner, method, name] = default.strip("` ")
    return found


def parameters() -> dict[tuple[str, str, str], tuple[inspect.Parameter, str]]:
    """The same of the signatures, with the docstrings."""
    found = {}
    for face in FACES:
        methods = [getattr(face, name) for name in dir(face) if not name.startswith("_")]
        for method in [face, *filter(inspect.isroutine, methods)]:
            if method is face and face is not killick.Store:
                continue  # made by a method of another
            for one in list(inspect.signature(method).parameters.values()):
                if one.name != "self":
                    found[face.__name__, method.__name__, one.name] = (one, method.__doc__ or "")
    return found


def test_every_parameter_is_explained_by_its_docstring_or_the_page() -> None:
    """A docstring explains a parameter that it names."""
    rows = parameter_rows()
    assert [
        key
        for key, (_, text) in parameters().items()
        if key not in rows and not re.search(rf"\b{key[2]}\b", text)
    ] == []


def test_the_page_names_parameters_that_there_are_with_their_defaults() -> None:
    there = parameters()
    shown = {}
    for key, default in parameter_rows().items():
        if key[1:] == ("open_session", "id"):
            continue  # it needs one, and says so
        value = there[key][0].default
        name = value.__name__ if inspect.isfunction(value) else repr(value).replace("'", '"')
        name = name.removeprefix("datetime.")
        shown[key] = (default, "" if value is inspect.Parameter.empty else name)
    assert [key for key, (page, code) in shown.items() if page != code] == []
