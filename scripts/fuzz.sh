#!/bin/bash
# fuzz.sh runs every fuzz target of the modules for users for FUZZTIME each (default 5s).
# The targets are asked of the test binaries, so that none can be forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzztime=${FUZZTIME:-5s}
count=0
failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz_once runs one target and shows its output only when it fails. Minimizing is
# kept short: of inputs of some kilobytes the engine does little else otherwise.
fuzz_once() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$fuzztime" -fuzzminimizetime 10x "$1" >"$log" 2>&1
}

# fuzz_target runs one target. The fuzzing engine can report its own end of time
# as a failure of the target (a deadline, and no failing input): that is tried
# once more. A found input is never retried.
fuzz_target() {
	fuzz_once "$1" "$2" && return 0
	if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
		echo "fuzz: $1 $2: the engine ran over its time and found nothing; once more"
		fuzz_once "$1" "$2" && return 0
	fi
	cat "$log"
	return 1
}

# fuzz_module runs every target of the module in this folder.
fuzz_module() {
	local pkg targets target
	for pkg in $(go list ./...); do
		targets=$(go test -list '^Fuzz' "$pkg" | { grep '^Fuzz' || true; })
		for target in $targets; do
			count=$((count + 1))
			if fuzz_target "$pkg" "$target"; then
				# Only a target without seeds executes nothing before it mutates.
				echo "fuzz: ok $pkg $target ($(grep -o 'execs: [0-9]*' "$log" | tail -n 1))"
			else
				echo "fuzz: FAILED $pkg $target"
				failed+=("$pkg $target")
			fi
		done
	done
}

root=$PWD
for module in . cloud; do
	cd "$root/$module"
	fuzz_module
done

if [ "$count" -eq 0 ]; then
	echo "fuzz: found no fuzz target at all" >&2
	exit 1
fi
echo "fuzz: $count targets, $fuzztime each, ${#failed[@]} failed"
if [ "${#failed[@]}" -ne 0 ]; then
	printf 'fuzz: failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
