"""Recognize the error of a model whose context is too short for a request, and the sizes that it states;
decide how much less to show it, and remember that.

What servers send, as reported by their users or in their own sources:

| server | error |
|---|---|
| OpenAI, Azure, DeepSeek, vLLM | code `context_length_exceeded` or 400; "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens", or "you requested 9000 tokens (8000 in the messages, 1000 in the completion)" |
| vLLM, from 0.10 | "This model's maximum context length is 4096 tokens and your request has 100 input tokens" |
| OpenAI, GPT-5 | "Your input exceeds the context window of this model"; "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens" |
| llama.cpp | type `exceed_context_size_error` with `n_prompt_tokens` and `n_ctx`, 400 or 500; "request (1407 tokens) exceeds the available context size (256 tokens)"; before: no type, no numbers |
| llama-cpp-python | "Requested tokens (2285) exceed context window of 2048" |
| LM Studio | "the model is loaded with context length of only 4096 tokens"; "The number of tokens to keep from the initial prompt is greater than the context length" |
| SGLang, Together | "The input (250000 tokens) is longer than the model's context length (200000 tokens)" |
| TGI | "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 500 `max_new_tokens`" |
| Anthropic | "prompt is too long: 208423 tokens > 200000 maximum"; "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000" |
| Bedrock | "Input is too long for requested model" |
| Gemini | "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)" |
| Groq | code `context_length_exceeded`; "Please reduce the length of the messages or completion" |
| OpenAI (429), Groq (413), with a small account | "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 34000": no wait helps, since this request alone exceeds the limit |
| GitHub Models | 413; "Request body too large for gpt-4o model. Max size: 8000 tokens." |
| GitHub Copilot | "prompt token count of 130000 exceeds the limit of 128000" |
| Cerebras | "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192" |
| Cohere | "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000" |
| DashScope | "Range of input length should be [1, 30720]" |
| Fireworks | "The prompt is too long: 9000, model maximum context length: 8192" |
| Kimi | "Your request exceeded model token limit: 262144 (requested: 310000)" |
| MiniMax | "invalid params, context window exceeds limit" |
| Z.ai | "Prompt exceeds max length" |
| DeepSeek, Poolside and others, through routers | "Prompt has 5000 tokens, but the configured context size is 4096 tokens"; "Input length 131393 exceeds the maximum allowed input length of 131040 tokens" |
| Mistral | "Prompt contains 40000 tokens, too large for model with 32768 maximum context length" |
| OpenRouter | "This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens" |
| xAI | "This model's maximum prompt length is 131072 but the request contains 537812 tokens" |
| LiteLLM | "ContextWindowExceededError", then the words of the server behind it |
"""  # noqa: E501 - a table

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from turnledger.engine.history.context import BYTES_PER_TOKEN
from turnledger.errors import ContextSizes

