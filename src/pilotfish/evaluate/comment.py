"""What a critic's comment says of a draft: that it is right, that it is wrong, or neither. By rules, in English.

    says(task, draft="2 + 2 = 5", comment="The sum is wrong.")        # "wrong"
    says(task, draft="2 + 2 = 5", comment="So the answer is 4.")      # "wrong": another answer than the draft's
    says(task, draft="2 + 2 = 5", comment="Add up once more.")        # "unclear"

1. What is only asked for or supposed counts for nothing: from "check", "make sure", "whether", "might be" and the like
   to the end of the clause.
2. A fault that is denied ("no errors", "nothing is missing", "not wrong") says right; praise that is denied ("is not
   correct", "isn't the right answer") says wrong.
3. Of what remains, words of fault ("wrong", "a mistake", "forgot", "should be 4") say wrong, and praise ("is correct",
   "well done") says right. Where both are said, wrong: a comment may praise the steps and find one fault.
4. Where no such word is said, a number or option that is named as the answer (in a box, or after "answer is") says
   right if it is the draft's, and wrong if it is another.

The rules read words, so a critic is measured by what an actor can read. Hints without a verdict, and other languages,
are unclear; the share of those is reported beside every figure that rests on this reading.
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
    meant = _SUPPOSED.sub(" ", comment)
    text = " ".join(re.sub(r"[*_`]", "", meant).replace("’", "'").lower().split())
    text, faults_denied = _DENIED_FAULT.subn(" ", text)
    text, praise_denied = _DENIED_PRAISE.subn(" ", text)
    if praise_denied or _FAULT.search(text):
        return "wrong"
    if faults_denied or _PRAISE.search(text):
        return "right"
    return _by_answer(task, draft, meant)


def _by_answer(task: Task, draft: str, comment: str) -> Says:
    if extract_answer(comment).source not in ("box", "answer is"):
        return "unclear"
    named, own = _definite(task, comment), _definite(task, draft)
    if named is None or own is None:
        return "unclear"
    return "right" if agree(named, own, task.verifier) else "wrong"


def _definite(task: Task, text: str) -> str | None:
    """The answer of a text where it is a number or option; what else stands last in it may be any word."""
    answer = read_vote(task, text)
    return answer if answer and (task.verifier == "choice" or re.search(r"\d", answer)) else None


_SURELY = r"(?:(?:a|an|the|all|also|quite|entirely|fully|completely|totally|actually|really|perfectly|indeed|very) )*"
_FAULTS = r"(?:errors?|mistakes?|faults?|flaws?|issues?|problems?|inaccurac(?:y|ies))"
_RIGHT = r"(?:right|correct|accurate|sound|fine|perfect|good)\b"
_GIVEN_RIGHT = r"(?! (?:final )?(?:answer|result|value|solution|number|way)(?: here)? (?:is|was|should|would|must)\b)"
_IS = r"(?:\b(?:is|are|was|were|be|looks?|seems?|appears?|that|gets?|got|gives?|have|has)|'s|'ve) (?:to be )?"

_SUPPOSED = re.compile(
    r"\b(?:(?:re|double-)?check|verify|make sure|ensure|be sure|whether|if|avoid|(?:would|could|might|may) be)\b"
    r"[^.,;:!?\n]*",
    re.IGNORECASE,
)
_DENIED_FAULT = re.compile(
    rf"\b(?:no|without|free of|free from) (?:any )?(?:\w+ )?{_FAULTS}\b"
    rf"|(?:n't|\bnot|\bcannot) (?:\w+ )?(?:any|an|a) (?:\w+ )?{_FAULTS}\b"
    r"|\bnothing (?:\w+ )?(?:is |to )?(?:wrong|missing|incorrect|fix|correct|change|add|mend|improve)\b"
    r"|(?:n't|\bnot) (?:find |see )?(?:any|anything )?(?:wrong|incorrect|missing|mistaken)\b"
)
_DENIED_PRAISE = re.compile(rf"(?:n't|\bnot|\bcannot|\bnever) (?!only\b)(?:\w+ )?{_SURELY}{_RIGHT}")
_FAULT = re.compile(
    r"\b(?:wrong(?:ly)?|incorrect(?:ly)?|inaccurate|mistak(?:en(?:ly)?|es?)|flaw(?:s|ed)?|erroneous|errors?|incomplete"
    r"|miscalculat\w+|miscount\w*|misread\w*|misunderst\w+|overlook(?:s|ed)|forgets?|forgot(?:ten)?|fail(?:s|ed) to"
    r"|missing|missed|misses|omit(?:s|ted))\b"
    r"|\bshould (?:be|have been|equal) [-$\\({]*\d"
)
_PRAISE = re.compile(
    rf"{_IS}{_SURELY}{_RIGHT}{_GIVEN_RIGHT}"
    r"|(?:^|[.!?;:,] )(?:yes|correct|right|perfect|good)(?=[.!,;:]|$)"
    r"|\b(?:well done|(?:good|great|nice) (?:job|work)|correctly)\b"
)
