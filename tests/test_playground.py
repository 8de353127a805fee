"""The playground in a real browser, on a scripted team: by pointer and by keyboard, wide and narrow, light and dark.

python -m pytest -m browser
PICTURES=docs/pictures python -m pytest tests/test_playground.py -k keyboard    # the picture in the docs

The models say whatever could run, steer or break a page: markup, LaTeX, right-to-left words, 100 kB of text.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from browser import Page, opened
from pilotfish import Sampling, ScriptedEngine, Team
from pilotfish.engine.base import Completion, OnText
from pilotfish.team import Messages
from pilotfish.topology import hint, leader, vote
from seated import seats
from serving import Served, served, until
from test_serve_safety import KEY, hashes

pytestmark = pytest.mark.browser

EVIL = "</script><script>window.said = 1</script><img src='http://127.0.0.1:9/x' onerror='window.said = 2'>"
WORDS = f"{EVIL} **bold** [x](javascript:window.said=3) $\\frac{{1}}{{2}}$ \u202eשלום\u2028\x1b {'without' * 60}"
LONG = f"{'without' * 40}\n" * 370 + "the end"
QUESTION = "What is the sum of the first 20 odd numbers?"
SMALL, PAIRS = "Try small cases: 1, 1 + 3, 1 + 3 + 5.", "Pair the first with the last."

READY = "document.forms.ask.elements.beside.options.length > 1"
IDLE = "document.querySelector('#ask .buttons [hidden]') && document.querySelectorAll('.foot').length > 1"
SAID = "'said' in window"
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
INK = "getComputedStyle(document.body).color + ' on ' + getComputedStyle(document.body).backgroundColor"
FOCUS = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"
PROBLEM = "document.getElementById('problem').textContent"
TURNS = "[...document.querySelectorAll('#found .turn > .words pre')].map((pre) => pre.textContent)"
REPLAYED = """(() => {
  const texts = (chosen) => [...document.querySelectorAll(chosen)].map((one) => one.textContent);
  return { sides: texts('.replay .sides > *'), gone: texts('.replay del').join(), new: texts('.replay ins').join() };
})()"""
VERDICTS = "[...document.querySelectorAll('#found .verdict')].map((verdict) => verdict.textContent)"


def odd(messages: Messages, sampling: Sampling, seed: int) -> str:
    """An actor that is helped by one hint, misled by another, and wrong without."""
    asked = messages[-1]["content"]
    if "small cases" in asked:
        return "The sums are 1, 4, 9: squares of the number of terms.\nSo the sum is 20² = 400.\n\n\\boxed{400}"
    if "Pair" in asked:
        return "1 + 39 = 40, and there are 20 such pairs.\nSo the sum is 20 · 40 = 800.\n\n\\boxed{800}"
    return "The odd numbers go up to 19. There are 10.\nSo the sum is 10² = 100.\n\n\\boxed{100}"


def hinting() -> Team:
    actor = ScriptedEngine(odd, latency=lambda m, s, seed: 0.02)
    return seats(collaborator=ScriptedEngine(lambda m, s, seed: SMALL, latency=0.01), actor=actor)


class Halting(ScriptedEngine):
    """Says its first words and no more, and counts who did not wait for the rest."""

    left = 0

    def __init__(self) -> None:
        super().__init__([])

    async def stream(self, messages: Messages, sampling: Sampling, seed: int, on_text: OnText) -> Completion:
        on_text("The first words")
        try:
            await asyncio.Event().wait()
        finally:
            self.left += 1
        raise AssertionError("nobody lets it go on")


Look = Callable[[Page], Awaitable[Any]]


def looked_at(server: Served, look: Look, *, refused: bool = False, **options: Any) -> Any:
    """What a look at the page comes to; nothing may have run, nothing was complained of, nothing left the server."""
    address = f"http://127.0.0.1:{server.port}/"

    async def all_of_it() -> Any:
        async with opened(address, **options) as page:
            found = await look(page)
            assert [said for said in page.complaints if not (refused and "the server responded" in said)] == []
            assert await page.value(SAID) is False
            assert all(asked.startswith(address) for asked in page.requests)
            return found

    return asyncio.run(all_of_it())


async def ask(page: Page, question: str = QUESTION, gold: str = "") -> None:
    await page.comes(READY)
    fields = "document.forms.ask.elements"
    await page.value(f"{fields}.question.value = {json.dumps(question)}; {fields}.gold.value = {json.dumps(gold)}")
    await page.value("document.forms.ask.requestSubmit()")


async def click(page: Page, label: str) -> None:
    shown = f"[...document.querySelectorAll('button')].find((one) => one.textContent === {label!r} && one.offsetParent)"
    await page.comes(f"!!{shown}")
    await page.value(f"{shown}.click()")


async def reach(page: Page, label: str) -> None:
    """Go on to what has this label, as the keyboard goes."""
    for _ in range(30):
        await page.press("Tab")
        if label in (await page.value(FOCUS)):
            return
    raise AssertionError(f"{label} is not reached")


def test_the_page_is_made_of_files_of_the_server_alone() -> None:
    with served(hint, hinting(), trainee="collaborator", keys=hashes(KEY)) as server:
        page = server.get("/")
        parts = re.findall(r'(?:src|href)="([^"]*)"', page.raw.decode())
        kinds = [server.get(f"/{part}").headers["content-type"].partition(";")[0] for part in parts]
    assert (page.status, kinds) == (200, ["image/svg+xml", "text/css", "text/css", "text/javascript"])
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy


def test_whatever_models_say_is_shown_as_words() -> None:
    async def look(page: Page) -> Any:
        await ask(page)
        await page.comes(IDLE)
        folded = await page.value(TURNS)
        await page.value("document.querySelectorAll('.words > button').forEach((more) => more.hidden || more.click())")
        return folded, await page.value(TURNS), await page.value(TOO_WIDE)

    team = seats(collaborator=lambda m, s, seed: WORDS, actor=lambda m, s, seed: EVIL + LONG)
    with served(hint, team, trainee="collaborator") as server:
        folded, unfolded, too_wide = looked_at(server, look, width=400)
    assert unfolded == [EVIL + LONG, WORDS, EVIL + LONG]
    assert [len(text) for text in folded] == [1502, len(WORDS), 1502]
    assert too_wide == 0


@pytest.mark.parametrize("dark", [False, True])
def test_by_keyboard_alone_a_hint_is_edited_and_the_rest_replayed(dark: bool) -> None:
    async def look(page: Page) -> Any:
        await page.comes(READY)
        await page.press("Tab")
        await page.call("Input.insertText", text=QUESTION)
        await page.press("Tab")
        await page.call("Input.insertText", text="400")
        await reach(page, "Ask")
        await page.press("Enter")
        await page.comes(IDLE)
        begun = await page.value(VERDICTS)
        await reach(page, "Edit what collaborator says")
        await page.press("Enter")
        await page.value("document.activeElement.select()")
        await page.call("Input.insertText", text=PAIRS)
        await reach(page, "Replay from here")
        await page.press("Enter")
        await page.comes("!!document.querySelector('.replay del')")
        if not dark:
            await page.picture("playground")
        return begun, await page.value(FOCUS), await page.value(REPLAYED), await page.value(INK)

    with served(hint, hinting(), trainee="collaborator") as server:
        begun, focus, replayed, ink = looked_at(server, look, dark=dark)
    assert begun == ["wrong, read as 100", "right, read as 400"]
    assert focus == "Replay 1: collaborator says something else"
    old, new, draft, answer, was, now = replayed["sides"]
    assert re.match(f"collaborator the trainee · as it was · .*{re.escape(SMALL)}", old)
    assert new.startswith(f"collaborator the trainee · edited{PAIRS}")
    assert ("squares" in draft, "such pairs" in answer) == (True, True)
    assert (was, now) == ("as it wasright, read as 400", "nowwrong, read as 800")
    assert ("squares" in replayed["gone"], "such pairs" in replayed["new"]) == (True, True)
    assert ink == ("rgb(228, 232, 239) on rgb(20, 23, 29)" if dark else "rgb(29, 35, 48) on rgb(255, 255, 255)")


def test_turns_are_seen_while_they_are_made_and_escape_ends_them() -> None:
    async def look(page: Page) -> Any:
        await ask(page)
        await page.comes("document.body.textContent.match(/The first words/g)?.length === 2")
        seen = await page.value("[...document.querySelectorAll('.speaking b')].map((who) => who.textContent)")
        told = await page.value("document.getElementById('heard').textContent")
        work = await page.value("document.getElementById('status').textContent")
        await page.press("Escape")
        await page.comes("document.querySelectorAll('.foot .wrong').length === 2")
        return seen, told, work, await page.value("document.querySelectorAll('.speaking, [aria-label^=Edit]').length")

    actor = Halting()
    with served(hint, seats(collaborator=[SMALL], actor=actor), trainee="collaborator") as server:
        seen, told, work, left = looked_at(server, look)
        assert until(lambda: actor.left == 2)
    assert seen == ["actor", "actor"]
    assert told == f"team, collaborator: {SMALL}"
    assert work == "The team is at work. Escape cancels."
    assert left == 0


def test_a_server_with_keys_asks_for_one_and_the_page_keeps_it_to_itself() -> None:
    async def give(page: Page, key: str) -> None:
        await page.comes("document.activeElement.id === 'given'")
        await page.call("Input.insertText", text=key)
        await page.press("Enter")

    async def look(page: Page) -> Any:
        await page.comes(PROBLEM)
        wanted = await page.value(PROBLEM)
        await give(page, "a key of another server")
        await page.comes(f"({PROBLEM}).includes('does not know')")
        await give(page, KEY)
        await ask(page)
        await page.comes(IDLE)
        kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        fields = "[...document.querySelectorAll('input, textarea')].map((field) => field.value)"
        everywhere = f"{kept} + {fields} + document.documentElement.outerHTML"
        return wanted, await page.value(TURNS), await page.value(everywhere)

    with served(hint, hinting(), trainee="collaborator", keys=hashes(KEY)) as server:
        wanted, turns, everywhere = looked_at(server, look, refused=True)
    assert wanted == "This server wants an API key."
    assert len(turns) == 3
    assert KEY not in everywhere


def test_an_outage_is_told_where_the_answer_would_stand() -> None:
    async def look(page: Page) -> Any:
        await ask(page)
        await page.comes(IDLE)
        feet = "[...document.querySelectorAll('#found .foot')].map((foot) => foot.textContent)"
        return await page.value(feet), await page.value(TURNS)

    actor = ScriptedEngine(odd, fail=lambda m, s, seed: "Hint" in m[-1]["content"])
    with served(hint, seats(collaborator=[SMALL], actor=actor), trainee="collaborator") as server:
        (alone, team), turns = looked_at(server, look)
    assert team == "actor does not answer, and the team cannot do without; try again"
    assert re.fullmatch(r"12 tokens read, \d+ written · [\d.]+ s in all", alone)
    assert turns[1:] == [SMALL, "(no answer)"]


def test_an_answer_that_is_no_turn_stands_below_them() -> None:
    async def look(page: Page) -> Any:
        await ask(page)
        await page.comes(IDLE)
        return await page.value("[...document.querySelectorAll('#found .foot')].map((foot) => foot.textContent)")

    with served(vote.bind(samples=3), seats(actor=["\\boxed{100}", "\\boxed{400}", "So \\boxed{400}"])) as server:
        alone, team = looked_at(server, look)
    assert team.startswith("The answer\\boxed{400}")
    assert "The answer" not in alone


def test_a_refusal_is_told_with_the_time_to_wait() -> None:
    async def look(page: Page) -> Any:
        await ask(page)
        return await page.comes(PROBLEM)

    with served(hint, hinting(), trainee="collaborator", requests_per_minute=1) as server:
        refusal = looked_at(server, look, refused=True)
    assert re.fullmatch(r"more than 1 requests a minute; slow down\. Wait \d+ s before the next try\.", refusal)


def test_an_answer_can_be_gone_on_from() -> None:
    async def look(page: Page) -> Any:
        await ask(page, "2 + 2?")
        await click(page, "Go on from this answer")
        summary = await page.value("document.querySelector('#earlier summary').textContent")
        await ask(page, "And twice that?")
        await page.comes(IDLE)
        await click(page, "Start anew")
        await ask(page, "1 + 1?")
        await page.comes(IDLE)
        return summary

    actor = ScriptedEngine(lambda m, s, seed: "4")
    with served(hint, seats(collaborator=lambda m, s, seed: "Add.", actor=actor), trainee="collaborator") as server:
        assert looked_at(server, look) == "The conversation so far: 2 messages"
    before = [[message["content"] for message in chat[:-1]] for chat in actor.asked]
    assert before == [[]] * 2 + [["2 + 2?", "4"]] * 2 + [[]] * 2


def test_turns_that_an_edit_leaves_as_they_were_are_told_in_a_line() -> None:
    async def look(page: Page) -> Any:
        await ask(page)
        await page.comes(IDLE)
        await page.value("document.querySelectorAll('[aria-label^=Edit]')[1].click()")
        await page.call("Input.insertText", text=f"{EVIL} <answer>mine</answer>")
        await click(page, "Replay from here")
        await page.comes("!!document.querySelector('.replay .foot h3')")
        return await page.value(
            "[...document.querySelectorAll('.replay > div > .sides')].map((row) => row.textContent)"
        )

    ann, led = (ScriptedEngine(lambda m, s, seed: f"<answer>{seed}</answer>") for _ in range(2))
    with served(leader.bind(rounds=2, leader="led"), seats(ann=ann, led=led), trainee="led") as server:
        rows = looked_at(server, look)
    assert rows[:3] == ["ann: as it was", "led: as it was", "ann: as it was"]
    assert EVIL in rows[3]


def test_a_replay_is_edited_in_its_turn_and_keeps_the_edits_before() -> None:
    async def replayed(page: Page, number: int, words: str) -> None:
        await page.value(f"document.querySelectorAll('#found [aria-label^=Edit]')[{number}].click()")
        await page.value("document.activeElement.select()")
        await page.call("Input.insertText", text=words)
        await click(page, "Replay from here")

    async def look(page: Page) -> Any:
        await ask(page)
        await page.comes(IDLE)
        await replayed(page, 0, "First of all.")
        await page.comes("document.querySelectorAll('.replay [aria-label^=Edit]').length === 2")
        await replayed(page, 3, "<answer>mine</answer>")
        await page.comes("document.querySelectorAll('.replay .foot h3').length === 2")
        rows = "[...document.querySelector('.replay').querySelectorAll(':scope > div > .sides')]"
        return await page.value(FOCUS), await page.value(f"{rows}.map((row) => row.textContent)")

    ann, led = (ScriptedEngine(lambda m, s, seed: f"<answer>{seed}</answer>") for _ in range(2))
    with served(leader.bind(rounds=2, leader="led"), seats(ann=ann, led=led), trainee="led") as server:
        focus, rows = looked_at(server, look)
    assert focus == "Replay 2 (of Replay 1): led says something else"
    assert rows[0] == "ann: as it was"
    assert "First of all." in rows[1]
    assert rows[2] == "ann: as it was"
    assert "<answer>mine</answer>" in rows[3]


def test_changes_lead_from_one_text_to_the_other() -> None:
    pairs = [
        ("So it is 12.", "So it is 14."),
        ("", "all new"),
        ("all gone\n", ""),
        ("一共有三个", "一共有四个"),
        ("a b c d e f", "x b y d e f z"),
        ("one two " * 3000, "three one " * 3000),
    ]

    async def look(page: Page) -> Any:
        found = f"{json.dumps(pairs)}.map(([was, now]) => changes(was, now))"
        return await page.value(f"import('./changes.js').then(({{ changes }}) => {found})")

    with served(hint, hinting(), trainee="collaborator") as server:
        changed = looked_at(server, look)
    sides = [
        tuple("".join(text for kind, text in parts if kind != left) for left in ("ins", "del")) for parts in changed
    ]
    assert sides == pairs
    assert changed[0] == [["span", "So it is"], ["del", " 12."], ["ins", " 14."]]
    assert changed[3] == [["span", "一共有"], ["del", "三"], ["ins", "四"], ["span", "个"]]
