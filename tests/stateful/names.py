"""The few names that the machines use, so that operations interact."""

from tests.unit.model.shapes import some_id
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TokenId, TurnId

OWNERS = ("ann", "ben")
CONVERSATIONS = tuple(some_id(ConversationId, number) for number in range(1, 8))
BRANCHES = tuple(some_id(BranchId, number) for number in range(1, 18))
"""The first are those of new conversations, in their order."""
TAGS = ("work", "été")
SCOPES = ("", "app")
CONVERSATION_KEYS = ("k", "né\x00 \U0001f600")
TURNS = tuple(some_id(TurnId, number) for number in range(1, 25))
LEASES = tuple(some_id(LeaseId, number) for number in range(1, 4))
IDEMPOTENCY_KEYS = ("once", "twice")
TOKENS = tuple(some_id(TokenId, number) for number in range(1, 7))
TIMES = (1_000, 2_000, 3_000, 4_000)
