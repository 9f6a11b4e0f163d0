"""Sessions of other agents in, and sessions out in formats that others read."""

from holdfast.exchange.exporting import EXPORTS, Export, export_session, prepare_export
from holdfast.exchange.finding import FORMATS, import_paths, usual_places
from holdfast.exchange.native import NotTheSame
from holdfast.exchange.report import Outcome, Place, Problem, Report

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
