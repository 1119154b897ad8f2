#!/bin/bash
# kube-binaries.sh builds what the tests of the test modules run (kube-apiserver,
# kube-controller-manager, kubeadm, kubectl, kubelet and etcd) from the module proxy, in the versions
# that test/kubernetes/go.mod requires. It prints the folder. What is built already is
# not built again; on an empty cache two cores need several minutes, and 4 GB of disk.
#
# The folder is $NODEATTEST_KUBE_BIN, or one named after the versions below the
# user's cache folder.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/../test/kubernetes"

required() { awk -v module="$1" '$1 == module && $2 ~ /^v/ { print $2; exit }' go.mod; }
kubernetes=$(required k8s.io/kubernetes)
etcd=$(required go.etcd.io/etcd/server/v3)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nodeattest
dir=${NODEATTEST_KUBE_BIN:-$cache/kubernetes-$kubernetes-etcd-$etcd}

# What is missing is built by one command: the programs share most packages, and while one
# is linked others are compiled. Each is moved to its place in one step, so that a build
# which is interrupted leaves none that looks finished.
missing=()
packages=()
for program in etcd kube-apiserver kube-controller-manager kubeadm kubectl kubelet; do
	if [ -x "$dir/$program" ]; then
		echo "kube-binaries: $program is there" >&2
		continue
	fi
	missing+=("$program")
	case $program in
	etcd) packages+=(go.etcd.io/etcd/server/v3) ;;
	*) packages+=("k8s.io/kubernetes/cmd/$program") ;;
	esac
done

if [ "${#missing[@]}" -ne 0 ]; then
	echo "kube-binaries: building ${missing[*]}" >&2
	mkdir -p "$dir"
	work=$(mktemp -d "$dir/build.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	# The release is told to the linker, as Kubernetes' own build does.
	version=k8s.io/component-base/version
	minor=${kubernetes#v*.}
	release="-X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}"
	CGO_ENABLED=0 go build -ldflags "-s -w $release" -o "$work/" "${packages[@]}"
	[ ! -e "$work/server" ] || mv "$work/server" "$work/etcd"
	for program in "${missing[@]}"; do
		mv "$work/$program" "$dir/$program"
	done
	echo "kube-binaries: built in $SECONDS s" >&2
fi
echo "$dir"
