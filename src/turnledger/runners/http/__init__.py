"""An HTTP/1.1 client for upstreams, on httptools. It takes a fifth less CPU per turn than aiohttp.

    address = address_of("https://api.example.com/v1")
    pool = Pool(address, tls_of(address), 100)
    connection = pool.take() or await pool.connect(10.0)
    response = connection.begin_request(request, limits, room=65536, is_streamed=True)
    await response.wait_for_head()
    while (piece := response.take()) is not None or not response.is_whole: ...
    response.release()

Modules:
- `dial` parses a URL, picks the proxy (HTTPS_PROXY, HTTP_PROXY, NO_PROXY, or a setting), and connects a
  socket to the address of a host that answers first.
- `pool` keeps free connections for 15 seconds, bounds their number, and serves waiters in order. It builds
  the head of a request, and sends single requests (`get`).
- `connection` writes a request, feeds the parser, and ends phases that take too long, with one timer for all.
- `response` buffers what has arrived until it is read, and decodes gzip.

Guarantees:
- A response reaches its own request. A connection is used again only if its socket has nothing to read;
  bytes without a request close it, and so does a response that is not read to its end.
- Memory is bounded: a head has at most 64 KiB, a slow reader holds up its connection, and a body is
  decompressed as it is read, never beyond the reader's limit.
- A truncated body is never taken for a complete one.
- A proxy's credentials are sent to the proxy only; no credentials appear in errors or logs.

Not supported: redirects, cookies, HTTP/2, compression other than gzip, proxies over TLS or SOCKS.
"""
