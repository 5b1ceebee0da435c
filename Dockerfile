# seu-bench in a container, for processors and NVIDIA GPUs (docs/guides/containers.md):
#   docker build -t seu-bench .
#   docker run --rm -v "$PWD/results:/bench/results" seu-bench run --benchmark split_digits --protocol smoke
# torch of the Python package index has CUDA's libraries; an image of a third of the size, for processors alone:
#   docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu -t seu-bench:cpu .
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
RUN pip install --no-cache-dir build==1.3.0
COPY . /source
RUN python -m build --wheel --outdir /wheels /source

FROM python:${PYTHON}-slim
ARG TORCH_INDEX=https://pypi.org/simple
# quadprog has no wheel for every Python, and torch.compile wants a compiler as well.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 seu-bench \
    && install --directory --owner=seu-bench /bench /images
RUN pip install --no-cache-dir "torch>=2.6" "torchvision>=0.21" --index-url "${TORCH_INDEX}"
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl
USER 1000
WORKDIR /bench
ENV SEU_BENCH_DATA=/images
ENTRYPOINT ["seu-bench"]
CMD ["--help"]
