# `cala serve` with its weights inside. It needs no root and may have a read-only root file system:
# everything that changes is in /models. docs/container.md says how to run it.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
COPY pyproject.toml README.md LICENSE NOTICE /cala/
COPY src /cala/src
# Only what runs is compiled, by running it once after the tests of other packages are gone.
# The service has no use for scikit-learn, which is for CalaClassifier.
RUN python -m venv --without-pip /opt/cala \
 && pip --python /opt/cala/bin/python install --no-cache-dir --no-compile '/cala[serve]' \
 && pip --python /opt/cala/bin/python uninstall --yes --quiet scikit-learn joblib narwhals \
 && find /opt/cala -depth -type d -name tests -exec rm -r {} +
COPY container/warm.py /cala/
RUN /opt/cala/bin/python /cala/warm.py

FROM python:${PYTHON}-slim
COPY --from=build /opt/cala /opt/cala
RUN useradd --uid 1000 --no-create-home cala && install -d -o cala -g cala /models
ENV PATH=/opt/cala/bin:$PATH PYTHONDONTWRITEBYTECODE=1 \
    CALA_CACHE=/models/.cache CALA_CONFIG=/models/.config
USER 1000:1000
WORKDIR /models
VOLUME /models
EXPOSE 8000
HEALTHCHECK --start-period=10s CMD \
    ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
ENTRYPOINT ["cala"]
CMD ["serve", "/models/model", "--host", "0.0.0.0"]
