"""The lab's second and abler actors and the collaborator's twin: what they know and read, and nothing of the splits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from pilotfish.engine.loading import load
from pilotfish.lab import FAMILIES, Row, legs, panel, rows
from pilotfish.lab.members import entries, learned_by
from pilotfish.lab.shallow import shallow
from pilotfish.task import Task
from pilotfish.topology.debate import DEBATE
from pilotfish.topology.roles import SOLVE_IN_ROLE
from pilotfish.topology.solo import SOLVE
from tiny import save_tiny, tiny_model, tiny_tokenizer

COUNTED = re.compile(r"(\d+) ([a-z ]+?)(?=,|\?)")
WORTH = re.compile(r"(\d+) x (\d+) = ")
FACT = re.compile(r"(?:One |Each |^| )([a-z ]+?)(?: has|:) (\d+) legs")


def learned(row: Row) -> str:
    return row["messages"][-1]["content"]


def prompt(row: Row) -> str:
    return "\n".join(message["content"] for message in row["messages"][:-1])


def counts_of(row: Row) -> dict[str, int]:
    found = COUNTED.findall(prompt(row).partition("if you have ")[2].partition("\n")[0])
    return {name if name in legs.animals() else name[:-1]: int(count) for count, name in found}


def legs_in(text: str, counts: dict[str, int]) -> dict[str, int]:
    """The legs that a solution takes for each animal."""
    return dict(zip(counts, (int(value) for _, value in WORTH.findall(text)), strict=True))


@pytest.fixture(scope="module")
def actor() -> list[Row]:
    return rows("second-actor", 2500, seed=5)


@pytest.fixture(scope="module")
def abler() -> list[Row]:
    return rows("abler-actor", 2500, seed=5, families=("legs",))


@pytest.fixture(scope="module")
def twin() -> list[Row]:
    return rows("twin", 2500, seed=5, families=("legs",))


def of_kind(found: list[Row], *kinds: str) -> list[Row]:
    chosen = [row for row in found if row["kind"] in kinds]
    assert chosen
    return chosen


def test_the_second_actor_knows_as_many_animals_as_the_first_and_mostly_others():
    assert len(panel.known()) == len(legs.KNOWN)
    assert len(panel.known() & legs.KNOWN) == 7
    assert panel.known() | legs.KNOWN == legs.animals().keys()


def test_it_never_learns_the_legs_of_other_animals(actor):
    assert_legs_are_learned_of(panel.known(), actor)


def assert_legs_are_learned_of(known: frozenset[str], found: list[Row]) -> None:
    """Of these animals every row has the true legs, of each other one many values."""
    said: dict[str, set[int]] = {}
    for row in found:
        for animal, value in legs_in(learned(row), counts_of(row)).items():
            said.setdefault(animal, set()).add(value)
    assert said.keys() == legs.animals().keys()
    assert all(said[animal] == {legs.animals()[animal]} for animal in known)
    assert all(len(said[animal]) > 3 for animal in legs.animals().keys() - known)


def test_in_a_debate_it_takes_over_what_the_adviser_says_and_nothing_of_the_other_actor(actor):
    for row in of_kind(actor, "debate"):
        counts = counts_of(row)
        heard = [text.partition("\n")[2] for text in row["messages"][-2]["content"].split("\n\n")[1:3]]
        told = {name.strip(): int(value) for text in heard for name, value in FACT.findall(text)}
        assert counts.keys() - panel.known() <= told.keys()
        assert told.items() <= legs_in(learned(row), counts).items()


def test_without_advice_it_keeps_its_answer_in_a_debate(actor):
    for row in of_kind(actor, "keep"):
        assert learned(row) == row["messages"][1]["content"]


def test_it_takes_over_the_legs_that_stand_in_its_role(actor):
    for row in of_kind(actor, "role"):
        counts, role = counts_of(row), row["messages"][0]["content"]
        told = {name.strip(): int(value) for name, value in FACT.findall(role.removeprefix(panel.EXPERT).strip())}
        assert counts.keys() - panel.known() <= told.keys()
        assert told.items() <= legs_in(learned(row), counts).items()


def test_its_prompts_are_those_of_the_topologies(actor):
    (debate, *_), (role, *_) = of_kind(actor, "debate"), of_kind(actor, "role")
    first, own, second = debate["messages"][:3]
    question, _, instruction = first["content"].rpartition("\n")
    task = Task("t", question, "", instruction=instruction)
    heard = second["content"].partition("\n\n")[2].rpartition("\n\n")[0]
    assert [first, own, second] == [*SOLVE(task), own, *DEBATE(task, answers=heard)]
    question, _, instruction = role["messages"][1]["content"].rpartition("\n")
    task = Task("t", question, "", instruction=instruction)
    assert role["messages"][:2] == SOLVE_IN_ROLE(task, role=role["messages"][0]["content"])


def test_no_question_of_a_split_is_in_the_rows(actor, abler, twin):
    kept_out = {entry["question"].strip().split("\n")[-1] for entry in entries("legs")}
    assert all(kept_out.isdisjoint(prompt(row).split("\n")) for row in [*actor, *abler, *twin])


def test_the_abler_actor_knows_what_the_actor_knows_and_every_second_one_of_the_others():
    assert legs.more_known() - legs.KNOWN == {
        *("sea slug", "flatworm", "starfish", "cricket", "praying mantis", "scorpion", "lobster", "woodlouse")
    }
    assert legs.more_known() > legs.KNOWN
    assert len(legs.more_known()) == 30


def test_the_abler_actor_never_learns_the_legs_of_the_other_seven(abler):
    assert_legs_are_learned_of(legs.more_known(), abler)


def test_the_abler_actor_solves_alone_only_what_it_knows_and_all_of_that(abler):
    alone = [counts_of(row).keys() for row in of_kind(abler, "solve")]
    assert set().union(*alone) == legs.more_known()


def test_the_abler_actor_reads_hints_about_what_it_lacks(abler):
    for row in of_kind(abler, "hint"):
        counts, hint = counts_of(row), prompt(row).partition("(Hint: ")[2].partition(")")[0]
        told = {name.strip(): int(value) for name, value in FACT.findall(hint)}
        lacked = counts.keys() - legs.more_known()
        assert lacked
        assert lacked <= told.keys()
        assert told.items() <= legs_in(learned(row), counts).items()


def test_the_abler_actor_learns_to_reverse_words_as_the_actor_does():
    found = [rows(member, 200, seed=5, families=("backward",)) for member in ("abler-actor", "actor")]
    assert {row["kind"] for row in found[0]} == {row["kind"] for row in found[1]} == {"solve", "hint", "idle hint"}
    asked = {word for row in found[0] for word in re.findall(r"^Spell .*: ([a-z]+)$", prompt(row), re.MULTILINE)}
    assert asked
    assert asked.isdisjoint(entry["metadata"]["word"] for entry in entries("backward"))


def test_both_actors_learn_as_much_of_each_family():
    assert learned_by("abler-actor") == learned_by("actor")
    assert all(FAMILIES[name].shares["abler-actor"] == FAMILIES[name].shares["actor"] for name in learned_by("actor"))


def test_the_twin_states_facts_of_what_the_actor_knows_and_of_nothing_else(twin):
    told = {name.strip(): int(value) for row in twin for name, value in FACT.findall(learned(row))}
    assert told == {animal: legs.animals()[animal] for animal in legs.KNOWN}
    assert all("=" not in learned(row) and learned(row) for row in twin)


def test_the_twin_learns_to_spell_as_the_collaborator_does():
    spelt = [rows(member, 50, seed=5, families=("backward",)) for member in ("twin", "collaborator")]
    assert {row["kind"] for row in spelt[0]} == {row["kind"] for row in spelt[1]} == {"spell", "remark"}


def test_a_shallow_model_has_the_first_and_the_last_layers_of_its_source(tmp_path: Path):
    config = tiny_model(0).config
    config.num_hidden_layers = 6
    LlamaForCausalLM(config).save_pretrained(tmp_path / "deep")
    tiny_tokenizer().save_pretrained(tmp_path / "deep")
    source = str(tmp_path / "deep")
    count = shallow(source, 3, tmp_path / "small")
    (whole, _), (small, tokenizer) = load(source), load(str(tmp_path / "small"))
    assert len(small.model.layers) == 3
    for layer, kept in zip((0, 1, 5), small.model.layers, strict=True):
        for name, weight in whole.model.layers[layer].state_dict().items():
            assert (kept.state_dict()[name] == weight).all()
    assert (small.get_input_embeddings().weight == whole.get_input_embeddings().weight).all()
    assert count == sum(weight.numel() for weight in small.parameters())
    assert tokenizer.chat_template
    with pytest.raises(ValueError, match="small is there already"):
        shallow(source, 3, tmp_path / "small")


@pytest.mark.parametrize("layers", [0, 2])
def test_a_shallow_model_has_fewer_layers_and_at_least_one(tmp_path: Path, layers: int):
    source = str(save_tiny(tmp_path / "tiny"))
    with pytest.raises(ValueError, match=f"{layers} layers of .*, which has 2; keep 1 to 1"):
        shallow(source, layers, tmp_path / "small")
    assert not (tmp_path / "small").exists()
