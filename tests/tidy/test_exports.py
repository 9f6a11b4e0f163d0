"""The names that outside programs rely on, and that both faces have the same ones."""

import ast
import builtins
import inspect
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import killick
from killick import errors, types
from killick.session import aio, aio_blocks, aio_feeds, feeds, sync, sync_blocks

FACES = [
    (sync.Store, aio.AsyncStore),
    (sync.Session, aio.AsyncSession),
    (sync_blocks.Turn, aio_blocks.AsyncTurn),
    (sync_blocks.Stream, aio_blocks.AsyncStream),
    (sync_blocks.Tool, aio_blocks.AsyncTool),
    (sync_blocks.WriteBatch, aio_blocks.AsyncWriteBatch),
]

OTHERS: list[type] = [
    *(feeds.Following, aio_feeds.AsyncFollowing, feeds.Feed, aio_feeds.AsyncFeed),
    *(feeds.PartEvents, aio_feeds.AsyncPartEvents),
    *(feeds.StoreFollowing, aio_feeds.AsyncStoreFollowing),
    *(sync_blocks.ToolRun, aio_blocks.AsyncToolRun),
]
"""Classes that the faces return, made by them alone."""

STANDARD = {
    *("Any", "AsyncIterator", "Callable", "Iterator", "Self", "Sequence"),
    *("date", "datetime", "timedelta", "PathLike"),
}
VARIABLES = {"SessionT", "TurnT"}
"""Stand for a session or a turn of the caller's face."""

READS = {
    "Store": {
        *("session", "sessions", "search", "usage", "blob", "counts", "status"),
        *("resolve_id", "salvage", "session_ids", "session_info", "check_file"),
        *("verify_session", "linked_entries", "was_erased", "erasures", "retention"),
        *("feed", "follow", "activity", "figures", "openings", "has_session", "tenant", "batch"),
    },
    "Session": {
        *("id", "title", "head", "turn", "messages", "iter_messages", "turns", "entries"),
        *("context", "transcript", "timeline", "info"),
        *("changes", "queued", "approvals", "blob", "notes", "follow", "part_events"),
    },
    "Turn": {"id", "status", "reason", "cause", "repeated", "stop_asked", "stream", "tool"},
    "Stream": {
        *("id", "model_call_id", "text", "reasoning", "tool_call", "part", "finish"),
        *("tool_calls", "on_call", "cut_off", "end_part", "extra"),
    },
    "Tool": {"output", "key"},
    "WriteBatch": {
        *("create_session", "put_blob", "note_all", "add_messages", "finish_tool"),
        *("begin", "record_all", "end"),
    },
}
"""What writes nothing, or only hands a delta over; all other public methods write."""


def public(face: type) -> dict[str, Any]:
    return {name: getattr(face, name) for name in dir(face) if not name.startswith("_")}


def parameters(method: Any) -> list[tuple[str, Any, Any, str]]:
    if isinstance(method, property):
        return []
    found = inspect.signature(method).parameters.values()
    return [(one.name, one.kind, one.default, str(one.annotation)) for one in found]


def test_every_exported_name_resolves() -> None:
    assert [name for name in killick.__all__ if not hasattr(killick, name)] == []


def test_the_list_of_exports_is_sorted_and_has_no_name_twice() -> None:
    assert list(killick.__all__) == sorted(set(killick.__all__))


def test_every_public_name_of_the_package_is_exported() -> None:
    modules = {name for name, value in vars(killick).items() if inspect.ismodule(value)}
    helpers = {"import_module", "TYPE_CHECKING", "Any"}
    found = {name for name in vars(killick) if not name.startswith("_")} - modules - helpers
    assert found - set(killick.__all__) == set()


def test_every_error_is_exported() -> None:
    found = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.KillickError)
    }
    assert found - set(killick.__all__) == set()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        killick.Nothing  # noqa: B018


@pytest.mark.parametrize(("face", "twin"), FACES)
def test_both_faces_have_the_same_names(face: type, twin: type) -> None:
    assert public(face).keys() == public(twin).keys()


