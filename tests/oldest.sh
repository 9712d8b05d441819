#!/usr/bin/env bash
# Run the test suite on the oldest transformers that logitkit supports.
#
#   tests/oldest.sh [FOLDER [PYTEST_ARGUMENT...]]
#
# FOLDER gets a virtual environment and keeps it for the next run; without one, a temporary folder
# is used and removed. PYTHON names the interpreter (default python3, 3.11 or newer).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
folder="${1:-}"
shift || true
if [[ -z "$folder" ]]; then
    folder="$(mktemp -d)"
    trap 'rm -rf "$folder"' EXIT
fi

"${PYTHON:-python3}" -m venv "$folder"
python="$(cd "$folder" && pwd)/bin/python"
"$python" -m pip install --quiet "torch==2.13.0" "transformers==5.14.*" --editable "$root[demo,test]"

cd "$root"
"$python" -c 'import torch, transformers; print("transformers", transformers.__version__, "torch", torch.__version__)'
"$python" -m pytest "$@"
