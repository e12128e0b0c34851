# sao on the processor, as a command:
#   docker build -t sao .
#   docker run --rm --user "$(id -u)" --volume "$PWD:/work" sao train --data photos --out runs/photos
FROM python:3.11-slim
COPY pyproject.toml constraints.txt README.md LICENSE /sao/
COPY sao /sao/sao
# torch and torchvision both from the index of builds for the processor: torchvision from PyPI does not fit beside such a torch.
RUN pip install --no-cache-dir --constraint /sao/constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu "/sao[tables,heic,hub]"
RUN useradd --create-home sao && install --directory --owner sao /work
# Folders that any user may write: with --user the home folder belongs to somebody else.
ENV SAO_CACHE=/tmp/sao MPLCONFIGDIR=/tmp/matplotlib HF_HOME=/tmp/huggingface
USER sao
WORKDIR /work
ENTRYPOINT ["sao"]
CMD ["--help"]
