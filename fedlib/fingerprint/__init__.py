"""Fingerprints of code: a hash of all code that a function or class uses, in this project and in the user's files.

Hashed are syntax trees and values of outside names: helpers in other files, constants, class attributes. Docstrings,
comments, formatting, annotations, error messages, `__repr__`, file names and this project's checks (`check_…`) are not.
Installed packages enter by name.
"""

from fedlib.fingerprint.walk import Cache, Registry, each_once, fingerprint

__all__ = ["Cache", "Registry", "each_once", "fingerprint"]
