"""One spelling for formulas: `clean` turns LaTeX, plain text and Unicode maths into the same short LaTeX.

Pure text work on at most a few thousand characters. Sizes, spaces, fonts and dollar signs go; words of `\\text{…}` stay
as plain words; a matrix row ends with `⏎`; set braces become `⦃` and `⦄`, so that every other brace only groups.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_SYNONYMS = {
    "mathbb{r}": "(-\\infty,\\infty)", "mathbbr": "(-\\infty,\\infty)", "allrealnumbers": "(-\\infty,\\infty)",
    "⦃⦄": "\\emptyset", "emptyset": "\\emptyset", "nosolution": "\\emptyset", "nosolutions": "\\emptyset",
}  # fmt: skip

ROW = "⏎"
"""Stands for the `\\\\` that ends a matrix row."""

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ", "÷": "\\div ", "≤": "\\le ",
    "≥": "\\ge ", "≠": "\\ne ", "≈": "\\approx ", "∞": "\\infty ", "°": "^{\\circ}", "π": "\\pi ", "θ": "\\theta ",
    "α": "\\alpha ", "β": "\\beta ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ", "±": "\\pm ", "∅": "\\emptyset ",
    "²": "^{2}", "³": "^{3}", "½": "\\frac{1}{2}", "¼": "\\frac{1}{4}", "¾": "\\frac{3}{4}", "…": "\\ldots ",
    "、": ",", "，": ",", "；": ";", "。": ".", "：": ":", "（": "(", "）": ")", "≡": "\\equiv ", "∠": "\\angle ",
}  # fmt: skip
_FONTS = (
    r"text|mbox|textnormal|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mathcal|mathscr|operatorname\*?|emph|bm"
)
_SAME = [
    (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
    (r"\\(?:left|right)(?:\.|(?![A-Za-z]))|\\[bB]igg?[lrm]?(?![A-Za-z])", ""),
    (r"\\(?:displaystyle|textstyle|limits|nolimits)(?![A-Za-z])", ""),
    (r"\\(?:q?quad)|\\[ ;:]|~|\\(?:hspace|vspace)\{[^{}]*\}", " "),
    (r"\\(?:leq|leqslant)(?![A-Za-z])|<=", r"\\le "),
    (r"\\(?:geq|geqslant)(?![A-Za-z])|>=", r"\\ge "),
    (r"\\neq(?![A-Za-z])|!=", r"\\ne "),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\gt(?![A-Za-z])", ">"),
    (r"\\(?:dots|cdots|dotsc)(?![A-Za-z])", r"\\ldots "),
    (r"\\(?:varnothing)(?![A-Za-z])", r"\\emptyset "),
    (r"\\lbrace(?![A-Za-z])|\\\{", "⦃"),
    (r"\\rbrace(?![A-Za-z])|\\\}", "⦄"),
    (r"\\(?:lvert|rvert|vert|mid)(?![A-Za-z])", "|"),
    (r"\\langle(?![A-Za-z])", "("),
    (r"\\rangle(?![A-Za-z])", ")"),
    (r"\^\s*\{\s*\\(?:circ|degree)\s*\}|\^\s*\\(?:circ|degree)|\\degree(?![A-Za-z])", r"^{\\circ}"),
    (r"\^\s*\{?\s*(\\prime\s*)+\}?", "'"),
    (r"(?<![A-Za-z])(?:np|math|sympy)\.(?=[a-z])", ""),
    (r"\\(?:iff|Rightarrow|implies|therefore)(?![A-Za-z])", " "),
]  # fmt: skip
_SAME_COMPILED = [(re.compile(pattern), by) for pattern, by in _SAME]
_FONT = re.compile(rf"\\(?:{_FONTS})\s*\{{([^{{}}]*)\}}")
_FONT_OPEN = re.compile(rf"\\(?:{_FONTS})(?![A-Za-z])")


def clean(text: str) -> str:
    """The one spelling of an answer."""
    return _clean_short(text) if len(text) <= 300 else _clean(text)


def _clean(text: str) -> str:
    text = unicodedata.normalize("NFC", _full_width(text)).strip()
    for character, latex in _UNICODE.items():
        if character in text:
            text = text.replace(character, latex)
    text = re.sub(r"^(\*\*|__)(.*?)\1", r"\2", text).strip("`")
    text = _group_digits(text)
    text = re.sub(r"\\\\(?:\[[^\]]*\])?", ROW, text) if "\\begin" in text else text.replace("\\\\", "\\")
    for pattern, by in _SAME_COMPILED:
        text = pattern.sub(by, text)
    text = text.replace("\\$", "").replace("$", "").replace("\\%", "%").replace("\\&", "&")
    text = re.sub(r"\\[()\[\]]", " ", text)
    text = _unwrap_fonts(text)
    text = re.sub(r"\\[,!]", "", text)
    text = re.sub(r"\s+", " ", text).strip().rstrip("\\ ")
    text = re.sub(r"[.,;:?]+$", "", text).strip()
    return _SYNONYMS.get(re.sub(r"\s|\\", "", text).lower(), text)


_clean_short = lru_cache(maxsize=4096)(_clean)


def _full_width(text: str) -> str:
    return "".join(chr(ord(c) - 0xFEE0) if 0xFF01 <= ord(c) <= 0xFF5E else c for c in text)


_MARKED_GROUP = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\,|,\\,)\s?(?=\d{2,3}(?!\d))")


def _group_digits(text: str) -> str:
    """Digits grouped by `{,}`, `,\\!` or a thin space are one number whatever the group's width."""
    return _MARKED_GROUP.sub("", text)


