#!/bin/bash
# release.sh VERSION FOLDER makes what a release gives to others, for each architecture in ARCHES
# (by default this machine's):
#
#   nodeattest-VERSION-linux-ARCH.tar.gz  the programs of module kube, the files for nodes, the signer of
#                                         service-account tokens with its files (external-signer), LICENSE,
#                                         the licences of what is in the programs, and their bill
#                                         of materials (CycloneDX)
#   kubelet-authenticator-VERSION-ARCH.deb  the kubelet-authenticator as a Debian package
#   install-observe.yaml                  kube/deploy for kubectl apply, and with its component
#   install-enforce.yaml                  enforce
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
	mkdir -p "$folder/node" "$folder/external-signer"
	programs=()
	for module in kube externalsigner; do
		(cd "$module" && CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -ldflags -w -o "$folder/" ./cmd/...)
		own=()
		for program in "$module"/cmd/*/; do own+=("$folder/$(basename "$program")"); done
		grep -q '^replace' "$module/go.mod" || scripts/advisory.sh "${own[@]}"
		programs+=("${own[@]}")
	done
	(cd tools/image && go run ./notices -o "$folder" "${programs[@]}")
	cp LICENSE "$folder"
	cp kube/deploy/node/* "$folder/node"
	cp externalsigner/deploy/* "$folder/external-signer"
	chmod -R u=rwX,go=rX "$folder"
	tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=gnu -c "$name" | gzip -n >"$to/$name.tar.gz"
	go run -C tools ./deb -o "$to/kubelet-authenticator-$version-$arch.deb" -version "$version" -arch "$arch" "$folder"
	IMAGE_DIR=$to GOARCH=$arch scripts/image.sh "nodeattest:$version"
	images+=("$to/nodeattest-$arch.tar")
done
(cd tools/image && go run . -index -o "$to/nodeattest-image.tar" -tag "nodeattest:$version" "${images[@]}")
go run -C tools/install . "$PWD/kube/deploy" >"$to/install-observe.yaml"
go run -C tools/install . -component enforce "$PWD/kube/deploy" >"$to/install-enforce.yaml"
cd "$to"
sha256sum -- *.deb *.tar *.tar.gz *.yaml >SHA256SUMS
