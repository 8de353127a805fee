"""Where the answer stands in a reply: in `<answer>`, the last `\\boxed{}`, after "answer is", or on the final line.

`extract_answer(text, form)` is pure text work, linear in the length of the reply, and never fails: a reply that breaks
the form it was asked for gives no answer and a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

MAX_ANSWER = 2_000
"""Characters; a longer span is not an answer."""
TAIL = 8_000
"""Characters at the end of a reply in which "answer is" and the final line are looked for."""

FORMS = ("free", "answer_tag")


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was read from a reply."""

    answer: str | None
    """The answer in short: a formula, a number, a word. None when the reply holds none."""
    region: str = ""
    """The whole span it was taken from: a box, the rest of a sentence, the body of the tag."""
    why: str = ""
    """Why there is no answer."""
    source: str = ""
    """`tag`, `box`, `answer is` or `final line`."""
    line: str = ""
    """After "answer is": the rest of the line, of which `region` is the first sentence."""


def extract_answer(text: str, form: str = "free") -> Extraction:
    """Find the answer of a reply.

    Args:
        text: the reply, any length, any bytes.
        form: `free` (box, then "answer is", then the final line) or `answer_tag` (only the body of `<answer>`).

    Raises:
        ValueError: an unknown form.
    """
    if form not in FORMS:
        raise ValueError(f"form {form!r} is not one of {', '.join(FORMS)}")
    text = text.replace("\x00", "")
    return _from_tag(text) if form == "answer_tag" else _from_text(text)


def bare(region: str, source: str) -> Extraction:
    """Read a span that is known to be the answer: as it is, and the formula, bold word or last number of a sentence."""
    region = region.strip()
    if not region:
        return Extraction(None, why="the answer is empty", source=source)
    if len(region) > MAX_ANSWER:
        return Extraction(None, why=f"the answer is {len(region)} characters long; at most {MAX_ANSWER} are read")
    return Extraction(_shorten(region), region, source=source)


def whole(text: str, form: str = "free") -> Extraction:
    """The answer of a reply that is the answer itself, of any length: without its thinking, or the body of `<answer>`.

    Args:
        text: the reply.
        form: as in `extract_answer`.
    """
    text = text.replace("\x00", "")
    reply = _tagged(text) if form == "answer_tag" else _after_thinking(text)
    if isinstance(reply, Extraction):
        return reply
    if reply is None:
        return _UNCLOSED
    return Extraction(reply.strip(), reply.strip()) if reply.strip() else Extraction(None, why="the reply is empty")


_TAG = re.compile(r"</?answer>", re.IGNORECASE)


def _from_tag(text: str) -> Extraction:
    body = _tagged(text)
    if isinstance(body, Extraction):
        return body
    box = last_boxes(body)
    return bare(box or body, "tag")


def _tagged(text: str) -> str | Extraction:
    """The body of the one `<answer>`, or why there is none."""
    tags = list(_TAG.finditer(_after_thinking(text) or ""))
    kinds = [tag.group().startswith("</") for tag in tags]
    if not any(not closing for closing in kinds):
        return Extraction(None, why="no <answer> tag")
    if kinds.count(False) > 1:
        return Extraction(None, why="more than one <answer> tag")
    if kinds != [False, True]:
        return Extraction(None, why="the <answer> tag is not closed" if kinds == [False] else "the tags do not pair")
    body, rest = tags[0].string[tags[0].end() : tags[1].start()], tags[0].string[tags[1].end() :]
    return Extraction(None, why="text after </answer>") if rest.strip() else body


def _from_text(text: str) -> Extraction:
    reply = _after_thinking(text)
    if reply is None:
        return _UNCLOSED
    box = last_boxes(reply)
    if box is not None:
        return bare(box, "box")
    tail = _join_displays(next((part for part in _CONTROL.split(reply[-TAIL:]) if part.strip()), ""))
    told = _after_marker(tail)
    if told:
        return replace(bare(_sentence(told), "answer is"), line=told.partition("\n")[0].strip())
    lines = [line for line in tail.splitlines() if line.strip(" \t*_#`$.-")]
    if not lines:
        return Extraction(None, why="the reply is empty")
    return bare(lines[-1], "final line")


