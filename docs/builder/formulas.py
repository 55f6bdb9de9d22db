r"""Formulas: LaTeX between ``\(…\)`` and ``\[…\]`` becomes MathML, which browsers set without a script.

So a page needs neither a library nor a font from elsewhere, and reads the same offline and on paper.
"""

import re
from html import unescape

from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>',
    re.DOTALL,
)


def set_in(html: str) -> str:
    """Return a page's HTML with its formulas as MathML, and code for the roles of docstrings."""
    html = re.sub(r":(?:mod|func|class|meth|data|attr):(<code>)~?", r"\1", html)
    return _FORMULA.sub(lambda found: formula(unescape(found[3]), display=found[2] == "["), html)


def formula(latex: str, *, display: bool) -> str:
    """Return a formula as MathML; a displayed one scrolls in its own box where the page is narrower."""
    mathml = convert(latex.strip(), display="block" if display else "inline")
    return f'<div class="formula">{mathml}</div>' if display else mathml
