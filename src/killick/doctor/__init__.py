"""Examining a whole store: what is wrong, which sessions it touches, and what can be made anew."""

from killick.doctor.examination import Examination, examine

__all__ = ["Examination", "examine"]
