"""The same figures drawn: SVG for the document, PNG for those who cannot show it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.peers.work import Figure

DOCUMENTED: Final = Path(__file__).parents[2] / "docs" / "plots"
_OURS: Final = "#0b6e4f"


def draw(figures: Sequence[Figure], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "killick"  # the same figures give the same file
    plot = partial(_plot, folder, figures)
    plot("append", "peers-append", "messages in the session", "one append, ms", _millis)
    plot("together", "peers-together", "sessions at once", "appends a second", _rate)
    plot("load all", "peers-load", "messages in the session", "loading all, ms", _millis)


def _millis(figure: Figure) -> float:
    return figure.p50 * 1e3


def _rate(figure: Figure) -> float:
    return figure.per_second


def _plot(
    folder: Path, figures: Sequence[Figure], work: str, name: str, across: str, up: str, value: Any
) -> None:
    drawing, axes = plt.subplots(figsize=(9, 5.5), layout="constrained")
    mine = [one for one in figures if one.work == work]
    for number, store in enumerate(dict.fromkeys(one.store for one in mine)):
        points = [(one.size, value(one)) for one in mine if one.store == store]
        ours = store == "Killick"
        axes.plot(
            *zip(*points, strict=True),
            label=store,
            marker="o",
            color=_OURS if ours else f"C{number % 10}",
            linewidth=3 if ours else 1.2,
            linestyle="-" if ours else ("--", ":", "-.")[number % 3],
            zorder=3 if ours else 2,
        )
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
    axes.grid(visible=True, alpha=0.3)
    drawing.legend(loc="outside right upper", fontsize="small", frameon=False)
    drawing.savefig(folder / f"{name}.svg", metadata={"Date": None})
    drawing.savefig(folder / f"{name}.png", dpi=120)
    plt.close(drawing)
