"""Conformance suites called as functions, to see what they find broken."""


def broken_laws(suite: object) -> dict[str, str]:
    """Return the laws that a suite finds broken, with what it says."""
    found = {}
    for name in dir(suite):
        if name.startswith("test_"):
            try:
                getattr(suite, name)()
            except AssertionError as error:
                found[name.removeprefix("test_")] = str(error)
    return found
