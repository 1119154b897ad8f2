#!/bin/bash
# fuzz.sh runs every fuzz target of the module, and of the other modules, for FUZZTIME
# each (default 5s), as many at a time as there are cores, with one worker each.
# A target that tries fewer than 200 inputs in 5 s has a fault that a busy machine does not
# explain: it does nothing, or one input takes too long.
# A package with a fuzz function is built once, with the coverage that fuzzing needs, and
# its targets are asked of that test binary, so that none can be forgotten.
set -euo pipefail
export GOWORK=off
cd "$(dirname "$0")/.."

export FUZZTIME=${FUZZTIME:-5s}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
FUZZCACHE=$(go env GOCACHE)/fuzz
# A time of whole seconds, of 5 or more, has a floor; a number of inputs (1x) has none.
FLOOR=0
if [[ $FUZZTIME =~ ^([0-9]+)s$ ]] && [ "${BASH_REMATCH[1]}" -ge 5 ]; then
	FLOOR=200
fi
export FUZZCACHE FLOOR

# fuzz_build BINARY DIR PACKAGE builds a test binary, and shows the output only when that fails.
fuzz_build() {
	if (cd "$2" && go test -c -fuzz . -ldflags '-s -w' -o "$1" .) >"$1.log" 2>&1; then
		return
	fi
	cat "$1.log"
	echo "fuzz: FAILED to build $3"
	return 1
}

# fuzz_once runs one target into a log, as `go test -fuzz` does. Minimizing is kept short: of
# inputs of some kilobytes the engine does little else otherwise.
fuzz_once() {
	(cd "$2" && "$1" -test.run '^$' -test.fuzz "^$4\$" -test.fuzztime "$FUZZTIME" -test.fuzzminimizetime 10x \
		-test.fuzzcachedir "$FUZZCACHE/$3" -test.parallel 1 -test.paniconexit0) >"$5" 2>&1
}

# fuzz_target BINARY DIR PACKAGE TARGET runs one target, and shows its output only when it
# fails. The fuzzing engine can report its own end of time as a failure of the target (a
# deadline, and no failing input): that is tried again. A found input is never retried.
fuzz_target() {
	local log=$1.$4.log status=0
	fuzz_once "$@" "$log" || status=$?
	for _ in 1 2 3 4 5; do
		if [ "$status" = 0 ] || ! grep -q 'context deadline exceeded' "$log" || grep -q 'Failing input written' "$log"; then
			break
		fi
		echo "fuzz: $3 $4: the engine ran over its time and found nothing; once more"
		status=0
		fuzz_once "$@" "$log" || status=$?
	done
	if [ "$status" = 0 ] && grep -q '^PASS$' "$log"; then
		local tried
		tried=$(grep -o 'execs: [0-9]*' "$log" | tail -n 1 | grep -o '[0-9]*$')
		# Only a target without seeds executes nothing before it mutates.
		if [ "${tried:-0}" -ge "$FLOOR" ]; then
			echo "fuzz: ok $3 $4 (execs: ${tried:-none})"
			return
		fi
		echo "fuzz: $3 $4 tried ${tried:-no} inputs in $FUZZTIME, want $FLOOR"
	fi
	cat "$log"
	echo "fuzz: FAILED $3 $4"
	return 1
}
export -f fuzz_build fuzz_once fuzz_target

# together FUNCTION runs a function for each line of its input, one for each core at a time.
together() { xargs -r -P "$(nproc)" -L 1 bash -c "$1"' "$@"' fuzz; }

failed=
for module in . attest/tpm/goattestation externalsigner kube test; do
	[ -f "$module/go.mod" ] || continue
	(cd "$module" && go list -f '{{.Dir}} {{.ImportPath}}' ./...) >"$work/packages"
	while read -r dir package; do
		if grep -qs '^func Fuzz' "$dir"/*_test.go; then
			echo "$work/${package//\//.}.test $dir $package"
		fi
	done <"$work/packages" >"$work/binaries"
	cat "$work/binaries" >>"$work/all"
	# The first one alone: what the packages share is then compiled once.
	head -n 1 "$work/binaries" | together fuzz_build || failed=yes
	tail -n +2 "$work/binaries" | together fuzz_build || failed=yes
done
while read -r binary dir package; do
	[ -x "$binary" ] || continue
	(cd "$dir" && "$binary" -test.list '^Fuzz') | { grep '^Fuzz' || true; } | sed "s|^|$binary $dir $package |"
done <"$work/all" >"$work/targets"

if [ ! -s "$work/targets" ]; then
	echo "fuzz: found no fuzz target at all" >&2
	exit 1
fi
together fuzz_target <"$work/targets" || failed=yes
if [ -n "$failed" ]; then
	echo "fuzz: failed, of $(wc -l <"$work/targets") targets" >&2
	exit 1
fi
echo "fuzz: $(wc -l <"$work/targets") targets, $FUZZTIME each, none failed"
