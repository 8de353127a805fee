"""The viewer in a real browser: served and from disk, by pointer and by keyboard, wide and narrow, light and dark.

python -m pytest -m browser

The models say whatever could run, steer or break a page: markup, LaTeX, right-to-left words, 100 kB of text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser import Page, opened
from pilotfish.run import Run
from pilotfish.view.export import export
from viewing import GROUP, Recorder, plain, recorded, served

pytestmark = pytest.mark.browser

EVIL = "</script><script>window.said = 1</script><img src='http://127.0.0.1:9/x' onerror='window.said = 2'>"
WORDS = f"{EVIL} **bold** [x](javascript:window.said=3) $\\frac{{1}}{{2}}$ \u202eשלום {'without' * 60}"
LONG = "a word and another " * 5400

READY = "document.getElementById('count').textContent.includes('32 episodes')"
SAID = "'said' in window"
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
INK = "getComputedStyle(document.body).color + ' on ' + getComputedStyle(document.body).backgroundColor"
LINES = "[...document.querySelectorAll('#list .line')].map((line) => line.getAttribute('aria-label'))"
COUNT = "parseInt(document.getElementById('count').textContent)"
TITLE = "document.querySelector('#panel h2')?.textContent ?? ''"
CARDS = "[...document.querySelectorAll('.card')].map((card) => card.textContent)"
CHOSEN = "document.querySelector('[aria-selected=true]').getAttribute('aria-label')"
FOCUS = "document.activeElement.id || document.activeElement.tagName"


def said(member: str, asked: str) -> str:
    return WORDS if member == "collaborator" else f"{EVIL} {LONG}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return recorded(tmp_path_factory.mktemp("view"), said)


@pytest.fixture(scope="module")
def address(run: Run) -> Iterator[str]:
    with served(run) as address:
        yield address


@pytest.fixture(scope="module")
def file(run: Run, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of an exported folder."""
    folder: Path = tmp_path_factory.mktemp("exported") / "pages"
    export(run, folder)
    return (folder / "index.html").as_uri()


async def choose(page: Page, name: str, value: str) -> None:
    field = f"document.forms[0].elements[{name!r}]"
    await page.value(f"{field}.value = {value!r}; {field}.dispatchEvent(new Event('input', {{bubbles: true}}))")


async def follow(page: Page, words: str, titled: str) -> None:
    """Click on a link of the panel."""
    await page.value(f"[...document.querySelectorAll('#panel nav a')].find((a) => a.textContent === {words!r}).click()")
    await page.comes(f"({TITLE}).startsWith({titled!r})")


Look = Callable[[Page], Awaitable[Any]]


def looked_at(address: str, look: Look, **options: Any) -> Any:
    """What a look at the page comes to; nothing may have run, nothing was complained of, nothing left the machine."""

    async def all_of_it() -> Any:
        async with opened(address, **options) as page:
            await page.comes(READY)
            found = await look(page)
            assert page.complaints == []
            assert await page.value(SAID) is False
            assert all(asked.startswith(address.rpartition("/")[0]) or asked == "data:," for asked in page.requests)
            return found

    return asyncio.run(all_of_it())


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """Served, or from disk."""
    return str(request.getfixturevalue(request.param))


PLACES = ["address", "file"]


@pytest.mark.parametrize(("place", "width"), [("address", 400), ("address", 1280), ("file", 400)], indirect=["place"])
def test_an_episode_shows_words_as_words(place: str, width: int) -> None:
    async def look(page: Page) -> Any:
        await choose(page, "part", "train")
        await page.value("document.querySelector('#list .line').click()")
        await page.comes(f"({TITLE}) === 'Task t1'")
        pres = "[...document.querySelectorAll('#panel pre')].map((pre) => pre.textContent)"
        return await page.value(pres), await page.value(TOO_WIDE)

    texts, too_wide = looked_at(place, look, width=width)
    assert any(WORDS in text for text in texts)
    assert any(EVIL in text and len(text) > (100_000 if "http" in place else 20_000) for text in texts)
    assert too_wide == 0


@pytest.mark.parametrize(("place", "width"), [("address", 1280), ("file", 400)], indirect=["place"])
def test_a_group_stands_side_by_side_with_rewards_and_advantages(place: str, width: int) -> None:
    async def look(page: Page) -> Any:
        await choose(page, "part", "train")
        await page.value("document.querySelector('#list .line').click()")
        await page.comes(f"({TITLE}) === 'Task t1'")
        await follow(page, "side by side", "Side by side")
        return await page.value(CARDS), await page.value(TOO_WIDE)

    cards, too_wide = looked_at(place, look, width=width)
    assert too_wide == 0
    assert len(cards) == GROUP
    assert [card[:5] for card in cards] == [f"row {row}" for row in range(GROUP)]
    assert "reward 0, advantage −0.58" in cards[0]
    assert "reward 1, advantage +1.15" in cards[1]
    assert "reward –, advantage 0" in cards[3]
    assert all(WORDS in card for card in cards)


def test_what_was_said_on_a_holdout_task_goes_over_training(address: str) -> None:
    async def look(page: Page) -> Any:
        await choose(page, "task", "held 1")
        await page.value("document.querySelector('#list .line').click()")
        await page.comes(f"({TITLE}) === 'Task held 1'")
        await follow(page, "over training", "Over training")
        return await page.value(CARDS)

    cards = looked_at(address, look)
    assert [card[:6] for card in cards] == ["step 0", "step 1", "step 2"]


