"""`pilotfish doctor`: each thing that can be missing is found, with the way out; a key is never shown."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from handled import handled
from pilotfish.cli import main
from pilotfish.preflight import machine
from pilotfish.preflight.doctor import gold_reply, recipe_findings
from pilotfish.preflight.endpoint import list_models
from pilotfish.preflight.machine import Finding, satisfies
from pilotfish.recipe import parse_recipe
from pilotfish.task import Task

KEY = "sk-a-secret-that-nobody-sees"


class _Server(http.server.BaseHTTPRequestHandler):
    """Lists one model to who has the key; `/gone` redirects, `/bare` has no list, `/odd` lists something else."""

    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        key = self.headers.get("Authorization")
        self.asked.append((self.path, key))
        if self.path.startswith("/gone"):
            self.answer(302, b"", Location="/v1/models")
        elif self.path.startswith("/bare"):
            self.answer(404, b"no such page")
        elif key != f"Bearer {KEY}":
            self.answer(401, f"wrong key {key}".encode())
        else:
            body = {"data": [{"id": "some"}]} if self.path == "/v1/models" else {"models": []}
            self.answer(200, json.dumps(body).encode())

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with handled(_Server) as found:
        yield found


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", KEY)


@pytest.fixture
def data(tmp_path: Path, address: str, key: None) -> dict[str, Any]:
    """A recipe in which nothing is wrong."""
    file = tmp_path / "mine.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(12)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = tmp_path / "model"
    model.mkdir()
    return {
        "tasks": {"train": str(file), "holdout": 4},
        "team": {
            "collaborator": {"model": str(model), "train": "lora"},
            "actor": {"engine": "openai", "model": "some", "base_url": f"{address}/v1", "key_env": "OWN_KEY"},
        },
        "topology": "critic",
        "train": {"group_size": 4, "tasks_per_step": 4, "micro_batch": 4, "updates_per_step": 1},
    }


def found(data: dict[str, Any]) -> dict[str, Finding]:
    return {finding.name: finding for finding in recipe_findings(parse_recipe(data))}


def test_a_recipe_in_order_is_all_ok(data: dict[str, Any]) -> None:
    findings = found(data)
    assert {finding.status for finding in findings.values()} == {"ok"}
    assert findings["training: mine"].what == "8 tasks to train on, 4 held out"
    assert findings["training: mine, golds"].what == "8 of 8 gold answers are judged right"
    assert findings["topology"].what == "critic: the calls of a group of 4 are 5 of actor, 4 of collaborator"


@pytest.mark.parametrize(
    ("change", "name", "status", "words"),
    [
        ({"key_env": "NO_SUCH_KEY"}, "actor", "fail", "no key in $NO_SUCH_KEY"),
        ({"base_url": "http://127.0.0.1:9/v1"}, "actor", "fail", "refused"),
        ({"base_url": "{address}/bare"}, "actor", "warn", "no list of models"),
        ({"base_url": "{address}/odd"}, "actor", "warn", "no list of models"),
        ({"base_url": "{address}/gone"}, "actor", "fail", "it answers 302"),
        ({"model": "other"}, "actor", "warn", "not in its list of models"),
        ({"key_env": None}, "actor", "fail", "a call without a key is refused (401)"),
    ],
)
def test_a_server_that_will_not_serve_is_found(
    change: dict[str, Any], name: str, status: str, words: str, data: dict[str, Any], address: str
) -> None:
    change = {field: value and value.replace("{address}", address) for field, value in change.items()}
    data["team"]["actor"].update(change)
    finding = found(data)[name]
    assert finding.status == status
    assert words in finding.what
    assert finding.way_out


@pytest.mark.parametrize(
    ("path", "way_out"),
    [
        ("/bare", "a base_url usually ends in /v1; if this one is right, the first call will tell"),
        ("/bare/v1", "the first call will tell"),
        ("/bare/v1beta/openai", "the first call will tell"),
    ],
)
def test_how_addresses_usually_end_is_told_where_one_ends_otherwise(
    path: str, way_out: str, data: dict[str, Any], address: str
) -> None:
    data["team"]["actor"]["base_url"] = address + path
    assert found(data)["actor"].way_out == way_out


@pytest.mark.parametrize(
    ("part", "change", "name", "words"),
    [
        ("tasks", {"holdout": 12}, "training: mine", "none is left"),
        ("train", {"tasks_per_step": 12}, "train.tasks_per_step", "8 tasks, and train.tasks_per_step is 12"),
        ("tasks", {"train": "nowhere.jsonl"}, "training: nowhere", "no such file"),
        ("evaluate", {"benchmarks": ["nowhere.jsonl"]}, "nowhere", "no such file"),
        ("topology", {"name": "solo"}, "topology", "solo asks collaborator for 0 decisions"),
        ("topology", {"name": "hint", "options": {"actor": "nobody"}}, "topology", "no member 'nobody'"),
    ],
)
def test_what_would_stop_a_run_fails(
    part: str, change: dict[str, Any], name: str, words: str, data: dict[str, Any]
) -> None:
    data[part] = {**data[part], **change} if part in data and part != "topology" else change
    finding = found(data)[name]
    assert finding.status == "fail"
    assert words in finding.what


@pytest.mark.parametrize(("gib", "status", "words"), [(139, "ok", "which has 139"), (80, "fail", "which has 80")])
def test_weights_that_a_gpu_does_not_hold_fail(
    gib: int, status: str, words: str, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilotfish.preflight.room._total", lambda gpu: gib * 2.0**30)
    data["team"]["collaborator"] = {"model": "own/model-7B", "train": "full"}
    finding = found(data)["memory of weights"]
    assert (finding.status, finding.what) == (status, f"weights take at least 117 GiB of GPU 0, {words}")
    assert finding.way_out.startswith("`train: lora` at collaborator") == (status == "fail")


def test_a_model_that_is_not_here_is_told_from_one_that_cannot_be(
    data: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    collaborator = data["team"]["collaborator"]
    collaborator["model"] = "own/no-such-model"
    assert found(data)["collaborator"].status == "warn"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert found(data)["collaborator"].status == "fail"
    collaborator["model"] = str(tmp_path / "nowhere")
    assert "no such folder" in found(data)["collaborator"].what


def test_a_topology_that_is_not_deterministic_fails(data: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "import itertools\nfrom pilotfish.topology import topology\nnumbers = itertools.count()\n\n"
        "@topology\nasync def shaky(task, room):\n"
        "    said = await room.ask('collaborator', f'{task.question} {next(numbers)}')\n"
        "    return await room.ask('actor', said.text, final=True)\n"
    )
    data["topology"] = f"{file}:shaky"
    finding = found(data)["topology"]
    assert finding.status == "fail"
    assert "is asked something else" in finding.what


def test_gold_answers_that_the_verifier_refuses_are_named(data: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    rows = [{"question": f"{n}?", "answer": answer} for n, answer in enumerate(("A", "none of them", "B"))]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data["evaluate"] = {"benchmarks": [{"source": str(file), "verifier": "choice"}]}
    finding = found(data)["letters, golds"]
    assert (finding.status, finding.what) == ("warn", "2 of 3 gold answers are judged right")
    assert "letters-1" in finding.way_out


def test_a_key_goes_to_its_server_only_and_is_never_printed(
    data: dict[str, Any],
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "machine", lambda: iter(()))
    for base_url in (f"{address}/v1", f"{address}/gone", f"{address}/odd"):
        _Server.asked.clear()
        data["team"]["actor"]["base_url"] = base_url
        file = tmp_path / "recipe.json"
        file.write_text(json.dumps(data))
        main(["doctor", str(file)])
        assert [key for _, key in _Server.asked] == [f"Bearer {KEY}"]
    monkeypatch.setenv("OWN_KEY", "another-secret")
    main(["doctor", str(file), "--set", f"team.actor.base_url={address}/v1"])
    out, err = capsys.readouterr()
    assert "is refused (401)" in out
    assert KEY not in out + err
    assert "another-secret" not in out + err


def test_the_exit_code_is_1_only_where_something_fails(
    data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "machine", lambda: iter([Finding("warn", "gpu", "none", "get one")]))
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(data))
    assert main(["doctor", str(file)]) == 0
    assert "→ get one" in capsys.readouterr().out
    assert main(["doctor", str(file), "--set", "team.actor.key_env=NO_SUCH_KEY"]) == 1
    assert "1 to mend" in capsys.readouterr().out


def test_packages_are_compared_with_the_pins_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "requires", lambda name: ["trl==1.16.*; extra == 'train'", "math-verify<0.10,>=0.9"])
    monkeypatch.setattr(machine, "version", lambda name: {"trl": "1.17.0", "math-verify": "0.9.0"}[name])
    assert machine._pins() == {"trl": "==1.16.*", "math-verify": "<0.10,>=0.9"}
    assert machine._package("trl", "==1.16.*").status == "warn"
    assert machine._package("math-verify", "<0.10,>=0.9").status == "ok"


@pytest.mark.parametrize(
    ("version", "pin", "fits"),
    [
        ("5.24.0", ">=5.17,<5.25", True),
        ("5.25.0", ">=5.17,<5.25", False),
        ("2.13.0+cpu", ">=2.9", True),
        ("1.16.3", "==1.16.*", True),
        ("1.160.0", "==1.16.*", False),
        ("0.9", ">=0.9.0", True),
        ("10.0", "<9", False),
    ],
)
def test_a_pin_is_read_as_numbers(version: str, pin: str, fits: bool) -> None:
    assert satisfies(version, pin) is fits


def test_a_query_of_the_address_is_kept_and_an_odd_address_is_no_crash(address: str, key: None) -> None:
    _Server.asked.clear()
    list_models(f"{address}/v1/?version=2", "OWN_KEY", "some")
    assert _Server.asked[0][0] == "/v1/models?version=2"
    assert list_models("http://[", None, "some").state == "unreachable"
    assert list_models("ftp:/x", None, "some").state == "unreachable"


def test_a_gold_answer_is_said_in_the_form_that_is_asked_for() -> None:
    maths, choice = Task("a", "?", "5"), Task("b", "?", "B", verifier="choice")
    assert gold_reply(maths, "free") == "\\boxed{5}"
    assert gold_reply(choice, "free") == "B"
    assert gold_reply(choice, "answer_tag") == "<answer>B</answer>"


@pytest.fixture
def staged(data: dict[str, Any]) -> dict[str, Any]:
    """A leader of two agents, and the stages of MLPO+; nothing is wrong in it."""
    agent = {**data["team"]["actor"], "sampling": {"temperature": 0.7}}
    grpo = {**data.pop("train"), "horizon": "decision"}
    data["team"] = {"leader": data["team"]["collaborator"], "ann": agent, "bob": agent}
    data["topology"] = {"name": "leader", "options": {"rounds": 3}}
    data["stages"] = {
        "answers": {"method": "collect"},
        "sft": {"method": "backtrack", "samples": 6},
        "mlpo": {**grpo, "prefix": "stored"},
        "shaped": {"method": "collect", "rounds": [1, 2]},
        "mlpo+": {**grpo, "prefix": "shaped", "decision": [1, 2]},
    }
    data["evaluate"] = {"against": []}
    return data


def test_each_stage_is_tried_after_those_before_it(staged: dict[str, Any]) -> None:
    findings = found(staged)
    assert {finding.status for finding in findings.values()} == {"ok"}
    assert {name: finding.what for name, finding in findings.items() if name.startswith("stage ")} == {
        "stage answers": "leader: the calls of a set are 1 of ann, 1 of bob",
        "stage sft": "leader: the calls of a task, at most, are 7 of leader",
        "stage mlpo": "leader: the calls of a group of 4 are 4 of leader",
        "stage shaped": "leader: the calls of a set are 2 of leader, 2 of ann, 2 of bob",
        "stage mlpo+": "leader: the calls of a group of 4 are 4 of leader",
    }


def test_stored_answers_that_no_stage_collects_are_to_mind(staged: dict[str, Any]) -> None:
    staged["stages"] = {"mlpo": {**staged["stages"]["mlpo"], "set_order": "easy_first"}}
    findings = found(staged)
    assert findings["stage mlpo"].status == "ok"
    asked = findings["mlpo: answers"]
    assert asked.status == "warn"
    assert "no stage collects before it" in asked.what
    assert "set_order easy_first has nothing to go by" in asked.what
    assert "{method: collect}" in asked.way_out


def test_shaped_answers_that_no_stage_collects_fail(staged: dict[str, Any]) -> None:
    staged["stages"]["shaped"]["rounds"] = [1]
    findings = found(staged)
    assert findings["stages.mlpo+.prefix"].status == "fail"
    assert "answers of round 2" in findings["stages.mlpo+.prefix"].what
    assert "rounds: [1, 2]" in findings["stages.mlpo+.prefix"].way_out
    assert "stage mlpo+" not in findings
    staged["train"] = staged.pop("stages")["mlpo+"]
    alone = found(staged)
    assert alone["train.prefix"].status == "warn"
    assert "collect RECIPE --rounds 1,2 --leader RUN" in alone["train.prefix"].way_out
    assert alone["topology"].what == "leader: the calls of a group of 4 are 4 of leader"


def test_a_stage_that_would_stop_is_named(staged: dict[str, Any]) -> None:
    staged["stages"]["mlpo"]["tasks_per_step"] = 40
    finding = found(staged)["stages.mlpo.tasks_per_step"]
    assert finding.status == "fail"
    assert "32 groups, and stages.mlpo.tasks_per_step is" in finding.what


def test_a_decision_that_a_stage_does_not_come_to_is_a_warning(staged: dict[str, Any]) -> None:
    staged["stages"]["mlpo"].update({"decision": 3, "horizon": "episode"})
    findings = found(staged)
    assert findings["stage mlpo"].status == "ok"
    assert findings["mlpo: decisions"].status == "warn"
    assert "train.decision 3: where everyone says filler, leader" in findings["mlpo: decisions"].what
    assert findings["mlpo: decisions"].way_out == "correct it, unless words lead to more"


def test_a_trainee_that_is_asked_first_leaves_nothing_to_collect(staged: dict[str, Any]) -> None:
    staged["topology"] = {"name": "hint", "options": {"collaborator": "leader", "actor": "ann"}}
    staged["stages"] = {"answers": {"method": "collect"}}
    finding = found(staged)["stage answers"]
    assert finding.status == "fail"
    assert "nothing to collect" in finding.what


def test_sets_that_cannot_differ_and_a_missing_file_of_answers_are_found(staged: dict[str, Any]) -> None:
    staged["team"]["ann"] = {**staged["team"]["ann"], "sampling": {"temperature": 0}}
    staged["collect"] = {"answers": "nowhere.jsonl"}
    findings = found(staged)
    assert findings["collect.sets"].status == "warn"
    assert findings["collect.sets"].way_out == "set team.ann.sampling.temperature"
    assert findings["collect.answers"].status == "fail"
    assert findings["stage answers"].what == "leader: the calls of a set are none: all is there"
