"""Run real clients and model servers, and note the results: `python -m tests.compat_real [NAME …]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.compat_real import open_webui, outages, responses, story
from tests.compat_real.environments import FOR_TESTS, HERE, node_modules, python_of, version_of
from tests.docs import heavy_recipes
from tools.reference.__main__ import main as write_reference
from tools.reference.compatibility import RESULTS

AIDER_EXERCISED = (
    "4 answers, streamed, 1 failure in a stream, 1 before an answer (retries for 2 s, not 60 s), 1 stop"
)
LITELLM_CONFIG = """
model_list:
  - model_name: tiny
    litellm_params:
      model: openai/tiny
      api_base: {api_base}
      api_key: none
"""


@dataclass(frozen=True)
class Client:
    title: str
    package: str
    environment: str
    script: str
    argument: str = ""
    kind: str = "client"
    exercised: str = story.EXERCISED

    @property
    def version(self) -> str:
        return version_of(self.package, self.environment)

    def run(self) -> str:
        return story.tell(self._command())

    def _command(self) -> list[str | Path]:
        return [*self._program(), *([self.argument] if self.argument else [])]

    def _program(self) -> list[str | Path]:
        script = HERE / "clients" / self.script
        if self.environment != "node":
            return [python_of(self.environment), script]
        # Node looks for packages beside the script, wherever it is started.
        folder = node_modules().parent
        for each in (script, script.with_name("dialogue.mjs")):
            (folder / each.name).write_text(each.read_text())
        return ["node", folder / script.name]


@dataclass(frozen=True)
class ResponsesClient(Client):
    kind: str = "client of responses"
    exercised: str = responses.EXERCISED

    def run(self) -> str:
        return responses.tell(self._command())


CHAINED = f"{responses.EXERCISED} (cancelled); streamed again from its middle, lists in pages"
CONVERSED = f"{responses.EXERCISED}; parsed; conversations and items created, read in pages, changed, deleted"


@dataclass(frozen=True)
class Server:
    title: str
    package: str
    environment: str
    command: Callable[[ExitStack, Path], outages.Command]
    refuses_length: bool = True
    kind: str = "model server"

    @property
    def exercised(self) -> str:
        return outages.LENGTH_EXERCISED if self.refuses_length else outages.EXERCISED

    @property
    def version(self) -> str:
        return version_of(self.package, self.environment)

    def run(self) -> str:
        with TemporaryDirectory() as folder, ExitStack() as behind:
            command = self.command(behind, Path(folder))
            return outages.tell(command, Path(folder), refuses_length=self.refuses_length)


@dataclass(frozen=True)
class Page:
    """A recipe of the documentation, run as its reader does."""

    title: str
    package: str
    environment: str
    name: str
    kind: str = "recipe"
    exercised: str = "the commands of its page, and what they print"

    @property
    def version(self) -> str:
        return version_of(self.package, self.environment)

    def run(self) -> str:
        is_node = self.environment == "node"
        packages = (
            {"node_modules": node_modules()} if is_node else {"python": str(python_of(self.environment))}
        )
        with TemporaryDirectory() as folder:
            heavy_recipes.CHECKS[self.name](Path(folder), argparse.Namespace(**packages))
        return "passes"


@dataclass(frozen=True)
class OpenWebUI:
    title: str = "Open WebUI, as in its [recipe](../recipes/open-webui.md)"
    kind: str = "client"
    exercised: str = open_webui.EXERCISED
    version: str = version_of("open-webui", "open-webui")

    def run(self) -> str:
        return open_webui.tell()


def _llama_cpp(behind: ExitStack, folder: Path) -> outages.Command:
    return outages.llama_cpp(folder)


def _transformers(behind: ExitStack, folder: Path) -> outages.Command:
    return lambda port: [
        python_of("transformers"),
        HERE / "servers" / "transformers_serve.py",
        str(port),
        folder,
    ]


def _litellm_proxy(behind: ExitStack, folder: Path) -> outages.Command:
    """In front of llama.cpp's server."""
    model = behind.enter_context(outages.running(outages.llama_cpp(folder), folder))
    config = folder / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(api_base=model.url))
    program = python_of("litellm").with_name("litellm")
    return lambda port: [program, "--config", config, "--host", "127.0.0.1", "--port", str(port)]


