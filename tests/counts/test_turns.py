"""Two versions that are measured in one run take turns, block by block."""

import os
import threading

from benchmarks.turns import Turns


def test_blocks_of_two_processes_alternate_and_one_that_ended_is_not_waited_for() -> None:
    to_first, to_second = os.pipe(), os.pipe()
    os.write(to_first[1], b".")
    done: list[str] = []

    def measure(name: str, fds: str, blocks: int, own_end: int) -> None:
        turns = Turns(fds)
        for _ in range(blocks):
            with turns:
                done.append(name)
        os.close(own_end)

    second = threading.Thread(
        target=measure, args=("b", f"{to_second[0]},{to_first[1]}", 4, to_first[1])
    )
    second.start()
    measure("a", f"{to_first[0]},{to_second[1]}", 2, to_second[1])
    second.join()
    assert done == ["a", "b", "a", "b", "b", "b"]
    os.close(to_first[0])
    os.close(to_second[0])
