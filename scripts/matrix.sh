#!/bin/bash
# matrix.sh [RELEASE[/KUBELET]...] runs the tests of live nodes on releases of Kubernetes (v1.37.2),
# with a kubelet of the same release or of another one (v1.37.2/v1.35.4), and prints a table of what
# passed. Without arguments it takes every release that test/kubernetes has a go.mod for, and the
# oldest kubelet under the newest control plane. It fails if a test of the table did not pass. As
# root, on two cores, a line of it takes six minutes, and the first time as much to build the release.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/.."
tests=(TestJoin TestKubelet TestApprovals TestObserve TestKubeadm)
[ $# -ne 0 ] || set -- v1.35.4 v1.36.3 v1.37.2 v1.37.2/v1.35.4

work=$(mktemp -d)
mapfile -t releases < <(printf '%s\n' "${@//\//$'\n'}" | sort -uV)
scripts/kube-binaries.sh "${releases[@]}" >/dev/null

# cell LOG TEST prints how the test ended.
cell() {
	local end
	end=$(grep -m 1 "^--- [A-Z]*: $2 " "$1") || end='--- FAIL: did not end'
	echo "$end" | sed 's/^--- PASS: .*(\(.*\))/ok \1/; s/^--- SKIP: .*/skipped/; s/^--- FAIL: .*/FAILED/'
}

run=$(IFS='|' && echo "^(${tests[*]})\$")
failed=
printf '%-10s %-10s' 'Kubernetes' 'kubelet' >"$work/table"
printf ' %-14s' "${tests[@]}" >>"$work/table"
echo >>"$work/table"
for pair; do
	release=${pair%/*} kubelet=${pair#*/}
	log=$work/${pair/\//-}
	echo "matrix: Kubernetes $release, kubelet $kubelet" >&2
	(cd test && NODEATTEST_KUBE=$release NODEATTEST_KUBELET=$kubelet go test -vet=off -count=1 -timeout 40m -v -run "$run" ./kube) >"$log" 2>&1 || true
	printf '%-10s %-10s' "$release" "$kubelet" >>"$work/table"
	# What ran is of these releases.
	ran=$(grep -o 'kube-apiserver v[0-9.]*\|by kubelet v[0-9.]*' "$log" | sort -u) || true
	if [ "$ran" != "by kubelet $kubelet"$'\n'"kube-apiserver $release" ]; then
		echo "matrix: $pair: ran with $ran" >&2
		failed="$failed $pair:releases"
	fi
	for test in "${tests[@]}"; do
		end=$(cell "$log" "$test")
		printf ' %-14s' "$end" >>"$work/table"
		[ "${end% *}" = ok ] || failed="$failed $pair:$test"
	done
	echo >>"$work/table"
done
sed 's/ *$//' "$work/table"
if [ -n "$failed" ]; then
	echo "matrix: not passed:$failed; the output of the tests is in $work" >&2
	exit 1
fi
rm -rf "$work"
