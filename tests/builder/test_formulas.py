import pytest
from latex2mathml.exceptions import NoAvailableTokensError

from builder.formulas import formula, set_in


def test_formulas_become_mathml_without_a_script() -> None:
    inline = '<p>so <span class="arithmatex">\\(a &lt; b\\)</span>.</p>'
    assert set_in(inline).startswith("<p>so <math ")
    assert "<mo>&#x0003C;</mo>" in set_in(inline)
    shown = set_in('<div class="arithmatex">\\[\\frac{a}{b}\\]</div>')
    assert shown.startswith('<div class="formula"><math')
    assert "<mfrac>" in shown
    assert 'display="block"' in shown


def test_a_formula_that_is_wrong_ends_the_build() -> None:
    with pytest.raises(NoAvailableTokensError):
        formula(r"\frac", display=False)


def test_roles_of_docstrings_are_code_alone() -> None:
    assert set_in("<p>see :class:<code>~a.B</code> and :mod:<code>c</code></p>") == (
        "<p>see <code>a.B</code> and <code>c</code></p>"
    )


def test_scripts_outside_of_code_are_set() -> None:
    html = '<p title="a_{b}">log(e^{sim(z, far)/τ}) + θ_{t+1} <code>x_{i}</code></p><pre>f^{2}</pre>'
    first, second = "log(e<sup>sim(z, far)/τ</sup>)", "θ<sub>t+1</sub>"
    assert set_in(html) == f'<p title="a_{{b}}">{first} + {second} <code>x_{{i}}</code></p><pre>f^{{2}}</pre>'
