"""The report in a real browser: nothing complains, nothing is fetched, and a phone need not scroll sideways.

python -m pytest -m browser
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from browser import opened
from pilotfish.report.main import report
from reporting import evaluated

pytestmark = pytest.mark.browser

EVIL = "</script><script>window.said = 1</script><img src='http://127.0.0.1:9/x' onerror='window.said = 2'>"
OPENED = "for (const fold of document.querySelectorAll('details')) fold.open = true"
SAID = "'said' in window"
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
INK = "getComputedStyle(document.body).color + ' on ' + getComputedStyle(document.body).backgroundColor"
SORTED = """(() => {
  const table = document.querySelector('table');
  const column = () => [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[1].textContent));
  table.querySelectorAll('th button')[1].click(); const down = column();
  table.querySelectorAll('th button')[1].click(); return [down, column()];
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a report stands, of methods with long names and words that want out."""

    def said(model: str, text: str) -> str:
        if model == "collaborator":
            return f"{EVIL} {'without' * 60}"
        hinted = int(re.findall(r"what is (\d+)", text)[0]) + 1
        return f"{EVIL} \\boxed{{{hinted if 'Hint' in text else 2}}}"

    folder = tmp_path_factory.mktemp("report")
    against = ["solo", "cot", "critic"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTFISH_CACHE", str(folder / "cache"))
        run = evaluated(folder, said, count=6, benchmarks=("sums", "hard sums"), evaluate={"against": against})
    return report(run)[0].as_uri()


def looked_at(page: str, *expressions: str, **options: Any) -> tuple[list[Any], list[str], list[str]]:
    """What expressions come to with every fold open; what was requested, and what was complained of."""

    async def look() -> tuple[list[Any], list[str], list[str]]:
        async with opened(page, **options) as found:
            await found.value(OPENED)
            values = [await found.value(expression) for expression in expressions]
            return values, found.requests, found.complaints

    return asyncio.run(look())


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_is_whole_by_itself_and_fits(page: str, width: int) -> None:
    (said, too_wide, examples), requests, complaints = looked_at(
        page, SAID, TOO_WIDE, "document.querySelectorAll('details.example').length", width=width
    )
    assert complaints == []
    assert requests == [page]
    assert said is False
    assert too_wide == 0
    assert examples > 0


def test_light_and_dark_have_inks_of_their_own(page: str) -> None:
    (light,), *_ = looked_at(page, INK)
    (dark,), *_ = looked_at(page, INK, dark=True)
    assert light == "rgb(29, 35, 48) on rgb(255, 255, 255)"
    assert dark == "rgb(228, 232, 239) on rgb(20, 23, 29)"


def test_a_table_is_sorted_by_the_column_that_is_clicked(page: str) -> None:
    ((down, up),), _, complaints = looked_at(page, SORTED)
    assert complaints == []
    assert down == sorted(down, reverse=True)
    assert up == sorted(up)
    assert len(set(down)) > 1
