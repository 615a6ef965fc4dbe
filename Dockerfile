# The manager's image. Two stages: the first builds wheels with what building needs, the second has Python and the
# result alone. `docker build --target …` is not needed: the last stage is the image.
#
# A tag may be moved: name what you have looked at, --build-arg BASE=python:3.11-slim@sha256:…
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /venv
# Dependencies first: they change seldom, and hashes make sure that they are the ones that were tested.
COPY requirements/runtime.lock requirements/
RUN /venv/bin/python -m pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/runtime.lock
COPY requirements/build.lock requirements/
RUN python -m pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY api api
COPY homelab_autoscaler homelab_autoscaler
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /venv/bin/python -m pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
 && /venv/bin/python -m pip uninstall --yes pip

FROM ${BASE}
# pip is of no use at run time, and what is not there cannot be misused.
RUN python -m pip uninstall --yes pip setuptools wheel 2>/dev/null || true
COPY --from=build /venv /venv
# A number, so that Kubernetes can check runAsNonRoot without looking into the image.
USER 65532:65532
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
EXPOSE 8080 8081 50051
ENTRYPOINT ["homelab-autoscaler"]
CMD ["manager"]
