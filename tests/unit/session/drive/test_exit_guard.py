"""How a turn ends by what leaves its block."""

import asyncio

import pytest
import trio

from killick.errors import StoreDegraded, TurnStopped
from killick.session.drive.exit_guard import attach, describe, ending, interruption


def cancelled_by_trio() -> BaseException:
    """A real one: trio lets nobody make its exception."""
    caught: list[BaseException] = []

    async def wait() -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.sleep_forever()
            except trio.Cancelled as error:
                caught.append(error)
                raise

    trio.run(wait)
    return caught[0]


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def test_a_block_left_without_an_exception_completes_the_turn() -> None:
    body = ending("t", None)
    assert (body.turn_id, body.status, body.reason) == ("t", "completed", None)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (asyncio.CancelledError("why"), "cancelled"),
        (KeyboardInterrupt(), "keyboard_interrupt"),
        (GeneratorExit(), "closed"),
        (SystemExit(3), "system_exit"),
        (TurnStopped("asked", reason="enough"), "enough"),
        (TurnStopped("asked", reason=""), "stopped"),
        (BaseExceptionGroup("g", [KeyboardInterrupt()]), "keyboard_interrupt"),
        (
            BaseExceptionGroup("g", [asyncio.CancelledError(), SystemExit()]),
            "cancelled",
        ),
        (
            BaseExceptionGroup("g", [BaseExceptionGroup("h", [asyncio.CancelledError()])]),
            "cancelled",
        ),
    ],
)
def test_what_interrupts_ends_the_turn_as_interrupted(error: BaseException, reason: str) -> None:
    body = ending("t", error)
    assert (body.status, body.reason) == ("interrupted", reason)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (KeyboardInterrupt(), "cancelled"),
        (GeneratorExit(), "abandoned"),
        (SystemExit(3), "terminated"),
        (TurnStopped("asked", reason="enough"), "stopped"),
        (TurnStopped("asked", reason="enough", cause="shut_down"), "shut_down"),
        (ValueError("cancelled"), "failed"),
        (TimeoutError(), "timed_out"),
        (raised_from(ConnectionError(), TimeoutError()), "timed_out"),
        (raised_from(TimeoutError(), ValueError()), "timed_out"),
        (raised_from(ConnectionError(), ValueError()), "failed"),
    ],
)
def test_every_ending_that_is_no_completion_has_a_cause(error: BaseException, cause: str) -> None:
    assert ending("t", error).cause == cause
    assert ending("t", error, "client_gone").cause == "client_gone"
    assert ending("t", None).cause is None
    assert ending("t", None, "client_gone").status == "interrupted"
    assert ending("t", None, "failed").status == "failed"


def test_trio_s_cancellation_ends_the_turn_as_interrupted() -> None:
    body = ending("t", cancelled_by_trio())
    assert (body.status, body.reason) == ("interrupted", "cancelled")


def test_a_group_of_trio_s_and_asyncio_s_cancellations_is_an_interruption() -> None:
    group = BaseExceptionGroup("g", [asyncio.CancelledError(), cancelled_by_trio()])
    assert interruption(group) == ("cancelled", "cancelled")


@pytest.mark.parametrize(
    "error",
    [
        BaseExceptionGroup("g", [asyncio.CancelledError(), ValueError("bad")]),
        BaseExceptionGroup("g", [ValueError("bad"), asyncio.CancelledError()]),
        BaseExceptionGroup(
            "g", [asyncio.CancelledError(), ExceptionGroup("h", [ValueError("bad")])]
        ),
        ExceptionGroup("g", [ValueError("bad")]),
    ],
)
def test_a_group_with_a_failure_in_it_is_a_failure(error: BaseException) -> None:
    body = ending("t", error)
    assert body.status == "failed"
    assert body.reason == "ValueError: bad"  # not that there was a group


def test_all_that_failed_in_a_group_is_named() -> None:
    group = ExceptionGroup(
        "g", [ValueError("bad"), ExceptionGroup("h", [KeyError("x"), OSError()])]
    )
    assert ending("t", group).reason == "ValueError: bad; KeyError: 'x'; OSError"


@pytest.mark.parametrize(
    "error", [ValueError(), ValueError(""), RuntimeError("  "), Exception(None), TimeoutError()]
)
def test_a_failure_never_has_an_empty_reason(error: Exception) -> None:
    body = ending("t", error)
    assert body.status == "failed"
    assert (body.reason or "").strip()
    assert type(error).__name__ in (body.reason or "")


def test_a_failure_names_its_type_and_message() -> None:
    assert ending("t", ValueError("bad")).reason == "ValueError: bad"


def test_a_long_failure_has_a_short_reason_and_its_beginning_as_detail() -> None:
    body = ending("t", ValueError("x" * 5_000))
    assert body.reason is not None
    assert body.detail is not None
    assert (len(body.reason), len(body.detail)) == (200, 2_000)
    assert body.detail.startswith(body.reason)


def test_an_exception_that_cannot_be_printed_still_ends_the_turn() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text for you")

    body = ending("t", Unprintable())
    assert body.status == "failed"
    assert "Unprintable" in (body.reason or "")


def test_an_application_s_own_base_exception_is_a_failure() -> None:
    class Leave(BaseException):
        pass

    assert ending("t", Leave()).status == "failed"


def test_a_subclass_of_an_interruption_is_an_interruption() -> None:
    class Stop(KeyboardInterrupt):
        pass

    assert ending("t", Stop()).status == "interrupted"


def test_a_failed_closing_write_is_attached_to_what_was_leaving() -> None:
    error = KeyboardInterrupt()
    attach(error, StoreDegraded("the disk is full"))
    assert error.__notes__ == [
        "killick could not record this ending: StoreDegraded: the disk is full"
    ]


def test_a_description_is_the_type_alone_where_there_is_no_message() -> None:
    assert (describe(KeyError("k")), describe(OSError())) == ("KeyError: 'k'", "OSError")
    nameless = type("", (Exception,), {})
    assert (describe(OSError(" ")), describe(nameless())) == ("OSError", "Exception")
