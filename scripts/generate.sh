#!/bin/bash
# generate.sh writes again what generators make and the repository keeps: parts of pages and the
# picture in docs, the vectors' index and the deep copies of the custom resources. lint.sh fails
# where that changes a file.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/.."

go run -C tools ./pages ..
go run -C test ./vectors/generate -index ..
cd kube
go tool -modfile=../tools/go.mod controller-gen object paths=./api/v1alpha1
