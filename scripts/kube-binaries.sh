#!/bin/bash
# kube-binaries.sh builds what the tests of the test modules run (kube-apiserver,
# kube-controller-manager, kubeadm, kubectl, kubelet and etcd) from the module proxy, in the versions
# that test/kubernetes/go.mod requires. It prints the folder. What is built already is
# not built again; on an empty cache two cores need several minutes, and 4 GB of disk.
#
# The folder is $NODEATTEST_KUBE_BIN, or one named after the versions below the
# user's cache folder.
set -euo pipefail
cd "$(dirname "$0")/../test/kubernetes"

required() { awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2; exit }' go.mod; }
kubernetes=$(required k8s.io/kubernetes)
etcd=$(required go.etcd.io/etcd/server/v3)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nodeattest
dir=${NODEATTEST_KUBE_BIN:-$cache/kubernetes-$kubernetes-etcd-$etcd}

# build NAME PACKAGE LDFLAGS builds one program and moves it to its place in one
# step, so that a build which is interrupted leaves none that looks finished.
build() {
	local name=$1 package=$2 flags=$3 start=$SECONDS
	if [ -x "$dir/$name" ]; then
		echo "kube-binaries: $name is there" >&2
		return
	fi
	echo "kube-binaries: building $name" >&2
	CGO_ENABLED=0 go build -ldflags "$flags" -o "$work/$name" "$package"
	mv "$work/$name" "$dir/$name"
	echo "kube-binaries: built $name in $((SECONDS - start)) s" >&2
}

mkdir -p "$dir"
work=$(mktemp -d "$dir/build.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The release is told to the linker, as Kubernetes' own build does.
version=k8s.io/component-base/version
minor=${kubernetes#v*.}
build etcd go.etcd.io/etcd/server/v3 '-s -w'
release="-s -w -X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}"
for program in kube-apiserver kube-controller-manager kubeadm kubectl kubelet; do
	build "$program" "k8s.io/kubernetes/cmd/$program" "$release"
done
echo "$dir"
