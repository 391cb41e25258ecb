#!/usr/bin/env bash
# PyPI's torch 2.13.0 for Linux x86-64 (CUDA 13) on a machine without a GPU or a driver: `import torch` and a product on the CPU fail
# unless cuFile, cuSPARSELt, NVSHMEM, NCCL and CUPTI are installed, which no CPU uses, and need neither Triton, cuSOLVER, NVTX nor
# cuda-bindings, which torch requires. The dynamic linker decides: libtorch_cuda.so names its libraries, and only
# libtorch_cuda_linalg.so, which is opened at the first solver on a GPU, names cuSOLVER. About 2.6 GB to fetch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -qq --no-deps --no-compile --no-cache-dir --disable-pip-version-check torch==2.13.0 \
  filelock==3.20.0 typing-extensions==4.15.0 setuptools==80.9.0 sympy==1.14.0 mpmath==1.3.0 networkx==3.5 jinja2==3.1.6 \
  markupsafe==3.0.3 fsspec==2025.9.0 numpy==2.3.5 nvidia-cublas==13.1.1.3 nvidia-cuda-cupti==13.0.85 nvidia-cuda-nvrtc==13.0.88 \
  nvidia-cuda-runtime==13.0.96 nvidia-cudnn-cu13==9.20.0.48 nvidia-cufft==12.0.0.61 nvidia-cufile==1.15.1.6 \
  nvidia-curand==10.4.0.35 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.29.7 \
  nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5
CUDA_VISIBLE_DEVICES='' "$python" - << 'END'
import subprocess
import sys
from importlib.metadata import distributions

TRY = "import torch; assert not torch.cuda.is_available(); assert (torch.eye(3) @ torch.ones(3)).sum() == 3; torch.linalg.solve(torch.eye(3), torch.ones(3, 1))"


def works():
    return subprocess.run([sys.executable, "-c", TRY], capture_output=True).returncode == 0


assert works(), "without Triton, cuSOLVER, NVTX and cuda-bindings"
print("torch 2.13.0 imports and solves on the CPU without Triton, cuSOLVER, NVTX and cuda-bindings")
needed, spare = [], []
for package in sorted(distributions(), key=lambda one: one.name):
    if not package.name.startswith("nvidia"):
        continue
    libraries = [path for path in map(package.locate_file, package.files) if ".so" in path.name]
    for path in libraries:
        path.rename(f"{path}.hidden")
    (spare if works() else needed).append(package.name)
    for path in libraries:
        type(path)(f"{path}.hidden").rename(path)
print("import fails without:", *needed)
print("import works without:", *spare)
assert {"nvidia-cufile", "nvidia-cusparselt-cu13", "nvidia-nvshmem-cu13", "nvidia-nccl-cu13", "nvidia-cuda-cupti"} <= set(needed)
END
