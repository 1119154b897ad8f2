#!/bin/bash
# cross.sh builds without cgo: the SDK for every supported platform, the other modules
# for what their programs run on. Those of kube run on nodes and in the cluster, which are
# Linux; the kubectl plugin runs wherever kubectl does. What it builds is thrown away, so
# that the compiler need not optimize it, nor describe it to a debugger.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/.."

# build MODULE PACKAGES PLATFORM... builds packages of a module.
build() {
	local module=$1 packages=$2 platform
	shift 2
	[ -f "$module/go.mod" ] || return 0
	for platform in "$@"; do
		echo "in $module: CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go build $packages"
		(cd "$module" && CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} "${GO:-go}" build \
			-gcflags 'all=-N -l -dwarf=false' -ldflags '-s -w' -o /dev/null "$packages")
	done
}

build . ./... linux/amd64 linux/arm64 windows/amd64 darwin/arm64
build attest/tpm/goattestation ./... linux/amd64 windows/amd64 darwin/arm64
build vectors ./... windows/amd64
build kube ./... linux/arm64
build kube/boundtokens/grpc ./... linux/arm64
build externalsigner ./... linux/arm64 windows/amd64 darwin/arm64
build kube ./cmd/kubectl-nodeattest windows/amd64
