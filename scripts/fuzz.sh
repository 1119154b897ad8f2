#!/bin/bash
# fuzz.sh runs every fuzz target of the module, and of the adapters beside it, for FUZZTIME
# each (default 5s), as many at a time as there are cores, with one worker each.
# The targets are asked of the test binaries, so that none can be forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."

export FUZZTIME=${FUZZTIME:-5s}

# fuzz_once runs one target into a log. Minimizing is kept short: of inputs of some
# kilobytes the engine does little else otherwise.
fuzz_once() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 10x -parallel 1 "$1" >"$3" 2>&1
}

# fuzz_target MODULE PACKAGE TARGET runs one target, and shows its output only when it
# fails. The fuzzing engine can report its own end of time as a failure of the target (a
# deadline, and no failing input): that is tried once more. A found input is never retried.
fuzz_target() {
	local log
	log=$(mktemp)
	cd "$1"
	if ! fuzz_once "$2" "$3" "$log" && grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
		echo "fuzz: $2 $3: the engine ran over its time and found nothing; once more"
		fuzz_once "$2" "$3" "$log" || true
	fi
	if grep -q '^ok' "$log"; then
		# Only a target without seeds executes nothing before it mutates.
		echo "fuzz: ok $2 $3 ($(grep -o 'execs: [0-9]*' "$log" | tail -n 1))"
		rm "$log"
		return
	fi
	cat "$log"
	echo "fuzz: FAILED $2 $3"
	rm "$log"
	return 1
}
export -f fuzz_once fuzz_target

targets=$(mktemp)
trap 'rm -f "$targets"' EXIT
for module in . cloud kube; do
	[ -f "$module/go.mod" ] || continue
	(
		cd "$module"
		for pkg in $(go list ./...); do
			go test -list '^Fuzz' "$pkg" | { grep '^Fuzz' || true; } | sed "s|^|$PWD $pkg |"
		done
	) >>"$targets"
done

if [ ! -s "$targets" ]; then
	echo "fuzz: found no fuzz target at all" >&2
	exit 1
fi
if ! xargs -P "$(nproc)" -L 1 bash -c 'fuzz_target "$@"' fuzz <"$targets"; then
	echo "fuzz: failed, of $(wc -l <"$targets") targets" >&2
	exit 1
fi
echo "fuzz: $(wc -l <"$targets") targets, $FUZZTIME each, none failed"
