"""The fingerprint of code: a hash of all code that a function or class uses, in this project and in the user's files.

It consists of syntax trees and of the values of outside names: helpers in other files, constants and attributes of
classes change it; docstrings, comments, formatting, annotations, error messages, `__repr__` and the file that a
function is in do not. Code of installed packages enters only by its name.
"""

from fedlib.fingerprint.walk import Cache, Registry, fingerprint

__all__ = ["Cache", "Registry", "fingerprint"]
