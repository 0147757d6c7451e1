# groupcoord with Spark and Java: docker build --tag groupcoord:local .
FROM python:3.11-slim-bookworm

# Debian keeps only the newest version of a package, so no version is named.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*

COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY groupcoord_spark /src/groupcoord_spark
RUN pip install --no-cache-dir --constraint /src/constraints.txt '/src[spark,verify]' \
    && rm -rf /src \
    && useradd --create-home --uid 10001 groupcoord \
    && mkdir /data \
    && chown groupcoord /data \
    && groupcoord warm-up --quiet

USER 10001
WORKDIR /data
VOLUME /data
ENTRYPOINT ["groupcoord"]
CMD ["--help"]
