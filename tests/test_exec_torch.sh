#!/bin/sh
# Training beside PyTorch's, where a Python has it: $ESP_TORCH_PYTHON, or python3.
set -u
python=${ESP_TORCH_PYTHON:-python3}
if ! "$python" -c "import torch, onnx" 2>/dev/null; then
    echo "skipped: $python has no torch and onnx (ESP_TORCH_PYTHON names one that has)"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$python" "$ESP_SOURCE_DIR/tests/torch_compare.py" "$ESP_CLI" "$dir"
