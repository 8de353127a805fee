"""The team at work, turn by turn; and what follows when the trainee's words are edited."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish import ScriptedEngine
from pilotfish.serve import episodes
from pilotfish.team import Messages, Sampling
from pilotfish.topology import critic, hint, leader
from seated import seats
from serving import Answer, Served, served, user


def watch(server: Served, question: str = "2 + 2?", **fields: Any) -> Answer:
    return server.post("/v1/team/episodes", {"messages": [user(question)], **fields})


def edit(server: Served, episode: str, edits: dict[str, str], **fields: Any) -> Answer:
    return server.post("/v1/team/episodes", {"episode": episode, "edits": edits, **fields})


def of(answer: Answer, name: str, model: str = "team") -> list[Any]:
    return [said for kind, said in answer.events if kind == name and said.get("model", model) == model]


def texts(answer: Answer, model: str = "team") -> list[str]:
    return [turn["text"] for turn in of(answer, "turn_done", model)]


def follow(messages: Messages, sampling: Sampling, seed: int) -> str:
    """An actor that shows which call was made, and what it was told."""
    return f"{messages[-1]['content'].split('Hint: ')[-1][:7]} #{seed % 10_000}"


def hinting() -> Any:
    return seats(collaborator=lambda m, s, seed: f"Try #{seed % 10_000}", actor=follow)


def test_turns_come_as_they_are_made_with_their_members() -> None:
    with served(hint, seats(collaborator=["Add them."], actor=["So 4"]), trainee="collaborator") as server:
        answer = watch(server, gold="4", instruction="Box it.", verifier="exact")
    kinds = [kind for kind, _ in answer.events]
    assert kinds == ["started", *["turn", "delta", "delta", "turn_done"] * 2, "verdict", "done"]
    first, second = of(answer, "turn")
    assert (first["member"], first["decision"], first["final"]) == ("collaborator", 0, False)
    assert (second["member"], second["decision"], second["final"]) == ("actor", None, True)
    assert second["messages"][-1]["content"] == "2 + 2?\n(Hint: Add them.)\nBox it."
    assert [delta["text"] for delta in of(answer, "delta")] == ["Add", " them.", "So", " 4"]
    assert [delta["turn"] for delta in of(answer, "delta")] == ["0", "0", "1", "1"]
    [verdict] = of(answer, "verdict")
    assert (verdict["answer"], verdict["reward"]) == ("So 4", 1.0)
    assert verdict["usage"]["members"]["actor"]["completion_tokens"] == 2


def test_the_actor_alone_is_played_beside_and_what_they_have_in_common_is_asked_once() -> None:
    actor = ScriptedEngine(["draft", "revised"])
    with served(critic, seats(collaborator=["No."], actor=actor), trainee="collaborator") as server:
        answer = watch(server, models=["team", "actor"])
    assert texts(answer) == ["draft", "No.", "revised"]
    assert texts(answer, "actor") == ["draft"]
    assert [said["answer"] for model in ("team", "actor") for said in of(answer, "verdict", model)] == [
        "revised",
        "draft",
    ]
    assert actor.calls == 2


def test_edited_words_are_put_in_and_what_follows_is_asked_anew() -> None:
    with served(hint, hinting(), trainee="collaborator") as server:
        begun = watch(server, seed=1)
        name = of(begun, "started")[0]["episode"]
        edited = edit(server, name, {"0": "Count on fingers."})
        same = edit(server, name, {"0": "Count on fingers."})
    assert texts(edited)[0] == "Count on fingers."
    assert texts(edited)[1].startswith("Count o")
    assert [turn["edited"] for turn in of(edited, "turn_done")] == [True, False]
    assert texts(same) == texts(edited) != texts(begun)
    assert of(edited, "verdict")[0]["usage"]["members"]["collaborator"]["completion_tokens"] == 0
    assert of(edited, "started")[0]["episode"] == name


def test_what_stands_before_an_edit_is_not_asked_again() -> None:
    ann = ScriptedEngine(lambda m, s, seed: f"{len(m[-1]['content'])} #{seed % 10_000}")
    led = ScriptedEngine(lambda m, s, seed: f"<answer>{seed % 10_000}</answer>")
    with served(leader.bind(rounds=2, leader="led"), seats(ann=ann, led=led), trainee="led") as server:
        begun = watch(server)
        name = of(begun, "started")[0]["episode"]
        calls = ann.calls
        second = edit(server, name, {"1": "<answer>mine</answer>"})
        assert (texts(second)[:3], ann.calls) == (texts(begun)[:3], calls)
        assert of(second, "verdict")[0]["answer"] == "<answer>mine</answer>"
        first = edit(server, name, {"0": "Look again."})
        assert texts(first)[0] == texts(begun)[0]
        assert texts(first)[2] != texts(begun)[2]
        assert ann.calls == calls + 1
    revision = of(first, "turn")[2]["messages"][-1]["content"]
    assert "Look again." in revision


def test_an_edit_can_be_added_to_another_and_what_stands_before_it_is_not_asked_again() -> None:
    ann = ScriptedEngine(lambda m, s, seed: f"{len(m[-1]['content'])} #{seed % 10_000}")
    led = ScriptedEngine(lambda m, s, seed: f"<answer>{seed % 10_000}</answer>")
    with served(leader.bind(rounds=3, leader="led"), seats(ann=ann, led=led), trainee="led") as server:
        name = of(watch(server), "started")[0]["episode"]
        first = edit(server, name, {"0": "Look again."})
        calls = ann.calls
        both = edit(server, name, {"0": "Look again.", "1": "And again."})
        assert (texts(both)[:3], texts(both)[3]) == (texts(first)[:3], "And again.")
        assert ann.calls == calls + 1
        assert texts(both)[4] != texts(first)[4]


def test_one_episode_is_edited_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "REPLAYS", 2)
    with served(hint, hinting(), trainee="collaborator") as server:
        name = of(watch(server), "started")[0]["episode"]
        assert [edit(server, name, {"0": f"{number}"}).status for number in range(3)] == [200, 200, 400]


def test_settings_of_the_question_hold_for_its_edits() -> None:
    with served(
        hint, seats(collaborator=["a b"], actor=lambda m, s, seed: "1 2 3 4"), trainee="collaborator"
    ) as server:
        name = of(watch(server, max_tokens=2), "started")[0]["episode"]
        edited = edit(server, name, {"0": "x"})
    assert texts(edited) == ["x", "1 2"]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"episode": "unknown", "edits": {"0": "x"}}, 404, "forgotten"),
        ({"edits": {"1": "x"}}, 400, "no decision 1; the trainee took 1"),
        ({"edits": {"-1": "x"}}, 400, "no decision -1"),
        ({"edits": {"first": "x"}}, 400, "edits"),
        ({"edits": {"0": "x" * 20_001}}, 400, "20001 characters"),
        ({"edits": {}}, 400, "belong together"),
        ({"edits": {"0": "x"}, "messages": [user("?")]}, 400, "messages: an edited episode"),
        ({"edits": {"0": "x"}, "temperature": 0}, 400, "temperature: an edited episode"),
        ({"edits": {"0": "x"}, "models": ["actor"]}, 400, "takes no part"),
        ({"edits": {"0": "x"}, "models": ["nobody"]}, 404, "no model"),
    ],
)
def test_an_edit_that_cannot_be_made_is_refused(fields: dict[str, Any], status: int, words: str) -> None:
    with served(hint, hinting(), trainee="collaborator") as server:
        name = of(watch(server), "started")[0]["episode"]
        answer = server.post("/v1/team/episodes", {"episode": name, **fields})
    assert answer.status == status
    assert words in answer.json["error"]["message"]


def test_only_the_latest_episodes_are_kept_for_edits() -> None:
    with served(hint, hinting(), trainee="collaborator", sessions=2) as server:
        names = [of(watch(server), "started")[0]["episode"] for _ in range(3)]
        found = [edit(server, name, {"0": "x"}).status for name in names]
    assert found == [404, 200, 200]


def test_a_failure_ends_the_model_that_it_is_of() -> None:
    broken = ScriptedEngine(["x"], fail=lambda m, s, seed: "Hint" in m[-1]["content"])
    with served(hint, seats(collaborator=["Add."], actor=broken), trainee="collaborator") as server:
        answer = watch(server, models=["team", "collaborator"])
    assert [said["error"]["code"] for said in of(answer, "error")] == ["member_unavailable"]
    assert answer.events[-1][0] == "done"


def test_an_episode_belongs_to_the_key_that_began_it() -> None:
    from test_serve_safety import KEY, hashes

    with served(hint, hinting(), trainee="collaborator", keys=hashes(KEY, "another-key-than-mine")) as server:
        server.headers["Authorization"] = f"Bearer {KEY}"
        name = of(watch(server), "started")[0]["episode"]
        assert edit(server, name, {"0": "x"}).status == 200
        server.headers["Authorization"] = "Bearer another-key-than-mine"
        assert edit(server, name, {"0": "x"}).status == 404