_CONTROL = re.compile(r"<\|[a-z_]{2,20}\|>")
_UNCLOSED = Extraction(None, why="the thinking was not closed")


def _after_thinking(text: str) -> str | None:
    """What follows the last `</think>`; None when a reply that opens with thinking never ends it."""
    end = text.rfind("</think>")
    if end >= 0:
        return text[end + len("</think>") :]
    return None if text.lstrip()[:7] == "<think>" else text


# A box as models write it, with the ways in which its backslash gets lost.
_BOX = re.compile(r"(?:\\(?:begin)?boxed|\\fbox|\\framebox|\x08oxed|□|(?<![A-Za-z\\])boxed)\s*(?=\{|\d|\\)")
# What may stand between the boxes of one answer: "and", "or", commas, the name of the next value.
_GLUE = re.compile(
    r"(?:[\s,;$]|\\[()\[\] ,;]|\\q?quad"
    r"|(?:\\(?:text|mbox|mathrm)\{\s*)?(?:for part \(?[a-z0-9]\)? )?(?:and|or)(?:\s*\})?"
    r"|[A-Za-z](?:_\{?\w{1,3}\}?)?\s*=)*"
)


def last_boxes(text: str) -> str | None:
    """The content of the last box; of a run of boxes that list one answer ("2 and 3"), all of it, joined by commas."""
    boxes = _boxes(text)
    if not boxes:
        return None
    run = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        between = text[box[1] : run[0][0]]
        if not between.strip() or len(between) > 80 or not _GLUE.fullmatch(between):
            break
        run.insert(0, box)
    content = ", ".join(dict.fromkeys(text[start:end].strip() for start, end in _contents(text, run)))
    inner = last_boxes(content) if _BOX.search(content) else None
    return (inner if inner is not None else content) + _percent_after(text, run[-1][1])


def _contents(text: str, boxes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found = []
    for begin, end in boxes:
        opened = _BOX.match(text, begin)
        start = opened.end() if opened else begin
        braced = text[start : start + 1] == "{"
        found.append((start + braced, end - (braced and text[end - 1 : end] == "}")))
    return found


def _boxes(text: str) -> list[tuple[int, int]]:
    """(begin, end) of the outermost boxes among the last 32, in order; an unclosed box runs to the end of its line."""
    starts = list(_BOX.finditer(text))[-32:]
    found: list[tuple[int, int]] = []
    for match in starts:
        if found and match.start() < found[-1][1]:
            continue
        found.append((match.start(), _end_of_group(text, match.end())))
    return found


_TOKEN = re.compile(r"\\[A-Za-z]+|\d+|.")


def _end_of_group(text: str, start: int) -> int:
    if text[start : start + 1] != "{":
        token = _TOKEN.match(text, start)
        return token.end() if token else start
    depth = 0
    limit = min(len(text), start + MAX_ANSWER + 100)
    for index in range(start, limit):
        character = text[index]
        if character in "{}" and text[index - 1] != "\\":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return index + 1
    line_end = text.find("\n", start)
    return line_end if line_end >= 0 else len(text)


_PERCENT = re.compile(r"[\s$)\\]{0,4}(?:%|percent(?:age)?\b|pct\b|per cent\b)")


def _percent_after(text: str, end: int) -> str:
    return "\\%" if _PERCENT.match(text, end) else ""


ANSWER_IS = re.compile(
    r"(?:\banswers?\*{0,2}\s*(?:is|are|was|should be|would be|will be|=|:|：)|\banswer\s*(?=\\\[|\$|\\\()"
    r"|(?:答案|结果)\s*(?:是|为|：|:|等于)|\br[ée]ponse\s*(?:est|:)|\brespuesta\s*(?:es|:)|\bantwort\s*(?:ist|:)"
    r"|\bresposta\s*(?:é|:)|####)[\s*_:：\"']*",
    re.IGNORECASE,
)


def _after_marker(tail: str) -> str | None:
    """What follows the last "answer is" that has something after it in its sentence; None where none has."""
    for match in reversed(list(ANSWER_IS.finditer(tail))):
        rest = tail[match.end() :].lstrip(" \t*_")
        if _sentence(rest).strip(" .*_$"):
            return rest
    return None


_STOP = re.compile(r"\n|(?<=[\w)}\]$*%°!?'\"])[.!?](?=\s|$|\*|\"|\\\))|。")


def _sentence(text: str) -> str:
    """Up to the end of the sentence or the line; a full stop inside maths does not end it."""
    for match in _STOP.finditer(text):
        before = text[: match.start()]
        if match.group() == "\n" or before.count("$") % 2 == 0:
            return before
    return text


_DELIMITER = re.compile(r"\$\$|(?<!\\)\$|\\\(|\\\)|\\\[|\\\]")
_CLOSING = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}