REDUCED = "context_reduced"
"""The detail of a turn whose model had refused to be shown more: the `turns` it was shown, and the `tokens`
into which they fit."""
_MARGIN = 0.9
"""Since tokens are estimated from bytes, which differ from turn to turn."""
_NAMES = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_SPAN = r"[^.]{0,60}"
_TOO_LARGE = r"request\ (?:body\ )?too\ large\ for\ .{1,300}\btokens\b"
"""The request alone exceeds the limit of an account, also of its tokens per minute."""
_is_too_large = re.compile(_TOO_LARGE, re.IGNORECASE).search
_WORDS = re.compile(
    rf"""
    maximum\ (?:context|prompt|model|allowed\ input)\ length
    | (?:exceeds?|exceeded|(?:longer|greater)\ than){_SPAN} \bcontext\ (?:length|window|size|limit)
    | \bcontext\ (?:length|window|size|limit) \b (?:{_SPAN}exceed | \ of\ only)
    | ContextWindowExceeded | context_length_exceeded
    | (?:prompt|input)\ is\ too\ long
    | (?:input|prompt)\ token\ count{_SPAN}exceeds
    | tokens\ in\ the\ prompt\ cannot\ exceed
    | exceeded\ model\ token\ limit
    | prompt\ exceeds\ max\ length
    | input\ length\ should\ be\ \[
    | configured\ context\ size\ is
    | {_TOO_LARGE}
    | tokens\ exceed\ the\ configured\ limit
    | `max_new_tokens`\ must\ be\ <=
    | reduce\ the\ length\ of\ the\ (?:messages|prompt|input)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LIMITS = re.compile(
    r"""
    (?:maximum\ (?:context|prompt|model)\ length | context\ (?:length|window|size|limit) | configured\ limit)
        (?:\ is|\ of|\ of\ only|:[\ \d]+\+[\ \d]+>|:)? [\ (]+ (\d+)
    | (?: >\ |with\ ) (\d+) \ maximum
    | tokens\ allowed\ \((\d+)
    | must\ be\ <=\ (\d+)
    | \blimit\ (?:of\ |is\ )? (\d+)
    | (?:token\ limit|max\ size):\ (\d+)
    | input\ length\ (?:of\ |should\ be\ \[1,\ ) (\d+)
    | cannot\ exceed\ (\d+)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PROMPTS = re.compile(
    r"""
    (\d+)\ (?:in\ the\ messages|input\ tokens|`inputs`\ tokens)
    | resulted\ in\ (\d+)
    | (?:contains|too\ long:|prompt\ has|token\ count\ of|input\ length|current\ length\ is|received)\ (\d+)
    | (?:input|request|prompt|token\ count|requested\ tokens|input\ length)\ \((\d+)
    | context\ limit:\ (\d+)\ \+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_ALL_REQUESTED = re.compile(r"requested:? (?:about )?(\d+)", re.IGNORECASE)
_ANSWERS = re.compile(
    r"(\d+) in the completion|and (\d+) `max_new_tokens`|context limit: \d+ \+ (\d+)|is too large: (\d+)",
    re.IGNORECASE,
)


def context_exceeded(error: Mapping[str, Any], status: int) -> ContextSizes | None:
    """Return the sizes in a cleaned error object if it says that the context is too short, else None."""
    words = _THOUSANDS.sub("", str(error.get("message", "")))
    if status in (401, 402, 403, 407) or (status == 429 and not _is_too_large(words)):
        return None
    if not _NAMES.intersection((error.get("code"), error.get("type"))) and not _WORDS.search(words):
        return None
    limit = _int(error.get("n_ctx")) or _number(_LIMITS, words)
    prompt = _int(error.get("n_prompt_tokens")) or _number(_PROMPTS, words) or _number(_ALL_REQUESTED, words)
    return ContextSizes(limit, prompt, _number(_ANSWERS, words))


def tokens_of_tools(settings: Mapping[str, Any]) -> int:
    """Estimate the tokens of the tools in the settings of a request."""
    tools = settings.get("tools")
    return 0 if tools is None else len(msgspec.json.encode(tools)) // BYTES_PER_TOKEN


def tokens_left(sizes: ContextSizes, shown: int, besides: int, model: str, last: Mapping[str, Any]) -> int:
    """Return how many of the tokens shown a model may be shown after this refusal, as estimated here.

    `besides` were sent with them; `last` are the details of the turn before. A model that states no sizes is
    shown half, since it could answer that turn, or an eighth if another model did; and no more than after its
    last refusal.
    """
    if sizes.limit and sizes.prompt:
        room = sizes.limit - (sizes.answer or sizes.limit // 4)
        if room <= 0:
            return shown  # the answer that was requested is too long, whatever is shown
        return round((shown + besides) * min(1.0, room / sizes.prompt) * _MARGIN) - besides
    is_same = str(last.get("model")).startswith(model)  # answers may add a date to its name
    before = last.get(REDUCED)
    bounds = [shown // (2 if is_same else 8)]
    if isinstance(before, Mapping):
        bounds.append(_int(before.get("tokens")) or shown)
    if sizes.limit:
        bounds.append(sizes.limit // 2 - besides)
    return min(bounds)


class ContextMemory:
    """The tokens that models may be shown of chats they refused at full length, so that not every turn is
    refused first. A second refusal halves them for the next turn, which the chat then survives.

    By chat: what tokens are worth, and the length of answers, differ from chat to chat. It forgets after
    SECONDS, since models are replaced by larger ones, and beyond MOST chats.
    """

    MOST = 10_000
    SECONDS = 3600.0

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self.tokens: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        """By chat and model, with the time until which it is remembered."""

    def find(self, chat: str, model: str) -> int | None:
        """Return the tokens to show, those of tools included; None: no refusal is known."""
        found = self.tokens.get((chat, model))
        return found[0] if found is not None and self._monotonic() < found[1] else None

    def note(self, chat: str, model: str, tokens: int) -> None:
        self.tokens.pop((chat, model), None)
        self.tokens[chat, model] = tokens, self._monotonic() + self.SECONDS
        if len(self.tokens) > self.MOST:
            self.tokens.popitem(last=False)


def _number(pattern: re.Pattern[str], words: str) -> int:
    found = pattern.search(words)
    return int(next(filter(None, found.groups()))[:12]) if found else 0


def _int(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
