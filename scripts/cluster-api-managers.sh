#!/bin/bash
# cluster-api-managers.sh builds the programs of Cluster API that the tests of test/kube run (the core and
# kubeadm bootstrap managers, and clusterctl) from the module proxy, in the version that
# test/clusterapi/go.mod requires. It prints the folder, in which crds has the resource definitions and
# webhooks of both managers. Programs that are there are not built again; on an empty cache two cores need
# several minutes.
#
# The folder is $NODEATTEST_CLUSTER_API_BIN, or one named after the version below the user's cache
# folder.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/../test/clusterapi"

version=$(awk '$2 == "sigs.k8s.io/cluster-api" { print $3; exit } $1 == "sigs.k8s.io/cluster-api" { print $2; exit }' go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nodeattest
dir=${NODEATTEST_CLUSTER_API_BIN:-$cache/cluster-api-$version}

missing=()
for part in core:core kubeadm:bootstrap/kubeadm clusterctl:cmd/clusterctl; do
	[ -x "$dir/${part%%:*}" ] || missing+=("sigs.k8s.io/cluster-api/${part#*:}")
done
if [ ${#missing[@]} = 0 ] && [ -d "$dir/crds" ]; then
	echo "cluster-api-managers: all are there" >&2
	echo "$dir"
	exit
fi
echo "cluster-api-managers: building ${missing[*]} $version" >&2
mkdir -p "$dir"
work=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ ${#missing[@]} -gt 0 ]; then
	CGO_ENABLED=0 go build -ldflags "-s -w -X sigs.k8s.io/cluster-api/version.gitVersion=$version" -o "$work/" "${missing[@]}"
	mv "$work"/* "$dir/"
fi
source=$(go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)
for part in core bootstrap/kubeadm; do
	mkdir -p "$work/crds/$part"
	cp "$source/$part"/config/crd/bases/*.yaml "$source/$part/config/webhook/manifests.yaml" "$work/crds/$part/"
done
chmod -R u+w "$work/crds"
rm -rf "$dir/crds"
mv "$work/crds" "$dir/"
echo "cluster-api-managers: built in $SECONDS s" >&2
echo "$dir"
