"""What a critic's comment says of a draft: that it is right, that it is wrong, or neither. By rules, in English.

    says(task, draft="2 + 2 = 5", comment="The sum is wrong.")        # "wrong"
    says(task, draft="2 + 2 = 5", comment="The answer is 4, not 5.")  # "wrong": another answer than the draft's
    says(task, draft="2 + 2 = 5", comment="Add up once more.")        # "unclear"

1. What is asked for, supposed or avoided counts for nothing: from "check", "whether", "might be", "avoids" and the like
   to the end of the clause, a mistake that "is avoided", and "no other errors".
2. Praise that is denied ("is not correct", "neither step is right") says wrong. A fault that is denied ("nothing is
   missing", "error-free"), or a list of them ("no errors, gaps or omissions"), counts as praise.
3. Words of fault ("wrong", "a mistake", "forgot", "is off", "should be 4") say wrong, whatever is praised beside them:
   a comment may praise the steps and find one fault. Unclear is "a mistake here, but the answer is right".
4. Praise ("is correct", "well done") says right. What is praised before a "but", "though" or "except" does not count.
5. An answer is named by a box, by "answer is 4" or by "4 is the right answer"; it says right if it is the draft's, and
   wrong if it is another. The draft's answer, denied ("not 5"), says wrong. Other values that are denied, and those
   quoted from the draft ("you wrote 5"), are dropped first. Unclear is a sentence that goes on to a second value, and
   praise beside another answer.

Only numbers and options are compared. The rules read words, so a critic is measured by what an actor can read. Hints
without a verdict, and other languages, are unclear; the share of those is reported beside every figure that rests on
this reading.
"""

from __future__ import annotations

import re
from typing import Literal

from pilotfish.task import Task
from pilotfish.verify.extract import extract_answer
from pilotfish.verify.majority import agree, read_vote

Says = Literal["right", "unclear", "wrong"]


def says(task: Task, draft: str, comment: str) -> Says:
    """Read a comment on a draft.

    Args:
        task: its verifier decides which answers are one; its gold answer plays no part.
        draft: what the comment is on.
        comment: the critic's words.
    """
    meant = _SUPPOSED.sub(" ", comment.replace("’", "'"))
    meant = _NAMED.sub(r"the answer is \1", meant)
    by_words = _by_words(" ".join(re.sub(r"[*_`]", "", meant).lower().split()))
    if by_words in ("wrong", "mixed"):
        return "wrong" if by_words == "wrong" else "unclear"
    by_answer = _by_answer(task, draft, meant)
    if by_words == "right":
        return "unclear" if by_answer == "wrong" else "right"
    return by_answer


def _by_words(text: str) -> Says | Literal["mixed"]:
    """Rules 2 to 4, on one line in lower case."""
    if _DENIED_PRAISE.search(text):
        return "wrong"
    turns = list(_TURN.finditer(text))
    last = text[turns[-1].end() :].strip(" ,") if turns else text
    praised = bool(_DENIED_FAULT.search(last) or _PRAISE.search(last))
    if _faulty(text):
        return "mixed" if turns and praised and _ANSWER.search(last) and not _faulty(last) else "wrong"
    return "right" if praised else "unclear"


def _faulty(text: str) -> bool:
    return bool(_FAULT.search(_DENIED_FAULT.sub(" ", text)))


def _by_answer(task: Task, draft: str, comment: str) -> Says:
    own = _definite(task, draft)
    if own is None:
        return "unclear"
    denied = [_definite(task, f"The answer is {value}.") for value in {found[1] for found in _NOT.finditer(comment)}]
    if any(value and agree(value, own, task.verifier) for value in denied):
        return "wrong"
    named = [agree(value, own, task.verifier) for value in _named(task, _QUOTED.sub(" ", _NOT.sub(" ", comment)))]
    if not named or len(set(named)) > 1:
        return "unclear"
    return "right" if named[0] else "wrong"


def _named(task: Task, comment: str) -> list[str]:
    """The answer that a comment names, read from the whole sentence and from its first clause."""
    found = extract_answer(comment)
    if found.source not in ("box", "answer is"):
        return []
    texts = [comment]
    if found.source == "answer is":
        texts.append(f"The answer is {_GOES_ON.split(found.region, maxsplit=1)[0]}.")
    return [value for text in texts if (value := _definite(task, text))]


def _definite(task: Task, text: str) -> str | None:
    """The answer of a text where it is a number or option; what else stands last in it may be any word."""
    answer = read_vote(task, text)
    return answer if answer and (task.verifier == "choice" or re.search(r"\d", answer)) else None


_CLAUSE = r"(?:[^.,;:!?\n]|[.,:](?=\d))*"
_NEAR = rf"{_CLAUSE[:-1]}{{0,150}}?"
_SURELY = r"(?:(?:a|an|the|all|also|quite|entirely|fully|completely|totally|actually|really|perfectly|indeed|very) )*"
_FAULTS = (
    r"(?:errors?|mistakes?|faults?|flaws?|issues?|problems?|omissions?|gaps?|slips?|miscalculations?"
    r"|inaccurac(?:y|ies)|inconsistenc(?:y|ies)|wrong|incorrect|inaccurate|mistaken|missing|flawed|incomplete)\b"
)
_RIGHT = r"(?:right|correct|accurate|sound|fine|perfect|good)\b"
_GIVEN_RIGHT = r"(?! (?:final )?(?:answer|result|value|solution|number|way)(?: here)? (?:is|was|should|would|must)\b)"
_IS = r"(?:\b(?:is|are|was|were|be|looks?|seems?|appears?|that|gets?|got|gives?|have|has)|'s|'ve) (?:to be )?"

