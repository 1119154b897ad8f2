package csr

import (
	"bytes"
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

// The longest provider name (a DNS label) and the longest version number in digits.
const (
	maxProviderName    = 63
	maxProviderVersion = 9
)

// ProviderVersion splits the Provider of a bundle, such as "tpm/v1", in the provider's
// name and the version of its data format. The error is a [*Error] with
// [CheckProvider].
func ProviderVersion(provider string) (name string, version int, err error) {
	if err := checkProvider([]byte(provider)); err != nil {
		return "", 0, err
	}
	i := bytes.IndexByte([]byte(provider), '/')
	version, _ = strconv.Atoi(provider[i+len("/v"):]) // at most nine digits
	return provider[:i], version, nil
}

// checkProvider refuses all but name/vN, see Bundle.Provider.
func checkProvider(provider []byte) error {
	name, version, ok := bytes.Cut(provider, []byte("/v"))
	if ok && isProviderName(name) && isVersion(version) {
		return nil
	}
	return &Error{Check: CheckProvider, Got: refusal.Quote(string(provider)), Want: `a name and version such as "tpm/v1"`}
}

func isProviderName(name []byte) bool {
	if len(name) == 0 || len(name) > maxProviderName || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

func isVersion(digits []byte) bool {
	if len(digits) == 0 || len(digits) > maxProviderVersion || digits[0] == '0' {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
