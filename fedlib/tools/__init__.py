"""Commands around the library: batch runs of notebooks, the page of their results, the site, the benchmark."""
