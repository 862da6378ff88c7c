"""The charm as charmcraft packs it, run by its own dispatch script against the testbed."""