# "no errors, and one mistake" finds a mistake, and "you did not fix the error" an error.
_ITEM = rf"(?:(?!(?:an?|the|your|one|two|three|some|several|many|few|but|only|or|nor|and)\b)[\w-]+ ){{0,2}}{_FAULTS}"
_FAULT_LIST = rf"(?:any |an? )?{_ITEM}(?:(?:,? (?:or|nor) (?:any |an? )?|,? and |, ){_ITEM})*"
_NONE = (
    r"(?:\b(?:no|without|neither|free of|free from)"
    r"|(?:n't|\bnot|\bcannot|\bnever)(?: (?:have|contain|make|find|see|spot|notice|detect))?)"
)

_SUPPOSED = re.compile(
    rf"\b(?:(?:(?:re|double-)?check|verify|make sure|ensure|be sure|whether|if|avoid(?:s|ed|ing)?"
    rf"|(?:would|could|might|may) be|no (?:other|further|more|additional) {_FAULTS}"
    rf"|(?:did|does|do)(?:n't| not) make (?:the|this|that))\b{_CLAUSE}"
    rf"|{_FAULTS}{_NEAR}\b(?:is|are|was|were|has been) (?:\w+ly )?avoided)",
    re.IGNORECASE,
)
_DENIED_FAULT = re.compile(
    rf"{_NONE} {_FAULT_LIST}|\b{_FAULTS}[- ]free\b"
    rf"|\bnone of (?:\w+ ){{1,3}}(?:is|are|was|were|contains?|has|have) {_FAULT_LIST}"
    r"|\bnothing (?:\w+ )?(?:is |to )?(?:wrong|missing|incorrect|fix|correct|change|add|mend|improve)\b"
    r"|(?:n't|\bnot) (?:find |see )?(?:any|anything )?(?:wrong|incorrect|missing|mistaken|off)\b"
)
_DENIED_PRAISE = re.compile(
    rf"(?:n't|\bnot|\bcannot|\bnever) (?!only\b)(?:\w+ )?{_SURELY}(?:{_RIGHT}|{_FAULTS}[- ]free\b|free (?:of|from)\b)"
    rf"|\b(?:neither|none of) (?!{_FAULT_LIST}){_NEAR}\b{_RIGHT}"
)
_FAULT = re.compile(
    r"\b(?:wrong(?:ly)?|incorrect(?:ly)?|inaccurate|mistak(?:en(?:ly)?|es?)|flaw(?:s|ed)?|erroneous|errors?|incomplete"
    r"|miscalculat\w+|miscount\w*|misread\w*|misunderst\w+|overlook(?:s|ed)|forgets?|forgot(?:ten)?|fail(?:s|ed) to"
    r"|missing|missed|misses|omit(?:s|ted)|omissions?)\b"
    r"|(?:\b(?:is|are|was|were|looks?|seems?)|'s|'re) (?:(?:a bit|a little|slightly|somewhat|still|way|clearly|also) )?"
    r"off\b(?! (?:the|to|of|on|from)\b)"
    r"|\bshould (?:be|have been|equal) [-$\\({]*\d"
)
_PRAISE = re.compile(
    rf"{_IS}{_SURELY}{_RIGHT}{_GIVEN_RIGHT}"
    r"|(?:^|[.!?;:,] )(?:yes|correct|right|perfect|good)(?=[.!,;:]|$)"
    r"|\b(?:well done|(?:good|great|nice) (?:job|work)|correctly|flawless)\b"
)
_ANSWER = re.compile(r"\b(?:answer|result)\b")
_TURN = re.compile(
    r"(?:^|[.!?;:] )(?:although|(?:even )?though|while)\b[^,.!?;]*"
    r"|\b(?:but|however|although|though|whereas)\b|, while\b"
    r"|\b(?:except|apart from|aside from|other than)\b[^.!?;]*"
)

_VALUE = (
    r"(\$[^$\n]+\$|\\\([^\n]{0,200}?\\\)|\\boxed\{(?:[^{}\n]|\{[^{}\n]*\})*\}"
    r"|\S{0,40}\d(?:\S{0,40}[\w)}$%*])?|[*(]*[A-J][*)]*(?![\w']))"
)
_NOT = re.compile(
    r"(?:\b(?:[Nn]ot|NOT|[Cc]annot)|n't|\b[Rr]ather than|\b[Ii]nstead of)"
    rf" (?:(?:be|equal|to|the answer|option) )*{_VALUE}"
)
_QUOTED = re.compile(
    r"\b(?:[Yy]ou(?: have)?|[Tt]he draft|[Yy]our (?:final |own )?answer)"
    r" (?:says?|said|claim(?:s|ed)?|writes?|wrote|written|gets?|got|gives?|gave|ha[sd]|have|put|answered|is|was)"
    rf" (?:(?:that|of|as|the answer|is|was|option) )*{_VALUE}"
)
_NAMED = re.compile(
    r"(?<!\S)(?=\S*\d|[*(]*[A-J][*)]* )(\S{1,60}) (?:is|was) (?:actually |indeed )?the (?:right|correct|true) "
    r"(?:final )?(?:answer|result|value|solution|number|option|one)\b"
)
_GOES_ON = re.compile(r", (?=[A-Za-z])|; | (?=(?:but|which|while|whereas|because|since)\b)")
