#!/bin/bash
# image.sh [NAME:TAG] makes a container image of module kube's programs that run in a
# cluster, without a daemon or a registry, for $GOARCH or this machine's. It prints the path
# of the archive, which docker load, podman load and ctr -n k8s.io images import read:
# $IMAGE_DIR/nodeattest-ARCH.tar, by default in a folder of the user's cache. Clean clones of
# one commit give the same bytes wherever they are; the programs record the commit. The programs
# believe Mozilla's CAs and those in the PEM file that IMAGE_ROOTS names. Where no folder
# replaces our modules, as on the commit of a release, advisories on them must be found: the
# programs keep their symbols (no -s), without which govulncheck sees no package in them.
set -euo pipefail
export GOWORK=off
roots=()
[ -z "${IMAGE_ROOTS:-}" ] || roots=(-roots "$(realpath "$IMAGE_ROOTS")")
cd "$(dirname "$0")/.."

tag=${1:-nodeattest:dev}
arch=${GOARCH:-$(go env GOARCH)}
dir=${IMAGE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/nodeattest/image}
mkdir -p "$dir"
work=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$work"' EXIT

programs=()
for program in node-attestation-controller node-attestation-signer bootstrap-controller; do
	[ -d "kube/cmd/$program" ] || continue
	(cd kube && CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -ldflags -w -o "$work/$program" "./cmd/$program")
	programs+=("$work/$program")
done
grep -q '^replace' kube/go.mod || scripts/advisory.sh "${programs[@]}"
(cd tools/image && GOARCH='' go run ./notices -o "$work/licenses" "${programs[@]}")
cp LICENSE "$work/licenses"
(cd tools/image && GOARCH='' go run . -o "$work/image.tar" -tag "$tag" -arch "$arch" -licenses "$work/licenses" "${roots[@]}" "${programs[@]}")
mv "$work/image.tar" "$dir/nodeattest-$arch.tar"
echo "$dir/nodeattest-$arch.tar"