HEAVY = "open-webui"
PARTIES: dict[str, Client | Server | Page | OpenWebUI] = {
    "openai-python": Client("openai (Python)", "openai", "frameworks", "openai_python.py"),
    "openai-node": Client("openai (Node)", "openai", "node", "openai_node.mjs"),
    "ai-sdk-compatible": Client(
        "Vercel AI SDK, openai-compatible", "@ai-sdk/openai-compatible", "node", "ai_sdk.mjs", "compatible"
    ),
    "ai-sdk-openai": Client(
        "Vercel AI SDK, openai's `.chat()`", "@ai-sdk/openai", "node", "ai_sdk.mjs", "openai"
    ),
    "langchain": Client("LangChain's ChatOpenAI", "langchain-openai", "frameworks", "langchain_chat.py"),
    "langgraph": Client("LangGraph with a checkpointer", "langgraph", "frameworks", "langgraph_thread.py"),
    "openai-agents": Client("openai-agents, its sessions", "openai-agents", "frameworks", "openai_agents.py"),
    "pydantic-ai": Client("pydantic-ai", "pydantic-ai-slim", "frameworks", "pydantic_agent.py"),
    "llm": Client("llm", "llm", "frameworks", "llm_conversation.py"),
    "litellm": Client("LiteLLM's SDK", "litellm", "litellm", "litellm_sdk.py"),
    "aider": Client(
        "aider, with `X-Turn-On-Busy: interrupt`",
        "aider-chat",
        "aider",
        "aider_coder.py",
        exercised=AIDER_EXERCISED,
    ),
    "aider-ask": Client(
        "aider in `/ask`, with `X-Turn-On-Busy: interrupt`",
        "aider-chat",
        "aider",
        "aider_coder.py",
        "ask",
        exercised=AIDER_EXERCISED,
    ),
    HEAVY: OpenWebUI(),
    "openai-responses": ResponsesClient(
        "openai (Python), asynchronous, `previous_response_id`",
        "openai",
        "frameworks",
        "openai_responses.py",
        exercised=f"{CHAINED}, parsed",
    ),
    "openai-2-responses": ResponsesClient(
        "openai (Python) 2, asynchronous, `previous_response_id`",
        "openai",
        "openai-2",
        "openai_responses.py",
        exercised=f"{CHAINED}, parsed",
    ),
    "openai-conversation": ResponsesClient(
        "openai (Python), synchronous, `conversation`",
        "openai",
        "frameworks",
        "openai_conversation.py",
        exercised=CONVERSED,
    ),
    "openai-2-conversation": ResponsesClient(
        "openai (Python) 2, synchronous, `conversation`",
        "openai",
        "openai-2",
        "openai_conversation.py",
        exercised=CONVERSED,
    ),
    "openai-node-responses": ResponsesClient(
        "openai (Node), `previous_response_id`",
        "openai",
        "node",
        "openai_node_responses.mjs",
        exercised=CHAINED,
    ),
    "openai-node-conversation": ResponsesClient(
        "openai (Node), `conversation`",
        "openai",
        "node",
        "openai_node_responses.mjs",
        "conversation",
        exercised=CHAINED,
    ),
    "openai-agents-responses": ResponsesClient(
        "openai-agents, `previous_response_id`",
        "openai-agents",
        "frameworks",
        "openai_agents_responses.py",
        "previous",
    ),
    "openai-agents-conversation": ResponsesClient(
        "openai-agents, `conversation_id`",
        "openai-agents",
        "frameworks",
        "openai_agents_responses.py",
        "conversation",
    ),
    "openai-agents-session": ResponsesClient(
        "openai-agents, its OpenAIConversationsSession",
        "openai-agents",
        "frameworks",
        "openai_agents_responses.py",
        "session",
    ),
    "langchain-responses": ResponsesClient(
        "LangChain's ChatOpenAI, `use_previous_response_id`",
        "langchain-openai",
        "frameworks",
        "langchain_responses.py",
    ),
    "pydantic-ai-responses": ResponsesClient(
        "pydantic-ai, `openai_previous_response_id`",
        "pydantic-ai-slim",
        "frameworks",
        "pydantic_responses.py",
        "openai_previous_response_id",
    ),
    "pydantic-ai-conversation": ResponsesClient(
        "pydantic-ai, `openai_conversation_id`",
        "pydantic-ai-slim",
        "frameworks",
        "pydantic_responses.py",
        "openai_conversation_id",
    ),
    "ai-sdk-responses": ResponsesClient(
        "Vercel AI SDK, its default model, with `item_reference`s",
        "@ai-sdk/openai",
        "node",
        "ai_sdk_responses.mjs",
    ),
    "ai-sdk-conversation": ResponsesClient(
        "Vercel AI SDK, its default model, `conversation`",
        "@ai-sdk/openai",
        "node",
        "ai_sdk_responses.mjs",
        "conversation",
    ),
    "llama.cpp": Server("llama.cpp's server, from xllamacpp", "xllamacpp", FOR_TESTS, _llama_cpp),
    "litellm-proxy": Server("LiteLLM's proxy, in front of llama.cpp", "litellm", "litellm", _litellm_proxy),
    "transformers": Server(
        "`transformers serve`", "transformers", "transformers", _transformers, refuses_length=False
    ),
    "jupyter-recipe": Page("[Jupyter](../recipes/jupyter.md)", "ipykernel", "jupyter", "jupyter"),
    "langgraph-recipe": Page("[LangGraph](../recipes/langgraph.md)", "langgraph", "frameworks", "langgraph"),
    "ai-sdk-recipe": Page("[Vercel AI SDK](../recipes/vercel-ai-sdk.md)", "ai", "node", "vercel-ai-sdk"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat_real", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PARTIES))
    parser.add_argument(f"--{HEAVY}", action="store_true", help="run it, too: it installs 2.4 GB")
    given = parser.parse_args()
    names = given.names or [name for name in PARTIES if name != HEAVY]
    if given.open_webui and HEAVY not in names:
        names.append(HEAVY)
    if unknown := set(names) - set(PARTIES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Known: {', '.join(PARTIES)}.")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    has_passed = [_run(name, results) for name in names]
    ordered = {name: results[name] for name in PARTIES if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=2, ensure_ascii=False) + "\n")
    write_reference([])
    print(f"{sum(has_passed)} passed, {len(has_passed) - sum(has_passed)} failed")
    return 0 if all(has_passed) else 1


def _run(name: str, results: dict[str, dict[str, str]]) -> bool:
    """Run one, and note its result."""
    party, started = PARTIES[name], time.monotonic()
    try:
        found = party.run()
    except (Exception, pytest.skip.Exception, pytest.fail.Exception):  # the latter without a browser
        traceback.print_exc()
        found = ""
    fields = ("kind", "title", "version", "exercised")
    results[name] = {**{field: getattr(party, field) for field in fields}, "result": found or "fails"}
    print(f"{name} {party.version}: {found or 'FAILS'} ({time.monotonic() - started:.0f} s)", flush=True)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
