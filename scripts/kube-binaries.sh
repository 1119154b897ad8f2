#!/bin/bash
# kube-binaries.sh [RELEASE...] builds what the tests of the test modules run (kube-apiserver,
# kube-controller-manager, kube-scheduler, kubeadm, kubectl, kubelet and etcd) from the module
# proxy, for each RELEASE of Kubernetes (v1.37.2): without one, for $NODEATTEST_KUBE, and without
# that, for the release that test/kubernetes/go.mod requires. One of the go*.mod files of that
# folder requires each release. It prints the folders, a line each. What is built already is not
# built again; on an empty cache two cores need several minutes a release, and 4 GB of disk.
#
# Each folder is named after the versions, below the user's cache folder. Without RELEASE it is
# $NODEATTEST_KUBE_BIN, if that is set.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/../test/kubernetes"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/nodeattest
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

# required FILE MODULE prints the version of a module that a go.mod requires.
required() { awk -v module="$2" '$1 == module && $2 ~ /^v/ { print $2; exit }' "$1"; }

# file RELEASE prints the go.mod that requires it.
file() {
	local known=() other release
	for other in go.mod go[0-9]*.mod; do
		release=$(required "$other" k8s.io/kubernetes)
		if [ "$release" = "$1" ]; then
			echo "$other"
			return
		fi
		known+=("$release")
	done
	echo "kube-binaries: no go.mod of test/kubernetes requires Kubernetes $1: there are ${known[*]}" >&2
	return 1
}

# build RELEASE FILE FOLDER builds what is missing there by one command: the programs share most
# packages, and while one is linked others are compiled. Each is moved to its place in one step, so
# that a build which is interrupted leaves none that looks finished.
build() {
	local release=$1 file=$2 dir=$3 program start=$SECONDS missing=() packages=()
	for program in etcd kube-apiserver kube-controller-manager kube-scheduler kubeadm kubectl kubelet; do
		[ ! -x "$dir/$program" ] || continue
		missing+=("$program")
		case $program in
		etcd) packages+=(go.etcd.io/etcd/server/v3) ;;
		*) packages+=("k8s.io/kubernetes/cmd/$program") ;;
		esac
	done
	if [ "${#missing[@]}" -eq 0 ]; then
		echo "kube-binaries: $release is there" >&2
		return
	fi

	echo "kube-binaries: building ${missing[*]} of $release" >&2
	mkdir -p "$dir"
	work=$(mktemp -d "$dir/build.XXXXXX")
	# The release is told to the linker, as Kubernetes' own build does.
	local version=k8s.io/component-base/version minor=${release#v*.}
	CGO_ENABLED=0 go build -modfile="$file" -o "$work/" \
		-ldflags "-s -w -X $version.gitVersion=$release -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}" "${packages[@]}"
	[ ! -e "$work/server" ] || mv "$work/server" "$work/etcd"
	for program in "${missing[@]}"; do
		mv "$work/$program" "$dir/$program"
	done
	rm -rf "$work"
	work=
	echo "kube-binaries: $release built in $((SECONDS - start)) s" >&2
}

own=${NODEATTEST_KUBE_BIN:-}
if [ $# -eq 0 ]; then
	set -- "${NODEATTEST_KUBE:-$(required go.mod k8s.io/kubernetes)}"
else
	own=
fi
for release; do
	file "$release" >/dev/null
done
for release; do
	modfile=$(file "$release")
	dir=${own:-$cache/kubernetes-$release-etcd-$(required "$modfile" go.etcd.io/etcd/server/v3)}
	build "$release" "$modfile" "$dir"
	echo "$dir"
done
