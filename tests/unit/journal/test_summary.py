"""What is derived from a journal: how the session is described, and what runs."""

from killick.journal.summary import Derived, advance, describe
from killick.model import entries as e
from killick.model.sessions import Description, Fork, Project
from tests.unit.journal.making import TURN, begun, ended, entries, said


def derive(journal: list[e.Entry]) -> Derived:
    derived = Derived()
    for entry in journal:
        advance(derived, entry.seq, entry.at_us, entry.body)
    return derived


def described(*bodies: e.Body) -> Description:
    about = Description()
    for number, body in enumerate(bodies, start=1):
        about = describe(about, body, number)
    return about


def test_a_session_is_described_by_its_first_entry() -> None:
    about = described(e.SessionCreated(title="T", type="subagent", tags=("a", "a")))
    assert (about.title, about.type, about.tags) == ("T", "subagent", ("a",))


def test_a_fork_says_where_it_branches_off() -> None:
    fork = Fork("ses_1", 7)
    assert described(e.SessionCreated(fork=fork)).fork == fork


def test_a_person_s_title_is_not_replaced_by_a_generated_one() -> None:
    mine = e.Renamed(id="1", title="mine", by="person")
    assert described(mine, e.Renamed(id="2", title="theirs", by="model")).title == "mine"


def test_a_generated_title_is_replaced_by_a_person_s() -> None:
    theirs = e.Renamed(id="1", title="theirs", by="model")
    assert described(theirs, e.Renamed(id="2", title="mine", by="person")).title == "mine"


def test_deleting_archiving_and_pinning_can_be_taken_back() -> None:
    done = e.Deleted(id="1"), e.Archived(id="2"), e.Pinned(id="3")
    about = described(*done)
    assert (about.deleted_at_us, about.deleted, about.archived, about.pinned) == (1, *[True] * 3)
    back = e.Restored(id="4"), e.Archived(id="5", archived=False), e.Pinned(id="6", pinned=False)
    about = described(*done, *back)
    assert (about.deleted, about.archived, about.pinned) == (False, False, False)


def test_tags_are_put_on_once_and_taken_off() -> None:
    first = e.Tagged(id="1", add=("a", "b"))
    second = e.Tagged(id="2", add=("b", "c"), remove=("a",))
    assert described(first, second).tags == ("b", "c")


def test_a_session_moves_to_another_project() -> None:
    moved = e.Moved(id="1", project=Project("/new"))
    assert described(e.SessionCreated(project=Project("/old")), moved).project == Project("/new")


def test_what_does_not_concern_the_session_leaves_its_description() -> None:
    about = Description(title="T")
    assert describe(about, said(), 1) is about


def test_the_newest_turn_and_the_models_are_known() -> None:
    calls = [
        e.ModelCallStarted(id=name, turn_id=TURN, model=name, system=f"b2:{name}")
        for name in ("m1", "m2", "m1")
    ]
    about = derive(entries(begun(), *calls)).about
    assert (about.status, about.models, about.system) == ("running", ("m1", "m2"), "b2:m1")
    assert derive(entries(begun(), ended("failed", "why"))).about.status == "failed"


def test_what_runs_and_what_waits_is_known_by_its_place() -> None:
    queued = e.PromptWaiting(id="q", role="user", parts=())
    stop = e.StopAsked(id="s", turn_id=TURN, reason="r")
    derived = derive(entries(queued, queued, begun(), stop, queued))
    assert (derived.turn_seq, derived.stop_seq, derived.queue_seq) == (3, 4, 5)
    over = derive(entries(begun(), stop, ended()))
    assert (over.turn_seq, over.stop_seq, over.fence) == (None, None, 1)


def test_only_what_changes_something_says_so() -> None:
    derived = Derived()
    assert advance(derived, 1, 10, begun())
    assert not advance(derived, 2, 20, said())
    assert advance(derived, 3, 30, e.ModelCallStarted(id="c", turn_id=TURN, model="m"))
    assert not advance(derived, 4, 40, e.ModelCallStarted(id="d", turn_id=TURN, model="m"))
    assert derived.updated_at_us == 10
