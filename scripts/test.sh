#!/bin/bash
# test.sh ARGUMENTS... runs `go test ARGUMENTS...` in this folder's module with gotestsum,
# which prints a line for each package, what failed, each skipped test with its reason,
# and the counts. A package that ran out of its time is named at the end.
#
# NO_SKIPS=1 fails the run for a skipped test, as continuous integration does, where every
# tool is installed. Tests that read recorded data may skip where NODEATTEST_CORPUS is not
# set, and those that build a program of an earlier commit where there is no history. COUNTS
# names a file to which the closing line is added.
set -uo pipefail
export GOWORK=off

root=$(cd "$(dirname "$0")/.." && pwd)
events=$(mktemp)
trap 'kill "$ticker" 2>/dev/null; rm -f "$events"' EXIT

# A line of progress while the simulator compiles, or a long test runs.
while sleep 12 >/dev/null 2>&1; do
	echo "test.sh: $SECONDS s: $(grep -c '"Action":"\(pass\|fail\|skip\)","Package":"[^"]*"\(,"Elapsed"\|}\)' "$events") packages done, others compile or run"
done &
ticker=$!

go tool -modfile="$root/tools/go.mod" gotestsum --format pkgname --jsonfile "$events" -- "$@"
status=$?

# Of a test that skipped, its reason is what it printed before.
skipped=$(awk '
	function member(name,   i, rest) {
		i = index($0, "\"" name "\":\"")
		if (!i) return ""
		rest = substr($0, i + length(name) + 4)
		return substr(rest, 1, match(rest, /[^\\]"/))
	}
	/"Test":/ { key = member("Package") " " member("Test") }
	/"Action":"output"/ && /"Test":/ { said[key] = said[key] member("Output") }
	/"Action":"skip"/ && /"Test":/ && (corpus || said[key] !~ /NODEATTEST_CORPUS/) && said[key] !~ /no history, as in a shallow clone/ { print "test.sh: skipped: " key }
' corpus="${NODEATTEST_CORPUS:-}" "$events")
if [ "${NO_SKIPS:-}" = 1 ] && [ -n "$skipped" ]; then
	echo "$skipped"
	echo 'test.sh: no test may skip here'
	status=1
fi

grep -o '"Package":"[^"]*",.*panic: test timed out after [0-9smh]*' "$events" |
	sed 's/^"Package":"\([^"]*\)".*panic: \(.*\)/test.sh: \1: \2/' | sort -u

# A package that failed without a test of its own that did counts as one failure.
closing=$(awk '
	{ match($0, /"Package":"[^"]*"/); package = substr($0, RSTART, RLENGTH) }
	/"Test":/ && /"Action":"pass"/ { pass++ }
	/"Test":/ && /"Action":"fail"/ { fail++; failed[package] = 1 }
	/"Test":/ && /"Action":"skip"/ { skip++ }
	!/"Test":/ && /"Action":"fail"/ && !failed[package] { fail++ }
	END { printf "%d passed, %d failed, %d skipped\n", pass, fail, skip }
' "$events")
echo "$closing"
if [ -n "${COUNTS:-}" ]; then
	echo "$closing" >>"$COUNTS"
fi
exit "$status"
