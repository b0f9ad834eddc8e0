"""kill -9 of programs that send: `python -m tests.clients.outbox_storm --kills 100 --seed 7`.

Two programs with one outbox send numbered messages in two chats each. Each is killed at moments chosen by the
seed and restarted: it sends the messages left over and goes on. At the end every recorded message is in its
chat once, in order.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random

from tests.crash.killed_server import environment
from tests.fork_server import ForkedProcess
from tests.unit.server.processes import started
from turnledger.client import Answer, Client, Outbox

PROGRAMS, LANES = 2, 2
SERVE = ("turnledger", "serve", "--port", "0", "--log-level", "warning", "--store")


def lanes_of(program: int) -> list[str]:
    return [f"lane-{program}{number}" for number in range(LANES)]


def client_of(url: str, folder: Path, program: int) -> Client:
    outbox = Outbox(path=folder / "unsent.db", sender=f"program {program}")
    return Client(url, model="demo", outbox=outbox)


def numbers_in(path: Path) -> list[int]:
    """Read the messages that a program was about to send; an incomplete line does not count."""
    text = path.read_text() if path.exists() else ""
    return [int(line) for line in text.split("\n")[:-1]]


def send_for_ever(url: str, folder: Path, program: int) -> None:
    """Send messages until killed; print each answer."""
    client = client_of(url, folder, program)
    for unsent, answer in client.outbox.send_all():
        assert isinstance(answer, Answer), (unsent, answer)

    def talk(lane: str) -> None:
        chat, journal = client.chats.open(conversation_key=lane), folder / lane
        number = max(numbers_in(journal), default=0)
        with journal.open("a") as intended:
            while True:
                number += 1
                intended.write(f"{number}\n")
                intended.flush()
                chat.send(f"{lane} {number}")
                os.write(1, b".")

    for lane in lanes_of(program):
        threading.Thread(target=talk, args=(lane,)).start()


class Storm:
    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self._url, self._folder, self._random = url, folder, Random(seed)
        self._recorded: set[str] = set()
        """Messages left over by killed programs."""

    def kill_one(self, program: int) -> None:
        """Start a program and kill it after some answers, or shortly later."""
        options = ("--send", self._url, "--folder", str(self._folder), "--program", str(program))
        env = environment(self._folder)
        with ForkedProcess("tests.clients.outbox_storm", *options, env=env) as process:
            for _ in range(self._random.randrange(1, 8)):
                assert process.stdout.read(1) == "."
            process.send_signal(signal.SIGKILL)
        with client_of(self._url, self._folder, program) as client:
            self._recorded |= {each.fields["input"] for each in client.outbox.pending()}

    def run(self, kills: int) -> None:
        """Kill the programs this often, concurrently."""

        def keep_killing(program: int) -> None:
            try:
                for _ in range(kills):
                    self.kill_one(program)
            except BaseException as problem:
                problems.append(problem)

        problems: list[BaseException] = []
        threads = [threading.Thread(target=keep_killing, args=(each,)) for each in range(PROGRAMS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]

    def check(self) -> tuple[int, int]:
        """Send the remaining messages and check all; return the number of messages, and of those left over by
        killed programs."""
        there: list[str] = []
        for program in range(PROGRAMS):
            with client_of(self._url, self._folder, program) as client:
                for unsent, answer in client.outbox.send_all():
                    assert isinstance(answer, Answer), (unsent, answer)
                assert client.outbox.pending() == []
                for lane in lanes_of(program):
                    turns = list(client.chats.open(conversation_key=lane).turns())
                    questions = [turn.input[0].text for turn in reversed(turns)]
                    numbers = [int(each.removeprefix(f"{lane} ")) for each in questions]
                    assert numbers == sorted(set(numbers)), f"{lane}: {numbers}"
                    assert set(numbers) <= set(numbers_in(self._folder / lane))
                    there += questions
        lost = self._recorded - set(there)
        assert not lost, f"recorded, and never sent: {sorted(lost)}"
        return len(there), len(self._recorded)


def storm(kills: int, seed: int) -> tuple[int, int]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(started(*SERVE, f"sqlite:///{folder / 'chats.db'}"))
        blown = Storm(server.url, folder, seed)
        blown.run(kills)
        return blown.check()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--send", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--program", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        send_for_ever(given.send, given.folder, given.program)
        return
    messages, left = storm(given.kills, given.seed)
    print(
        f"{messages} messages, each once and in order; {left} were left behind and sent by the next program"
    )


if __name__ == "__main__":
    main()
