#!/bin/bash
# release.sh VERSION FOLDER makes what a release gives to others, for each architecture in ARCHES
# (by default this machine's):
#
#   nodeattest-VERSION-linux-ARCH.tar.gz  the programs of module kube, the files for nodes, LICENSE,
#                                         the licences of what is in the programs, and their bill
#                                         of materials (CycloneDX)
#   nodeattest-ARCH.tar                   the image (image.sh), and one name for those of all
#   nodeattest-image.tar                  architectures, an OCI archive
#   SHA256SUMS                            of all that
#
# Clean clones of one commit give the same bytes.
set -euo pipefail
export GOWORK=off
version=$1
mkdir -p "$2"
to=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

images=()
for arch in ${ARCHES:-$(go env GOARCH)}; do
	name=nodeattest-$version-linux-$arch
	folder=$work/$name
	mkdir -p "$folder/node"
	(cd kube && CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -ldflags -w -o "$folder/" ./cmd/...)
	programs=()
	for program in kube/cmd/*/; do programs+=("$folder/$(basename "$program")"); done
	grep -q '^replace' kube/go.mod || scripts/advisory.sh "${programs[@]}"
	(cd tools/image && go run ./notices -o "$folder" "${programs[@]}")
	cp LICENSE "$folder"
	cp kube/deploy/node/* "$folder/node"
	chmod -R u=rwX,go=rX "$folder"
	tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -c "$name" | gzip -n >"$to/$name.tar.gz"
	IMAGE_DIR=$to GOARCH=$arch scripts/image.sh "nodeattest:$version"
	images+=("$to/nodeattest-$arch.tar")
done
(cd tools/image && go run . -index -o "$to/nodeattest-image.tar" -tag "nodeattest:$version" "${images[@]}")
cd "$to"
sha256sum -- *.tar *.tar.gz >SHA256SUMS
