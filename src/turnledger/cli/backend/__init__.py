"""Where commands find chats: in a store or at a server."""
