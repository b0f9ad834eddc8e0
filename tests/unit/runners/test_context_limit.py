"""Errors of real servers whose context is too short, and errors that resemble them."""

# ruff: noqa: E501 - messages as the servers send them

from __future__ import annotations

from typing import Any

import pytest

from turnledger.errors import ContextSizes
from turnledger.runners.context_limit import ContextMemory, context_exceeded, tokens_left
from turnledger.runners.error_cleaner import ErrorCleaner

OPENAI = "This model's maximum context length is 8192 tokens. However, "
LLAMA_CPP = {"type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256, "code": 400}


def sizes(message: str, status: int = 400, **fields: Any) -> ContextSizes | None:
    return context_exceeded(ErrorCleaner().clean({"message": message, **fields}), status)


@pytest.mark.parametrize(
    ("message", "limit", "prompt", "answer"),
    [
        (f"{OPENAI}your messages resulted in 9000 tokens. Please reduce the length.", 8192, 9000, 0),
        (f"{OPENAI}you requested 9000 tokens (8000 in the messages, 1000 in the completion).", 8192, 8000, 1000),
        ("This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens", 8192, 9000, 0),
        ("'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 4096 tokens and your request has 100 input tokens (8192 > 4096 - 100).", 4096, 100, 8192),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", 0, 0, 0),
        ("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.", 272000, 509178, 0),
        ("request (1407 tokens) exceeds the available context size (256 tokens), try increasing it", 256, 1407, 0),
        ("the request exceeds the available context size. try increasing the context size", 0, 0, 0),
        ("Requested tokens (2285) exceed context window of 2048", 2048, 2285, 0),
        ("Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens", 4096, 0, 0),
        ("The input (250000 tokens) is longer than the model's context length (200000 tokens).", 200000, 250000, 0),
        ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 500 `max_new_tokens`", 4096, 4000, 500),
        ("prompt is too long: 208423 tokens > 200000 maximum", 200000, 208423, 0),
        ("input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000, decrease input length", 200000, 199000, 8000),
        ("Input is too long for requested model.", 0, 0, 0),
        ("maximum context length is 8,192 tokens, but the request contains 1,009,000 tokens", 8192, 1009000, 0),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1048576, 1200000, 0),
        ("Please reduce the length of the messages or completion.", 0, 0, 0),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32768, 40000, 0),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131072, 537812, 0),
        ("litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too big", 0, 0, 0),
        ("The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length", 0, 0, 0),
        ("Request too large for model `openai/gpt-oss-20b` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): Limit 8000, Requested 34031, please reduce your message size and try again.", 8000, 34031, 0),
        ("Request body too large for gpt-4.1 model. Max size: 8000 tokens.", 8000, 0, 0),
        ("prompt token count of 130000 exceeds the limit of 128000", 128000, 130000, 0),
        ("Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", 8192, 9000, 0),
        ("too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000", 4081, 5000, 0),
        ("InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]", 98304, 0, 0),
        ("The prompt is too long: 9000, model maximum context length: 8192", 8192, 9000, 0),
        ("Invalid request: Your request exceeded model token limit: 262144 (requested: 310000)", 262144, 310000, 0),
        ("invalid params, context window exceeds limit", 0, 0, 0),
        ("Prompt exceeds max length", 0, 0, 0),
        ("Prompt has 5000 tokens, but the configured context size is 4096 tokens", 4096, 5000, 0),
        ("Input length 131393 exceeds the maximum allowed input length of 131040 tokens.", 131040, 131393, 0),
    ],
)  # fmt: skip
def test_message_of_a_server_is_recognized_with_its_sizes(
    message: str, limit: int, prompt: int, answer: int
) -> None:
    assert sizes(message) == (limit, prompt, answer)


def test_error_of_llama_cpp_is_recognized_by_its_type_and_fields() -> None:
    assert sizes("too big", 500, **LLAMA_CPP) == (256, 1407, 0)


def test_code_without_words_is_recognized() -> None:
    assert sizes("", code="context_length_exceeded") == (0, 0, 0)


def test_request_beyond_the_tokens_per_minute_of_an_account_is_recognized_though_it_is_a_rate_limit() -> None:
    words = (
        "on tokens per min (TPM): Limit 30000, Requested 34000. The input or output tokens must be reduced."
    )
    assert sizes(f"Request too large for gpt-4o in organization org-1 {words}", 429) == (30000, 34000, 0)


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (
            "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 1500. Please try again in 1s.",
            429,
        ),
        ("Request too large for gpt-image on images per min: Limit 5, Requested 10.", 429),
        ("max_tokens exceeds the limit of 8192", 400),
        ("The image was too large. Send a smaller one.", 400),
        ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens.", 400),
        ("Your context is not valid JSON.", 400),
        ("You exceeded your current quota, please check your plan.", 429),
        ("Rate limit: maximum context length traffic exceeded.", 429),
    ],
)
def test_other_refusal_is_not_taken_for_a_context_that_is_too_short(message: str, status: int) -> None:
    assert sizes(message, status) is None


@pytest.mark.parametrize(
    ("stated", "last", "left"),
    [
        (ContextSizes(8000, 10_000), {}, 540),
        (ContextSizes(8000, 10_000, 4000), {}, 360),
        (ContextSizes(8000, 100, 8000), {}, 1000),
        (ContextSizes(), {"model": "m-2026-01-01"}, 500),
        (ContextSizes(), {"model": "m", "context_reduced": {"turns": 3, "tokens": 200}}, 200),
        (ContextSizes(), {"model": "m", "context_reduced": "of another program"}, 500),
        (ContextSizes(), {"model": "other"}, 125),
        (ContextSizes(limit=600), {"model": "m"}, 300),
    ],
)
def test_tokens_left_after_a_refusal_follow_its_sizes_or_the_last_turn(
    stated: ContextSizes, last: dict[str, Any], left: int
) -> None:
    assert tokens_left(stated, 1000, 0, "m", last) == left


def test_tools_that_are_sent_anyway_leave_less_for_the_history() -> None:
    assert tokens_left(ContextSizes(8000, 10_000), 1000, 500, "m", {}) == 310


def test_memory_forgets_after_a_while_and_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContextMemory, "MOST", 2)
    now = 0.0
    memory = ContextMemory(lambda: now)
    for chat in ("a", "b", "a", "c"):
        memory.note(chat, "m", 10)
    assert [memory.find(chat, "m") for chat in "abc"] == [10, None, 10]
    assert memory.find("a", "other") is None
    now = ContextMemory.SECONDS
    assert memory.find("a", "m") is None
