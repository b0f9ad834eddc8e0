"""A client for HTTP/1.1, as lean as asking upstreams needs it: no redirects, no cookies, no proxies."""
