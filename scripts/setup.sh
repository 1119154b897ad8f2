#!/bin/sh
# setup.sh MODE checks for what the repository's commands need.
#
#   MODE build: Go, a C compiler, OpenSSL's headers. Without them nothing can be
#               built, so a missing one is an error.
#   MODE test:  the same, and swtpm, tpm2-tools, openssl and its tpm2 provider, and
#               python3 with pyasn1 and botocore, for the tests that run against them,
#               systemd and ip, for those on a machine of its own, containerd and runc, for
#               static pods there, softhsm2, for keys in a PKCS #11 token, prometheus, for the alerts
#               and the dashboard, and shellcheck, for lint.
#               A missing one is reported; those tests skip.
#   MODE all:   the same programs as test, but a missing one is an error, and it says if none is.
#
# Run as root on a machine with apt-get it installs the Debian packages that are
# missing. Otherwise it prints the command that would.
set -eu

mode=${1:-build}
case $mode in
build | test | all) ;;
*)
	echo "setup.sh: unknown mode '$mode': want build, test or all" >&2
	exit 2
	;;
esac
cd "$(dirname "$0")/.."

want_go=$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)

say() { echo "setup: $*" >&2; }

# check_go fails unless the go command, in this module and with the caller's
# GOTOOLCHAIN, runs the language version of go.mod or a newer one.
check_go() {
	if ! command -v go >/dev/null 2>&1; then
		say "the go command is not in PATH; Go $want_go or newer is needed: https://go.dev/dl/"
		return 1
	fi
	have=$(go version 2>/dev/null | sed -n 's/^go version go\([0-9]*\.[0-9]*\).*/\1/p')
	if [ -z "$have" ]; then
		# A development build, or a toolchain that could not be switched to.
		say "'go version' failed or named no release; Go $want_go or newer is needed: https://go.dev/dl/"
		return 1
	fi
	if [ "${have%%.*}" -lt "${want_go%%.*}" ] ||
		{ [ "${have%%.*}" -eq "${want_go%%.*}" ] && [ "${have#*.}" -lt "${want_go#*.}" ]; }; then
		say "Go $have is too old; Go $want_go or newer is needed: https://go.dev/dl/"
		return 1
	fi
}

compiler() {
	cc=$(go env CC 2>/dev/null || echo gcc)
	echo "${CC:-$cc}"
}

has_compiler() {
	# Unquoted on purpose: CC may carry flags.
	# shellcheck disable=SC2046
	echo 'int main(void) { return 0; }' | $(compiler) -x c -o /dev/null - >/dev/null 2>&1
}

# has_openssl_headers compiles and links, because the headers and the library to
# link with come in one package and either may be missing alone.
has_openssl_headers() {
	# shellcheck disable=SC2046
	printf '#include <openssl/evp.h>\nint main(void) { return EVP_sha256() == 0; }\n' |
		$(compiler) -x c -o /dev/null - -lcrypto >/dev/null 2>&1
}

has() { command -v "$1" >/dev/null 2>&1; }

# has_tpm2_provider: an openssl without a folder for providers, or none at all, has no
# use for one.
has_tpm2_provider() {
	has openssl || return 0
	modules=$(openssl version -m 2>/dev/null </dev/null | sed -n 's/^MODULESDIR: "\(.*\)"$/\1/p')
	[ -z "$modules" ] || [ -e "$modules/tpm2.so" ]
}

# has_python MODULE: where another python3 comes first in PATH, Debian's is asked, too.
has_python() {
	python3 -c "import $1" 2>/dev/null || /usr/bin/python3 -c "import $1" 2>/dev/null
}

# missing_build and missing_tools print the Debian packages that would bring what
# is missing, on one line, or nothing.
missing_build() {
	p=
	has_compiler || p="$p gcc libc6-dev"
	has_openssl_headers || p="$p libssl-dev"
	echo "${p# }"
}

missing_tools() {
	p=
	has swtpm || p="$p swtpm"
	has swtpm_setup || p="$p swtpm-tools"
	has tpm2_certify || p="$p tpm2-tools"
	has openssl || p="$p openssl tpm2-openssl"
	has_tpm2_provider || p="$p tpm2-openssl"
	has python3 || p="$p python3"
	has_python pyasn1 || p="$p python3-pyasn1"
	has_python botocore || p="$p python3-botocore"
	has shellcheck || p="$p shellcheck"
	[ -x /lib/systemd/systemd ] || p="$p systemd"
	has ip || p="$p iproute2"
	has containerd || p="$p containerd"
	[ -x /usr/sbin/runc ] || has runc || p="$p runc"
	has softhsm2-util || p="$p softhsm2"
	{ has prometheus && has promtool; } || p="$p prometheus"
	echo "${p# }"
}

# install_packages installs its arguments, if this machine and user can. It is
# quiet unless it fails.
install_packages() {
	[ "$(id -u)" = 0 ] || return 1
	has apt-get || return 1
	say "installing $*"
	log=$(mktemp)
	if DEBIAN_FRONTEND=noninteractive apt-get update -q >"$log" 2>&1 &&
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >>"$log" 2>&1; then
		rm -f "$log"
		return 0
	fi
	tail -n 20 "$log" >&2
	rm -f "$log"
	say "apt-get could not install $*"
	return 1
}

# hint prints the one command that installs everything that is missing.
hint() {
	sudo=
	[ "$(id -u)" = 0 ] || sudo='sudo '
	say "on Debian: ${sudo}apt-get update && ${sudo}apt-get install -y --no-install-recommends $*"
}

check_go || exit 1

build=$(missing_build)
tools=
[ "$mode" = build ] || tools=$(missing_tools)

if [ -n "$build$tools" ]; then
	# Word splitting makes the list of packages.
	# shellcheck disable=SC2086
	install_packages $build $tools || true
	build=$(missing_build)
	[ "$mode" = build ] || tools=$(missing_tools)
fi

missing="$build $tools"
missing=${missing# }
missing=${missing% }
[ -z "$missing" ] || hint "$missing"
if [ -n "$build" ]; then
	say "a C compiler and OpenSSL's headers are needed: the TPM simulator is written in C"
	exit 1
fi
if [ -n "$tools" ]; then
	if [ "$mode" = all ]; then
		say "some programs are missing: $tools"
		exit 1
	fi
	say "not installed: $tools; the tests that need them will skip and say so"
fi
[ "$mode$missing" != all ] || say "nothing is missing"
