"""Lines of damaged files: every whole record comes out, and what does not is named."""

import io
from pathlib import Path

import pytest

from killick.exchange.read import lines_of, read_lines, time_us


def read(data: bytes) -> tuple[list[object], list[int | None]]:
    """The records, and the numbers of lines on which something was lost."""
    found = list(lines_of(io.BytesIO(data), "file.jsonl"))
    records = [line.record["n"] for line in found if line.record is not None]
    return records, [line.location.line for line in found if line.problem is not None]


@pytest.mark.parametrize(
    ("data", "records", "lost"),
    [
        (b'{"n": 1}\n{"n": 2', [1], [2]),
        (b'{"n": 1}\n{"n": 2, "text": "cut{"n": 3}\n{"n": 4}\n', [1, 3, 4], [2]),
        (b'{"n": 1}\nrubbish\n{"n": 3}\n', [1, 3], [2]),
        (b'{"n": 1}\n' + bytes(4_000) + b'{"n": 2}\n{"n": 3}\n', [1, 2, 3], []),
        (b'{"n": 1}\n' + bytes(4_000) + b'\n{"n": 3}\n', [1, 3], [2]),
        (b'{"n": "\xe2\x80\xa8"}\n{"n": "\xc2\x85"}\n', ["\u2028", "\x85"], []),
        (b'{"n": "\\ud800"}\n{"n": 2}\n', ["\ud800", 2], []),
        (b'{"n": "\xff"}\n{"n": 2}\n', [2], [1]),
    ],
    ids=["torn", "fused", "rubbish", "nul", "nul alone", "separators", "surrogate", "not UTF-8"],
)
def test_every_whole_record_comes_out(data: bytes, records: list[object], lost: list[int]) -> None:
    assert read(data) == (records, lost)


def test_a_mark_of_utf8_before_the_first_line_is_none_of_it(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\n{"n": 2}\n')
    assert [(line.record, line.problem) for line in read_lines(path)] == [
        ({"n": 1}, None), ({"n": 2}, None)
    ]  # fmt: skip


def test_no_number_up_to_zero_is_a_time() -> None:
    assert [time_us(value) for value in (0, -5, 0.0, float("nan"), True)] == [None] * 5
    assert time_us(1.5e9) == time_us(1.5e12) == 1_500_000_000_000_000