def _unwrap_fonts(text: str) -> str:
    for _ in range(4):
        unwrapped = _FONT.sub(_font_content, text)
        if unwrapped == text:
            break
        text = unwrapped
    return _FONT_OPEN.sub(" ", text)


def _font_content(match: re.Match[str]) -> str:
    content = match.group(1)
    if match.group(0).startswith("\\text") or match.group(0).startswith("\\mbox") or len(content.strip()) > 1:
        return f" {content} "
    return content


def squeeze(text: str, space: str = "") -> str:
    """For comparing spelling: no spaces, no grouping braces around one character, one multiplication sign."""
    text = re.sub(r"\\(?:cdot|times)(?![A-Za-z])", "*", text)
    text = re.sub(r"\s+", space, text)
    return re.sub(r"\{(\w)\}", r"\1", text)


def words(text: str) -> str:
    """For comparing prose: lower case, letters and digits, without articles and filler words."""
    text = re.sub(r"[^\w\s'+-]", " ", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(word for word in text.split() if word not in {"the", "a", "an", "all", "is", "it"})


def is_prose(text: str) -> bool:
    """Whether a cleaned text is words rather than a formula."""
    rest = re.sub(r"\\(?:begin|end)\{\w+\}|\\[A-Za-z]+", " ", text)
    found = re.findall(r"[^\W\d_]+", rest)
    long = [word for word in found if len(word) > 2 and word.lower() not in FUNCTIONS]
    return bool(long) and (sum(map(len, long)) >= 4 or not re.search(r"[\d\\^+*/=<>]", text))


FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "exp",
    "sqrt",
    "abs", "max", "min", "gcd", "lcm", "mod", "deg", "det", "floor", "ceil", "frac", "binom", "asin", "acos", "atan",
}  # fmt: skip


def to_latex(text: str) -> str:
    """A cleaned formula as LaTeX for the parser: calculator spelling (`sqrt(2)`, `2*pi`, `x**2`) included."""
    text = text.replace("**", "^").replace("⦃", "\\{").replace("⦄", "\\}").replace(ROW, "\\\\")
    text = re.sub(r"\\?\bsqrt\s*(?=\()", r"\\sqrt", text)
    text = re.sub(r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi ", text)
    text = re.sub(
        r"(?<![\\A-Za-z])(sin|cos|tan|cot|sec|csc|log|ln|exp|arcsin|arccos|arctan)(?![A-Za-z])", r"\\\1 ", text
    )
    text = _braces(text, "\\sqrt")
    text = _braces(text, "^")
    text = re.sub(r"(\\[A-Za-z]+|[A-Za-z])\s*_\s*(?:\{([^{}]*)\}|\\([A-Za-z]+)|(\w))", _subscript, text)
    return text.replace("^{\\circ}", "").replace("*", "\\cdot ")


_OPERATORS = ("\\sum", "\\prod", "\\int", "\\lim", "\\log", "\\max", "\\min", "\\oint", "\\bigcup", "\\bigcap")


def _subscript(match: re.Match[str]) -> str:
    """A subscript is part of a name; `E_{1}` and `I_{0}` are no multiples of the constants e and i."""
    base, inside = match.group(1), match.group(2) or match.group(3) or match.group(4) or ""
    if base in _OPERATORS:
        return match.group(0)
    name = re.sub(r"[^\w+-]", "", inside)
    return f"\\Xi_{{{base}{name}}}" if base in "EeIi" else f"{base}_{{{name}}}"


def _braces(text: str, before: str) -> str:
    """`before(…)` becomes `before{…}`: parentheses that group an argument are braces in LaTeX."""
    start = 0
    while (found := text.find(before + "(", start)) >= 0:
        opening = found + len(before)
        closing = _closing(text, opening)
        if closing is None:
            break
        text = text[:opening] + "{" + text[opening + 1 : closing] + "}" + text[closing + 1 :]
        start = opening
    return text


def _closing(text: str, opening: int) -> int | None:
    depth = 0
    for index in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return None
