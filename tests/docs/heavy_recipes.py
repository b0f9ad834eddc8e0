"""Recipes whose packages `make setup` does not install. `make compat` runs them. Alone:

    python -m tests.docs.heavy_recipes langgraph --python PYTHON             langgraph, langchain-openai
    python -m tests.docs.heavy_recipes jupyter --python PYTHON               ipykernel, apsw, msgspec
    python -m tests.docs.heavy_recipes vercel-ai-sdk --node-modules FOLDER   ai, @ai-sdk/openai-compatible

Each runs the commands of its page against a real server or kernel, and compares what they print.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.recipe import FILE, ROOT, Recipe
from tests.unit.server.processes import started

TURNLEDGER = "http://127.0.0.1:8383"
SERVE = ("turnledger", "serve", "--port", "0", "--store", "memory:")
OUTPUT = re.compile(r"```text\n(.*?)```", re.DOTALL)


def check_langgraph(folder: Path, options: argparse.Namespace) -> None:
    with started(*SERVE) as server:
        recipe = Recipe("langgraph", folder, {TURNLEDGER: server.url}, options.python)
        assert recipe.check() == 1


def check_vercel_ai_sdk(folder: Path, options: argparse.Namespace) -> None:
    (folder / "node_modules").symlink_to(options.node_modules.resolve())
    with started(*SERVE) as server:
        assert Recipe("vercel-ai-sdk", folder, {TURNLEDGER: server.url}).check() == 1


IN_KERNEL = """
import json, sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3", cwd=".")
printed = []
for path in sys.argv[1:]:
    said, code = "", open(path).read()
    request = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "stream":
            said += message["content"]["text"]
            if "/stall" in code and said.endswith(" said"):
                manager.interrupt_kernel()
        elif message["msg_type"] == "error" and message["content"]["ename"] != "KeyboardInterrupt":
            raise SystemExit("\\n".join(message["content"]["traceback"]))
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    printed.append(said)
client.stop_channels()
manager.shutdown_kernel()
print(json.dumps(printed))
"""


def check_jupyter(folder: Path, options: argparse.Namespace) -> None:
    """Run the cells in a kernel, and interrupt the one that waits."""
    recipe = Recipe("jupyter", folder, {})
    recipe.write()
    cells = [name for name, _ in FILE.findall(recipe.page)]
    done = subprocess.run(
        [options.python, "-c", IN_KERNEL, *cells],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = [text.strip() for text in OUTPUT.findall(recipe.page)]
    assert [text.strip() for text in json.loads(done.stdout)] == expected


CHECKS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "jupyter": check_jupyter,
    "langgraph": check_langgraph,
    "vercel-ai-sdk": check_vercel_ai_sdk,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=CHECKS)
    parser.add_argument("--python", help="an interpreter with the packages of the recipe")
    parser.add_argument("--node-modules", type=Path, help="a folder with the packages of the recipe")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        CHECKS[options.name](Path(folder), options)
    print(f"{options.name}: as its page says")


if __name__ == "__main__":
    main()
