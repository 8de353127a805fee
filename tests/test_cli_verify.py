"""`pilotfish verify`: one row out for each row in, in order, whatever the rows hold."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pilotfish.cli import main
from pilotfish.cli.verify import verdicts

COMMAND = [sys.executable, "-c", "import sys; from pilotfish.cli import main; sys.exit(main())", "verify"]


def verified(file: Path, capfdbinary: pytest.CaptureFixture[bytes], *options: str) -> list[dict[str, Any]]:
    assert main(["verify", str(file), *options]) == 0
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


def test_each_row_gets_its_verdict_in_order(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [("1/2", "so it is \\boxed{0.5}"), ("3", "4"), ("x^2+2x+1", "\\boxed{(x+1)^2}"), ("7", "7")]
    file.write_text("".join(json.dumps({"gold": gold, "pred": pred}) + "\n" for gold, pred in rows))
    found = verified(file, capfdbinary)
    assert [row["correct"] for row in found] == [True, False, True, True]
    assert [list(row) for row in found] == [["correct", "extracted", "why"]] * 4
    assert found[0]["extracted"] == "0.5"


BROKEN = {
    b"nope": "not JSON",
    b"[1]": "not a JSON object",
    b'{"gold": "2"}': "no 'pred'",
    b'{"pred": "2"}': "no 'gold'",
    b'{"gold": " ", "pred": "2"}': "gold is empty",
    b'{"gold": ["2"], "pred": "2"}': "'gold' is no text",
    b'{"gold": true, "pred": "2"}': "'gold' is no text",
    b'{"gold": NaN, "pred": "2"}': "'gold' is no text but NaN",
    b'{"gold": "2", "pred": "2", "meta": 3}': "meta is no JSON object",
    b'{"gold": "2", "pred": "2", "choices": "ab"}': "choices is no list",
    b'{"gold": "2", "pred": "\xff"}': "not UTF-8",
    b"[" * 100_000: "not JSON",
}


def test_a_broken_row_is_named_by_its_line_and_costs_no_other_row_its_verdict(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "rows.jsonl"
    good = b'{"gold": "1", "pred": "1"}'
    file.write_bytes(b"\n".join([good, *BROKEN, b"", good]) + b"\n")
    first, *broken, last = verified(file, capfdbinary)
    assert (first["correct"], last["correct"]) == (True, True)
    assert len(broken) == len(BROKEN)
    for line, (row, why) in enumerate(zip(broken, BROKEN.values(), strict=True), start=2):
        assert row["correct"] is None
        assert row["why"].startswith(f"line {line}: ")
        assert why in row["why"]


def test_numbers_and_odd_characters_pass(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"gold": 5, "pred": 5.0}\n{"gold": "5", "pred": "\\ud800 \\u0000 5"}\n{"gold": "五", "pred": "答案是 五"}\n'
    )
    found = verified(file, capfdbinary)
    assert len(found) == 3
    assert found[0]["correct"] is True


def test_the_answer_may_be_asked_for_in_a_tag(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"gold": "B", "pred": "A? <answer>B</answer>"}\n{"gold": "B", "pred": "B"}\n'))
    found = verified(file, capfdbinary, "--verifier", "choice", "--form", "answer_tag")
    assert [row["correct"] for row in found] == [True, False]


def test_damaged_input_is_said_after_the_verdicts_before_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"gold": "1", "pred": "1"}\n' * 50)[:-12])
    assert main(["verify", str(file)]) == 2
    assert "the input is damaged or unreadable after line" in capfd.readouterr().err


def test_a_verdict_does_not_wait_for_the_next_line() -> None:
    with subprocess.Popen([*COMMAND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for pred, correct in (("1", True), ("2", False)):
            process.stdin.write(f'{{"gold": "1", "pred": "{pred}"}}\n'.encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["correct"] is correct
        process.stdin.close()
        assert process.wait(timeout=200) == 0


def test_a_reader_that_leaves_early_is_no_error() -> None:
    rows = b'{"gold": "1", "pred": "1"}\n' * 20_000
    process = subprocess.Popen([*COMMAND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(rows, timeout=200)
    assert err == b""
    assert process.returncode == 1


def test_a_source_that_breaks_is_not_taken_for_its_end() -> None:
    def lines() -> Any:
        yield b'{"gold": "1", "pred": "1"}'
        raise ZeroDivisionError

    given = verdicts(lines(), "exact")
    assert next(given).correct is True
    with pytest.raises(ZeroDivisionError):
        next(given)
