"""Sessions of other agents in, and sessions out in formats that others read."""

from killick.exchange.export import EXPORTS, NOT_TEXT, Export, export_session, prepare_export
from killick.exchange.export.native import NotTheSame
from killick.exchange.importer import FORMATS, import_paths, usual_places
from killick.exchange.records import Outcome, Problem, Report, SourceLocation

__all__ = [
    "EXPORTS",
    "FORMATS",
    "NOT_TEXT",
    "Export",
    "NotTheSame",
    "Outcome",
    "Problem",
    "Report",
    "SourceLocation",
    "export_session",
    "import_paths",
    "prepare_export",
    "usual_places",
]
