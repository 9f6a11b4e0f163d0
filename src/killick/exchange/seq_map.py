"""Map the seqs of a source's journal to the seqs of the same entries in a store."""

from array import array
from bisect import bisect_right


class SeqMap:
    """Maps a seq of the source to the seq of the same entry here; 0 is no seq there.

    A seq that the source has lost is where the one before it is.
    """

    def __init__(self) -> None:
        self._here = array("q")

    def note(self, seq: int, here: int) -> None:
        while seq and len(self._here) < seq:
            self._here.append(self.last or here)
        if seq:
            self._here[seq - 1] = here

    @property
    def last(self) -> int:
        return self._here[-1] if self._here else 0

    def knows(self, seq: int) -> bool:
        return 1 <= seq <= len(self._here)

    def __call__(self, seq: int) -> int:
        return self._here[seq - 1] if self.knows(seq) else min(seq, 0)


class TentativeSeqMap:
    """The same, with what would be noted if a unit were found to be stored."""

    def __init__(self, known: SeqMap) -> None:
        self._known = known
        self._seqs: list[int] = []
        self._here: list[int] = []

    def note(self, seq: int, here: int) -> None:
        if seq:
            self._seqs.append(seq)
            self._here.append(here)

    def forget(self, seq: int) -> None:
        """Forget the note of this seq, which was the last."""
        if seq:
            self._seqs.pop()
            self._here.pop()

    def __call__(self, seq: int) -> int:
        before = bisect_right(self._seqs, seq)
        if before:
            return self._here[before - 1]
        if self._seqs and seq > 0 and not self._known.knows(seq):
            return self._known.last or self._here[0]
        return self._known(seq)