FILTERS: list[tuple[dict[str, str], int]] = [
    ({"part": "eval sums"}, 8),
    ({"part": "eval sums", "flip": "wrong to right"}, 1),
    ({"part": "eval sums", "flip": "right to wrong", "method": "trained"}, 2),
    ({"task": "T1"}, 2 * GROUP + 1 + 2),
    ({"part": "train", "from": "1"}, 2 * GROUP),
    ({"part": "holdout", "to": "1"}, 4),
    ({"decision": "0", "verdict": "right"}, 2 * GROUP),
    ({"verdict": "none"}, 1),
    ({"task": "nobody asked this"}, 0),
]


def test_filters_stand_in_the_address(address: str) -> None:
    async def look(page: Page) -> Any:
        found = []
        for filters, _ in FILTERS:
            for name, value in filters.items():
                await choose(page, name, value)
            shown = await page.value(COUNT), await page.value(f"{LINES}.length")
            await page.call("Page.reload")
            await page.comes("document.getElementById('count')?.textContent.includes('of 32')")
            found.append((*shown, await page.value(COUNT)))
            await page.value("document.querySelector('#filters [type=reset]').click()")
            await page.comes(READY)
        return found

    assert looked_at(address, look) == [(count, count, count) for _, count in FILTERS]


@pytest.mark.parametrize("place", PLACES, indirect=True)
def test_by_keyboard_alone(place: str) -> None:
    async def look(page: Page) -> Any:
        for _ in range(20):
            await page.press("Tab")
            if await page.value(FOCUS) == "list":
                break
        await page.press("End", "ArrowUp")
        chosen = await page.value(CHOSEN)
        await page.press("Enter")
        await page.comes(f"({TITLE}).startsWith('Task')")
        opened_on = await page.value(f"[{FOCUS}, {TITLE}]")
        await page.press("Tab")
        link = await page.value("document.activeElement.textContent")
        await page.press("Enter")
        await page.comes(f"({TITLE}).startsWith('Side by side') || ({TITLE}).startsWith('Over training')")
        await page.press("Escape")
        return chosen, opened_on, link, await page.value(FOCUS)

    chosen, opened_on, link, back = looked_at(place, look)
    assert "task held" in chosen
    assert opened_on[0] == "H2"
    assert opened_on[1] in ("Task held 0", "Task held 1")
    assert link == "side by side"
    assert back == "list"


def test_light_and_dark_have_inks_of_their_own(address: str, file: str) -> None:
    async def look(page: Page) -> Any:
        return await page.value(INK)

    assert looked_at(address, look) == "rgb(29, 35, 48) on rgb(255, 255, 255)"
    assert looked_at(file, look, dark=True) == "rgb(228, 232, 239) on rgb(20, 23, 29)"


def test_curves_are_drawn_and_read_off_by_keyboard(file: str) -> None:
    async def look(page: Page) -> Any:
        await page.comes("document.querySelectorAll('#panel svg').length === 3")
        await page.value("document.querySelector('#panel svg').focus()")
        before = await page.value("document.querySelector('#panel .legend').textContent")
        await page.press("ArrowLeft")
        return before, await page.value("document.querySelector('#panel .legend').textContent")

    before, after = looked_at(file, look)
    assert before == "reward 0.25 at step 2holdout/accuracy 0.5 at step 2"
    assert after == "reward 0 at step 1holdout/accuracy 0.5 at step 1"


def test_only_lines_in_sight_are_in_the_page(address: str) -> None:
    """A million lines are more than a browser can make an element high; the last one is reached all the same."""

    async def look(page: Page) -> Any:
        await page.value("list.show(Array.from({ length: 1000000 }, (_, at) => at % rows.count))")
        await page.value("document.getElementById('list').focus()")
        few = await page.value(f"{LINES}.length")
        await page.press("End")
        await page.value("new Promise(requestAnimationFrame)")
        line = "document.querySelector('[aria-selected=true]')"
        end = "document.getElementById('list').getBoundingClientRect().bottom"
        return (
            few,
            await page.value(f"{line}.ariaPosInSet"),
            await page.value(f"{line}.getBoundingClientRect().bottom - {end}"),
        )

    few, last, below = looked_at(address, look)
    assert few < 60
    assert last == "1000000"
    assert -30 < below <= 0


def test_who_reads_a_curve_stays_there_when_a_step_is_added(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    legend = "document.querySelector('#panel .legend').textContent"

    async def look(page: Page) -> Any:
        await page.comes("document.querySelectorAll('#panel svg').length === 3")
        await page.value("document.querySelector('#panel svg').focus()")
        await page.press("ArrowLeft")
        await page.value("document.querySelector('#panel svg').old = true")
        recorder = Recorder(run, plain)
        await recorder.holdout(3)
        recorder.journal.close()
        await page.comes("!document.querySelector('#panel svg').old")
        held = await page.value("document.activeElement.getAttribute('aria-label')"), await page.value(legend)
        await page.press("ArrowRight", "ArrowRight")
        return held, await page.value(legend)

    with served(run) as address:
        held, further = looked_at(address, look)
    assert held == ("reward by step", "reward 0 at step 1holdout/accuracy 0.5 at step 1")
    assert further.endswith("at step 3"), "the new step can be read off"