def maths_spans(text: str) -> list[tuple[int, int, str]]:
    """(begin, end, content) of each `$…$`, `$$…$$`, `\\(…\\)` and `\\[…\\]`, in one pass."""
    spans: list[tuple[int, int, str]] = []
    opened: re.Match[str] | None = None
    for token in _DELIMITER.finditer(text):
        if opened is None:
            opened = token if token.group() in _CLOSING else None
        elif token.group() == _CLOSING[opened.group()]:
            spans.append((opened.start(), token.end(), text[opened.end() : token.start()]))
            opened = None
    return spans


def _join_displays(text: str) -> str:
    """Line breaks inside displayed maths become spaces, so that a final line holds its whole formula."""
    pieces, last = [], 0
    for begin, end, content in maths_spans(text):
        pieces += [
            text[last:begin],
            text[begin:end].replace("\n", " ") if len(content) < MAX_ANSWER else text[begin:end],
        ]
        last = end
    return "".join([*pieces, text[last:]])


_BOLD = re.compile(r"(\*\*|__)([^*_\n]{1,200}?)(?<![:：])\1(?!\s{0,2}[:：])")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.\\^{}/])[-−+]?[$€£]?(?:\\[dt]?frac\{\d+\}\{\d+\}|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:\s*/\s*\d+)?)"
    r"(?:\s*(?:\\?%|percent(?:age)?\b|pct\b))?(?![A-Za-z0-9_^{}])",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2,}")
_NOT_PROSE = {"and", "or", "pi", "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "abs", "frac"}
_LIST_GLUE = re.compile(r"(?:[\s,;]|and|or)*")


def _shorten(region: str) -> str:
    """The formula, the bold word or the last number of a sentence; a region that is no sentence stays as it is."""
    spans = maths_spans(region)
    if not _is_prose(region, spans) and "**" not in region:
        return _last_run(region, spans) if _LIST_GLUE.fullmatch(_outside(region, spans)) and spans else region
    if spans:
        return _last_run(region, spans)
    bold = _BOLD.findall(region)
    if bold:
        return str(bold[-1][1]).strip()
    return _last_run(region, [(m.start(), m.end(), m.group()) for m in _NUMBER.finditer(region)]) or region


def _outside(region: str, spans: list[tuple[int, int, str]]) -> str:
    starts, ends = [0, *(span[1] for span in spans)], [*(span[0] for span in spans), len(region)]
    return " ".join(region[start:end] for start, end in zip(starts, ends, strict=True))


def _is_prose(region: str, spans: list[tuple[int, int, str]]) -> bool:
    outside = re.sub(r"\\[A-Za-z]+(?:\{[^{}]*\})?", "", _outside(region, spans))
    return any(word.lower() not in _NOT_PROSE for word in _WORD.findall(outside))


def _last_run(region: str, spans: list[tuple[int, int, str]]) -> str:
    """The last value, or the last few where they are listed ("2, 3 and 5")."""
    if not spans:
        return ""
    first = len(spans) - 1
    while first > 0 and _LIST_GLUE.fullmatch(region[spans[first - 1][1] : spans[first][0]]):
        first -= 1
    content = ", ".join(span[2].strip() for span in spans[first:])
    return content + _percent_after(region, spans[-1][1])
