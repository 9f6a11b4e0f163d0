"""What became of a sample, as figures, as a table, and in `docs/evidence.md`."""

from collections import Counter
from collections.abc import Sequence

from mutate.operators import Mutant
from mutate.trying import Equivalent, Trial, is_equivalent
from torture import report
from torture.report import Figures, PackageFigures


def figures(
    trial: Trial, wanted: Sequence[Mutant], judged: dict[str, Equivalent], seed: int
) -> Figures:
    """Count what is known of a sample."""
    counts: dict[str, Counter[str]] = {}
    survivors: list[str] = []
    for mutant in wanted:
        count = counts.setdefault(mutant.module.partition("/")[0], Counter())
        if is_equivalent(mutant, trial.source(mutant), judged):
            count["equivalent"] += 1
            continue
        outcome = trial.known(mutant)
        if outcome is None:
            continue
        caught = outcome.verdict in ("caught", "hangs")
        count["caught" if caught else "survived"] += 1
        if not caught:
            survivors.append(mutant.id)
    packages = [
        PackageFigures(name, count["caught"], count["survived"], count["equivalent"])
        for name, count in sorted(counts.items())
    ]
    return Figures(seed, len(wanted), *report.when_and_where(), packages, sorted(survivors))


def table(figures: Figures) -> str:
    return "\n".join(report.mutant_table(figures))


def write(figures: Figures) -> None:
    """Keep the figures, and renew the page of which they are a section."""
    report.write_mutants(figures)
