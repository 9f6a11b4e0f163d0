"""Sessions of other agents in, and sessions out in formats that others read."""

from killick.exchange.exporting import EXPORTS, Export, export_session, prepare_export
from killick.exchange.finding import FORMATS, import_paths, usual_places
from killick.exchange.native import NotTheSame
from killick.exchange.report import Outcome, Place, Problem, Report

__all__ = [
    "EXPORTS",
    "FORMATS",
    "Export",
    "NotTheSame",
    "Outcome",
    "Place",
    "Problem",
    "Report",
    "export_session",
    "import_paths",
    "prepare_export",
    "usual_places",
]