@pytest.mark.parametrize(("face", "twin"), FACES)
def test_both_faces_take_the_same_parameters(face: type, twin: type) -> None:
    here = {name: parameters(method) for name, method in public(face).items()}
    there = {name: parameters(method) for name, method in public(twin).items()}
    here["__init__"], there["__init__"] = _settings(face), _settings(twin)
    assert here == there


def _settings(face: type) -> list[tuple[str, Any, Any, str]]:
    """The first parameter of an inner face is the core it stands before, the same for both."""
    return parameters(face.__init__)  # type: ignore[misc]


@pytest.mark.parametrize("face", [face for pair in FACES for face in pair])
def test_every_method_that_writes_says_what_is_true_if_it_is_interrupted(face: type) -> None:
    reads = READS[face.__name__.removeprefix("Async")]
    silent = [
        name
        for name, method in public(face).items()
        if name not in reads and "If interrupted" not in (inspect.getdoc(method) or "")
    ]
    assert silent == []


@pytest.mark.parametrize("face", [face for pair in FACES for face in pair])
def test_every_public_method_has_a_docstring(face: type) -> None:
    bare = [
        name
        for name, method in public(face).items()
        if not isinstance(method, property) and not inspect.getdoc(method)
    ]
    assert bare == []


def methods(face: type) -> dict[str, Any]:
    """What a caller sees: public functions and properties, with the classes they come from."""
    found: dict[str, Any] = {}
    for owner in reversed(face.__mro__[:-1]):
        for name, method in vars(owner).items():
            function = getattr(method, "fget", method)
            made_by_callers = name == "__init__" and face in FACES[0]
            if inspect.isfunction(function) and (not name.startswith("_") or made_by_callers):
                found[name] = function
    return found


def annotated(function: Any) -> set[str]:
    """The names in a signature's annotations, those in quotes too."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs, tree.args.vararg]
    notes = [one.annotation for one in arguments if one is not None]
    return set[str]().union(*(named(note) for note in [*notes, tree.returns]))


def named(note: ast.AST | None) -> set[str]:
    match note:
        case ast.Constant(str() as quoted):
            return named(ast.parse(quoted, mode="eval").body)
        case ast.Subscript(ast.Name("Literal")) | None:
            return set()
        case ast.Attribute(attr=name) | ast.Name(name):
            return {name}
    return set[str]().union(*map(named, ast.iter_child_nodes(note)))


@pytest.mark.parametrize("face", [*(face for pair in FACES for face in pair), *OTHERS])
def test_every_type_in_a_public_signature_is_exported(face: type) -> None:
    known = {*killick.__all__, *vars(builtins), *STANDARD, *VARIABLES}
    missing = {name: annotated(method) - known for name, method in methods(face).items()}
    # A session of either face is what a feed follows.
    missing.get("follow", set()).discard("HasCore")
    assert {name: names for name, names in missing.items() if names} == {}


@pytest.mark.parametrize("face", [*(face for pair in FACES for face in pair), *OTHERS])
def test_every_parameter_of_a_public_call_is_spelt_out(face: type) -> None:
    for name, method in methods(face).items():
        for parameter in inspect.signature(method).parameters.values():
            assert parameter.kind is not parameter.VAR_KEYWORD, name
            bare = parameter.annotation is parameter.empty
            assert parameter.name in ("self", "_") or not bare, (name, parameter.name)


def test_public_types_are_those_of_the_package() -> None:
    assert list(types.__all__) == sorted(set(types.__all__))
    assert set(types.__all__) <= set(killick.__all__)
    assert all(getattr(types, name) is getattr(killick, name) for name in types.__all__)


def test_importing_the_package_brings_no_event_loop_along() -> None:
    program = (
        "import sys, killick; killick.Store; "
        "print(sorted({'asyncio', 'anyio', 'trio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_asynchronous_face_is_there_when_it_is_asked_for() -> None:
    program = "from killick import AsyncStore; print(AsyncStore.__module__)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "killick.session.aio"
