"""The one exception a user is meant to see, and the hint at what a mistyped name was meant to be."""

from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend: the message says in one line what is wrong and how to mend it.

    The command line prints it without a traceback and exits with code 2.
    """


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` with the known name nearest to ``name``, or ``""`` if none is near.

    Upper and lower case count as the same letter; without a near one, the first counts that ``name`` begins.
    """
    from difflib import get_close_matches  # a fault's cost, not every start's

    by_lower = {one.lower(): one for one in known}
    begun = [one for one in by_lower if name and one.startswith(name.lower())]
    near = get_close_matches(name.lower(), by_lower, n=1) or begun
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""
