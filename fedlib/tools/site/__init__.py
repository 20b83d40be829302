"""The static site: results, executed notebooks, methods and API; `python -m fedlib.tools.site build`.

The evidence in `figures/reference/evidence` is read, never computed again: the pages, the README's score and the ledger
come from the same files. `results` makes the pages of numbers and claims, `library` those of methods, API and code,
`texts` those that are written by hand, `executed` the notebooks; `build` hands all of them to Sphinx.
"""
