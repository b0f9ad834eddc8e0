"""The tool of the story, for the official client: its definition, and the results of its calls."""

from __future__ import annotations

from typing import Any

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "Return the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def outputs_of(response: Any) -> list[Any]:
    """Return the results of the calls of a parsed response."""
    return [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": f"Rain in {call.parsed_arguments['city']}.",
        }
        for call in response.output
        if call.type == "function_call"
    ]
