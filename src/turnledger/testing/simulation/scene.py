"""The scene: what all clients of one schedule share."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from turnledger.testing.simulation.clients.names import Names
from turnledger.testing.simulation.servers import Servers
from turnledger.testing.simulation.world import World


@dataclass(frozen=True)
class Scene:
    """The dice, the log of what happens, the conversations there are, and who serves them."""

    random: Random
    world: World
    names: Names
    servers: Servers
