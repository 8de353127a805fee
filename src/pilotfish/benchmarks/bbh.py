"""BBH, BIG-Bench Hard: 27 tasks that language models found hard, 6,511 questions, for testing only.

Each of the 27 is a subject here (`subjects: [date_understanding]`) with its own answer form: a letter of the options in
the question, one of two words, a number, a sorted list of words, or closing brackets. The authors ask to keep BIG-Bench
out of training data. On the hub: lukaemon/bbh, one configuration a subject, split test.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from pilotfish.benchmarks.benchmark import BOXED, LETTER, AnswerForm, Benchmark, boxed
from pilotfish.rows import Row, TaskError

LETTERED = (
    "date_understanding",
    "disambiguation_qa",
    "geometric_shapes",
    "hyperbaton",
    "logical_deduction_five_objects",
    "logical_deduction_seven_objects",
    "logical_deduction_three_objects",
    "movie_recommendation",
    "penguins_in_a_table",
    "reasoning_about_colored_objects",
    "ruin_names",
    "salient_translation_error_detection",
    "snarks",
    "temporal_sequences",
    "tracking_shuffled_objects_five_objects",
    "tracking_shuffled_objects_seven_objects",
    "tracking_shuffled_objects_three_objects",
)
WORDS = {
    "boolean_expressions": ("True", "False"),
    "causal_judgement": ("Yes", "No"),
    "formal_fallacies": ("valid", "invalid"),
    "navigate": ("Yes", "No"),
    "sports_understanding": ("yes", "no"),
    "web_of_lies": ("Yes", "No"),
}
OTHERS = {
    "dyck_languages": AnswerForm(
        "exact",
        "Work through it step by step. On the last line of your reply put the brackets that are missing at the end of "
        "the sequence, separated by spaces, and nothing else.",
    ),
    "multistep_arithmetic_two": AnswerForm("maths", BOXED),
    "object_counting": AnswerForm("maths", BOXED),
    "word_sorting": AnswerForm("exact", boxed("the sorted words, separated by spaces")),
}
SUBJECTS = tuple(sorted((*LETTERED, *WORDS, *OTHERS)))

OPTION = re.compile(r"^\(([A-Z])\) ?(.*)$", re.MULTILINE)


def shape(row: dict[str, Any]) -> dict[str, Any]:
    """Take the choices from the question: its lettered options, or the two words that may be the answer.

    Three rows of the release (one of movie_recommendation, two of ruin_names) have options that were cut apart at their
    commas, and a text as their answer: these get no choices.
    """
    options = dict(OPTION.findall(str(row.get("question", "")).rpartition("Options:")[2]))
    if str(row.get("answer", "")).strip("()") in options:
        return {**row, "choices": [option.strip() for option in options.values()]}
    return {**row, "choices": list(WORDS.get(str(row.get("subject")), ())) or None}


def form_of(row: Row) -> AnswerForm:
    """How the answer of a row is asked for and judged.

    Raises:
        TaskError: the row's subject is none of the 27.
    """
    subject = str(row.data.get("subject"))
    if subject in OTHERS:
        return OTHERS[subject]
    if subject in WORDS:
        return AnswerForm("exact", boxed(" or ".join(WORDS[subject])))
    if subject not in LETTERED:
        near = difflib.get_close_matches(subject, SUBJECTS, n=3, cutoff=0.4) or SUBJECTS[:3]
        raise TaskError(f"{row.where}: the subject {subject!r} is none of the 27 of bbh; near ones: {', '.join(near)}")
    if row.data.get("choices") is None:
        return AnswerForm("exact", boxed("the text of the right option"))
    return AnswerForm("choice", LETTER)


BENCHMARK = Benchmark(
    name="bbh",
    about="BIG-Bench Hard, 27 tasks of reasoning",
    hub="lukaemon/bbh",
    configs=SUBJECTS,
    split="test",
    sizes={"test": 6511},
    licence="MIT (suzgunmirac/BIG-Bench-Hard); for testing only, see its canary",
    fields={"question": "input", "answer": "target"},
    shape=shape,
    verifier="choice",
    form_of=form_of,
    files=("bbh_all",),
)
