"""The one exception a user is meant to see."""


class UserError(Exception):
    """Something the user can mend: the message says in one line what is wrong and how to mend it.

    The command line prints it without a traceback and exits with code 2.
    """
