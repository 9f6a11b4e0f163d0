"""Sessions of other agents in, and sessions out in formats that others read."""

from holdfast.exchange.exporting import EXPORTS, export_session
from holdfast.exchange.finding import FORMATS, import_paths, usual_places
from holdfast.exchange.report import Outcome, Place, Problem, Report

__all__ = [
    "EXPORTS",
    "FORMATS",
    "Outcome",
    "Place",
    "Problem",
    "Report",
    "export_session",
    "import_paths",
    "usual_places",
]
