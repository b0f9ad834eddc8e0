"""aider in its default mode, or in the mode given, with a file in the chat. Ctrl-C stops it. It keeps what
arrived of a failed answer."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

from aider import models
from aider.coders import Coder, base_coder
from aider.io import InputOutput
from dialogue import BASE_URL, CONVERSATION, MODEL, run

os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_API_BASE": BASE_URL,
    "OPENAI_API_KEY": "none",
    "AIDER_ANALYTICS": "false",
}
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)
Path("app.py").write_text("print('Hello')\n")

models.RETRY_TIMEOUT = base_coder.RETRY_TIMEOUT = 2  # a minute otherwise
errors: list[str] = []


class Recorder(InputOutput):  # type: ignore[misc]
    def tool_error(self, message: Any = "", strip: bool = True) -> None:
        errors.append(str(message))


io = Recorder(yes=True, pretty=False, fancy_input=False)
model = models.Model(f"openai/{MODEL}")
# Its Ctrl-C leaves the connection open: the server cannot see that nobody reads the answer any more.
model.extra_params = {"extra_headers": {**CONVERSATION, "X-Turn-On-Busy": "interrupt"}}
mode = sys.argv[1] if len(sys.argv) > 1 else None
options = {"edit_format": mode, "fnames": ["app.py"], "use_git": False, "map_tokens": 0, "stream": True}
coder = Coder.create(main_model=model, io=io, **options)


async def ask(question: str) -> str:
    return "".join([piece async for piece in stream(question)])


async def stream(question: str) -> AsyncGenerator[str]:
    errors.clear()
    pieces = coder.run_stream(question)
    try:
        for piece in pieces:
            yield piece
    except GeneratorExit:
        with suppress(StopIteration):
            pieces.throw(KeyboardInterrupt)
        raise
    if errors:
        raise RuntimeError(errors[0])


run(ask, stream)
