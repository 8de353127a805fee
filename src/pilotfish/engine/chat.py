"""From messages to token ids: the chat template of a model, or plain text for one without; and what ends an answer.

ids = render(tokenizer, [{"role": "user", "content": "What is 7 + 5?"}])
"""

from __future__ import annotations

import re
from functools import lru_cache

from jinja2.exceptions import TemplateError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pilotfish.engine.base import Refused
from pilotfish.team import Message, Messages

PLAIN_STOP = "\n\nUser:"
"""Where the next turn would begin for a model without a chat template."""


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end an answer: what model and tokenizer name, and what ends a turn in the chat template."""
    named = [tokenizer.eos_token_id, model.config.get_text_config().eos_token_id, turn_end(tokenizer)]
    if model.generation_config is not None:
        named.append(model.generation_config.eos_token_id)
    flat = [token for entry in named for token in (entry if isinstance(entry, list) else [entry])]
    return frozenset(int(token) for token in flat if token is not None)


def turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token after an assistant's words, or None."""
    if not tokenizer.chat_template:
        return None
    turn = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "zq"}]
    text = str(tokenizer.apply_chat_template(turn, tokenize=False))
    after = tokenizer(text[text.rfind("zq") + 2 :], add_special_tokens=False)["input_ids"]
    return next((token for token in after if token in _special(tokenizer)), None)


@lru_cache(maxsize=8)
def _special(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Control tokens by id."""
    added = {i: token.content for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=False))


def render(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> list[int]:
    """Token ids of a chat, up to where the assistant's words begin; of one that ends with them, to their end.

    The ids are those of the model's chat template; a model without one gets `System: … User: … Assistant:`. Control
    tokens that stand in a message (a question that quotes `<|im_end|>`) arrive as text, never as control tokens.

    Raises:
        Refused: the template does not take these messages.
    """
    chat = tuple((message["role"], message["content"]) for message in messages)
    return list(_rendered(tokenizer, str(tokenizer.chat_template), chat))


@lru_cache(maxsize=64)
def _rendered(tokenizer: PreTrainedTokenizerBase, template: str, chat: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
    """Kept, since the rows of a group ask for the same chat; `template` is the tokenizer's, which may be changed."""
    messages = [Message(role=role, content=content) for role, content in chat]
    return tuple(_ids(tokenizer, messages))


def _ids(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> list[int]:
    text = unquoted(tokenizer, messages)
    return _quoted(tokenizer, messages) if text is None else encode(tokenizer, text)


def unquoted(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> str | None:
    """The text of a chat, to be encoded as it stands (`encode`); None for one that quotes a control token.

    Raises:
        Refused: the template does not take these messages.
    """
    control = _control(tokenizer)
    quotes = any(control.search(message["content"]) for message in messages)
    return None if quotes else _text(tokenizer, messages)


@lru_cache(maxsize=8)
def _control(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """Finds control tokens; of several that begin at one place, the longest."""
    words = sorted(_special(tokenizer).values(), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words)) or "(?!)")


def _quoted(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> list[int]:
    # A character for private use that the messages do not hold marks where a quoted token stands.
    words = "\n".join(message["content"] for message in messages)
    mark = next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in words)
    found: list[str] = []

    def hide(match: re.Match[str]) -> str:
        found.append(match[0])
        return f"{mark}{len(found) - 1}{mark}"

    control = _control(tokenizer)
    marked: Messages = [{"role": m["role"], "content": control.sub(hide, m["content"])} for m in messages]
    return _encode_quoted(tokenizer, _text(tokenizer, marked).split(mark), found)


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of what `unquoted` gives."""
    # A template writes the beginning-of-text token itself; plain text gets it from the tokenizer.
    ids: list[int] = tokenizer(text, add_special_tokens=not tokenizer.chat_template)["input_ids"]
    return ids


def _encode_quoted(tokenizer: PreTrainedTokenizerBase, pieces: list[str], found: list[str]) -> list[int]:
    """Encode text of which every second piece is the number of a quoted control token; its id becomes the ids of its
    letters."""
    text, spans = "", set[int]()
    for i, piece in enumerate(pieces):
        if i % 2:
            spans.add(len(text))
        text += found[int(piece)] if i % 2 else piece
    coded = tokenizer(text, add_special_tokens=not tokenizer.chat_template, return_offsets_mapping=True)
    special = _special(tokenizer)
    ids: list[int] = []
    for token, (start, end) in zip(coded["input_ids"], coded["offset_mapping"], strict=True):
        if token in special and any(start <= at < end for at in spans):
            ids += _letters(tokenizer, text[start:end])
        else:
            ids.append(token)
    return ids


def _letters(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The ids of a control token's letters."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return ids


def _text(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> str:
    if not tokenizer.chat_template:
        return plain_text(messages)
    try:
        return _template(tokenizer, messages)
    except TemplateError as error:
        if messages[0]["role"] != "system" or len(messages) < 2:
            raise Refused(f"the chat template refuses these messages: {error}") from error
    system, first, *rest = messages
    folded: Message = {"role": first["role"], "content": f"{system['content']}\n\n{first['content']}"}
    try:
        return _template(tokenizer, [folded, *rest])
    except TemplateError as error:
        raise Refused(f"the chat template refuses these messages: {error}") from error


def _template(tokenizer: PreTrainedTokenizerBase, messages: Messages) -> str:
    turns = [{"role": message["role"], "content": message["content"]} for message in messages]
    opened = turns[-1]["role"] != "assistant"
    return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=opened))


def plain_text(messages: Messages) -> str:
    """A chat as plain text, for a model without a chat template."""
    turns = [f"{message['role'].capitalize()}: {message['content']}" for message in messages]
    return "\n\n".join([*turns, "Assistant:"])
