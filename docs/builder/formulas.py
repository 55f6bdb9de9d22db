r"""Formulas: LaTeX between ``\(…\)`` and ``\[…\]`` becomes MathML, which browsers set without a script.

So a page needs neither a library nor a font from elsewhere, and reads the same offline and on paper.
"""

import re
from html import unescape

from latex2mathml.converter import convert

_APART = re.compile(
    r"(<(?:pre|code|math|script|style)\b.*?</(?:pre|code|math|script|style)>|<[^>]*>)", re.DOTALL
)
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>',
    re.DOTALL,
)


def set_in(html: str) -> str:
    """Return a page's HTML with its formulas as MathML, scripts of others raised, and roles as code."""
    html = re.sub(r":(?:mod|func|class|meth|data|attr):(<code>)~?", r"\1", html)
    html = _FORMULA.sub(lambda found: formula(unescape(found[3]), display=found[2] == "["), html)
    parts = _APART.split(html)  # every second one is left as it is
    return "".join(part if place % 2 else _scripts(part) for place, part in enumerate(parts))


def _scripts(text: str) -> str:
    """Set ``θ_{t+1}`` and ``e^{a/τ}`` in a text as formulas are written by hand."""
    for mark, tag in (("_", "sub"), ("^", "sup")):
        text = re.sub(rf"\{mark}{{([^{{}}]*)}}", rf"<{tag}>\1</{tag}>", text)
    return text


def formula(latex: str, *, display: bool) -> str:
    """Return a formula as MathML; a displayed one scrolls in its own box where the page is narrower."""
    mathml = convert(latex.strip(), display="block" if display else "inline")
    return f'<div class="formula">{mathml}</div>' if display else mathml
