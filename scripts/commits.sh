#!/bin/bash
# commits.sh [BASE] checks the message of every commit after BASE: a subject of at most 72
# characters without a period at its end, a blank line, and a body, which only a merge may
# do without. Newer subjects have none of the words that tools/words refuses. Where that
# history is not there, as in a shallow clone or an archive, it checks nothing and says so.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8 # characters, not bytes
base=${1:-d950b9290d1e2dff37b832eb33e65779a6ad4155}

if ! git merge-base --is-ancestor "$base" HEAD 2>/dev/null; then
	echo "NOT CHECKED, the history since ${base:0:12} is not here"
	exit
fi
new_words=$(git rev-list "${1:-792e3beaf615}..HEAD")
count=0
failed=0
while IFS= read -r -d '' entry; do
	read -r commit _ merged <<<"${entry%%$'\n'*}"
	message=${entry#*$'\n'}
	subject=${message%%$'\n'*}
	rest=${message#"$subject"}
	rest=${rest%$'\n'}
	faults=
	[ "${#subject}" -le 72 ] || faults+="; the subject has ${#subject} characters, more than 72"
	[[ $subject != *. ]] || faults+='; the subject ends in a period'
	if [[ $new_words == *"$commit"* && ${subject,,} =~ (^|[^a-z])(nobody|whoever|somebody|anybody|besides?|is none)([^a-z]|$) ]]; then
		faults+="; the subject has \"${BASH_REMATCH[2]}\""
	fi
	if [[ $rest == $'\n'[!$'\n']* ]]; then
		faults+='; the second line is not blank'
	elif [[ $rest != *[![:space:]]* && -z $merged ]]; then
		faults+='; there is no body that says why'
	fi
	count=$((count + 1))
	if [ -n "$faults" ]; then
		echo "$commit ${subject:0:72}${faults}"
		failed=1
	fi
done < <(git log -z --reverse --format='%h %p%n%B' "$base..HEAD")
[ "$failed" = 0 ] || exit 1
echo "ok, $count since ${base:0:12}"
