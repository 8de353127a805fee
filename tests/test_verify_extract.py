"""Where an answer is read from, for both forms, and that no reply is slow or fatal to read."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.task import Task
from pilotfish.verify import contains_answer, extract_answer
from pilotfish.verify.registry import quick_judge


@pytest.mark.parametrize(
    ("text", "answer", "source"),
    [
        ("Thus \\boxed{5}. The answer is 6.\n7", "5", "box"),
        ("The answer is 6.\nOr so I think, and not 7", "6", "answer is"),
        ("Some work.\nIn all there are 7 of them", "7", "final line"),
        ("\\boxed{1}, then \\boxed{\\frac{2}{3}}", "\\frac{2}{3}", "box"),
        ("\\boxed{4} and \\boxed{6}", "4, 6", "box"),
        ("\\boxed{4}, that is, \\boxed{4}", "4", "box"),
        ("\\boxed{4}, \\boxed{4}", "4", "box"),
        ("\\boxed{\\boxed{8}}", "8", "box"),
        ("\\boxed{9", "9", "box"),
        ("\\fbox{9}", "9", "box"),
        ("$\\boxed{30}$ percent", "30\\%", "box"),
        ("The answer is $x = 3$, which is odd.", "x = 3", "answer is"),
        ("Answer:\n\\[\n\\frac{1}{2}\n\\]", "\\frac{1}{2}", "answer is"),
        ("So we get\n$$\n12\n$$", "12", "final line"),
        ("The roots are 2, 3 and 5.", "2, 3, 5", "final line"),
        ("**Answer:** Tuesday", "Tuesday", "answer is"),
        ("答案：42。谢谢", "42", "answer is"),
        ("Final answer: 3.25", "3.25", "answer is"),
        ("12<|im_end|>", "12", "final line"),
    ],
)
def test_free_form_reads_the_box_then_the_phrase_then_the_final_line(text: str, answer: str, source: str) -> None:
    found = extract_answer(text)
    assert (found.answer, found.source) == (answer, source)


@pytest.mark.parametrize(
    ("text", "answer", "why"),
    [
        ("Work.\n<answer>\n12\n</answer>\n", "12", ""),
        ("<ANSWER>12</ANSWER>", "12", ""),
        ("<think><answer>3</answer></think><answer>12</answer>", "12", ""),
        ("\\boxed{12}", None, "no <answer> tag"),
        ("<answer>1</answer><answer>1</answer>", None, "more than one <answer> tag"),
        ("<answer>12", None, "the <answer> tag is not closed"),
        ("</answer>12<answer>", None, "the tags do not pair"),
        ("<answer>12</answer> done", None, "text after </answer>"),
        ("<answer> </answer>", None, "the answer is empty"),
    ],
)
def test_the_tag_form_reads_only_its_body_and_names_the_breach(text: str, answer: str | None, why: str) -> None:
    found = extract_answer(text, "answer_tag")
    assert (found.answer, found.why) == (answer, why)


def test_thinking_that_never_ends_holds_no_answer() -> None:
    assert extract_answer("<think> it may be \\boxed{3}").why == "the thinking was not closed"


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="\\boxed{}$()[]<answer>/is :.,\n\x00*#答案为12 ", max_size=200),
    st.sampled_from(["free", "answer_tag"]),
)
def test_every_reply_is_read_without_an_error(text: str, form: str) -> None:
    found = extract_answer(text, form)
    assert (found.answer is None) == bool(found.why)


HOSTILE = [
    "(" * 50_000 + ")" * 50_000, "[" * 100_000, "{" * 100_000, "\\frac{" * 16_000, "$" * 100_000, "\\boxed{" * 14_000,
    "\x00" * 100_000, "\\[" * 50_000, "answer is " * 10_000, "1," * 50_000, "9" * 100_000, "**" * 50_000,
    "<answer>" * 12_000, "\\begin{pmatrix}" * 6_000, "boxed " * 16_000, "\\boxed{1} and " * 7_000, "\n" * 100_000,
    "boxed" + " " * 100_000, "\\boxed{1}" + " and" * 19 + "x\\boxed{2}",
    "-" * 1_900, "1/" * 900, "a_" * 900, "^" * 1_900,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_a_hostile_reply_is_read_in_linear_time(text: str) -> None:
    began = time.process_time()
    for verifier in ("maths", "choice", "exact"):
        quick_judge(Task("t", "", "B" if verifier == "choice" else "42", verifier=verifier), text)
    quick_judge(Task("t", "", "42"), text, "answer_tag")
    contains_answer("42", text)
    contains_answer("x^2", text)
    assert time.process_time() - began < 20  # quadratic, the longest of these texts would take minutes


def test_importing_verification_loads_neither_torch_nor_algebra() -> None:
    code = (
        "import sys, pilotfish.verify; "
        "print([m for m in ('torch', 'sympy', 'math_verify', 'reasoning_gym') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
