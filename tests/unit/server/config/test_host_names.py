"""Which names a list of hosts or origins may have."""

from turnledger.server.config.settings import is_host_name, is_origin


def test_names_and_origins_of_a_list() -> None:
    assert all(map(is_host_name, ["chat.example", "10.0.0.1", "[fd00::1]", "Chat.Example"]))
    assert not any(map(is_host_name, ["http://chat.example", "chat.example:80", "", "*", "a b"]))
    assert all(map(is_origin, ["http://localhost:3000", "https://chat.example", "app://page"]))
    assert not any(map(is_origin, ["null", "*", "localhost:3000", "http://a/", "http://a b", "http://A"]))
