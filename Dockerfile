# The server with its page, as a user without rights. docs/operating.md explains it.
FROM node:22-bookworm-slim AS node

FROM python:3.13-slim-bookworm AS build
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && pip install --no-cache-dir uv==0.13.7
WORKDIR /source
# The packages before the sources: their layer changes only with the lock files.
COPY requirements-server.lock requirements-dev.lock ./
RUN python -m venv --without-pip /opt/turnledger \
    && uv pip install --no-cache --python /opt/turnledger/bin/python --require-hashes --requirements requirements-server.lock
COPY . .
RUN uv pip install --no-cache --python /opt/turnledger/bin/python --no-deps --build-constraints requirements-dev.lock .

FROM python:3.13-slim-bookworm
RUN useradd --system --uid 10001 --user-group --no-create-home turnledger \
    && install --directory --owner=turnledger --group=turnledger --mode=700 /var/lib/turnledger
COPY --from=build /opt/turnledger /opt/turnledger
# So each command finds /var/lib/turnledger/chats.db and /etc/turnledger/turnledger.toml without flags.
ENV PATH=/opt/turnledger/bin:$PATH XDG_DATA_HOME=/var/lib XDG_CONFIG_HOME=/etc
USER 10001:10001
VOLUME /var/lib/turnledger
EXPOSE 8383
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8383/readyz', timeout=4)"]
ENTRYPOINT ["turnledger"]
CMD ["serve", "--host", "0.0.0.0"]
