"""Fingerprints of code: a hash of all code that a function or class uses, in this project and in the user's files.

Syntax trees and values of outside names enter: helpers in other files, constants and attributes of classes. Docstrings,
comments, formatting, annotations, error messages, `__repr__` and file names do not. Installed packages enter by name.
"""

from fedlib.fingerprint.walk import Cache, Registry, fingerprint

__all__ = ["Cache", "Registry", "fingerprint"]
