package tpmcert

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/names"
)

// Grammars are the kinds of identity that an AK certificate can state, with their grammars:
//
//	ak:sha256:<64 hex digits>                 of the AK itself
//	othername:[<issuer>/]<type-id>:<base64url of DER>
//	gce:<project ID>/<instance ID>            Google's instance-identity extension
//	hwserial:<issuer>/<serial number>         HardwareModuleName in the SAN
//	chassis:<issuer>/<part number>/<serial>   common name and serial number of the subject
//
// The texts of the last two are percent-encoded as [url.PathEscape] does it.
func Grammars() []attest.Grammar {
	return []attest.Grammar{{Kind: AKIdentityKind}, {Kind: "othername"},
		grammar("gce", "<project ID, and not its number>/<instance ID>", isGCE),
		grammar("hwserial", "<issuer>/<serial number, percent-encoded>", func(rest string) bool { return areParts(rest, 1) }),
		grammar("chassis", "<issuer>/<part number>/<serial number>, percent-encoded", func(rest string) bool { return areParts(rest, 2) })}
}

// grammar is that of identities whose text has one spelling.
func grammar(kind, form string, valid func(rest string) bool) attest.Grammar {
	return attest.Grammar{Kind: kind, Parse: func(id attest.Identity) (attest.Identity, error) {
		rest, ok := strings.CutPrefix(string(id), kind+":")
		if !ok || !valid(rest) {
			return "", &attest.Error{Check: attest.CheckIdentity, Got: string(id), Want: kind + ":" + form}
		}
		return id, nil
	}}
}

// isGCE: a project ID begins with a letter, also that of a domain or another universe of Google, as
// in example.com:project.
func isGCE(s string) bool {
	project, instance, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(instance, 10, 64)
	return ok && strings.Trim(project, "abcdefghijklmnopqrstuvwxyz0123456789-.:") == "" && strings.Trim(project[:min(len(project), 1)], "0123456789-.:") != "" &&
		err == nil && n != 0 && strconv.FormatUint(n, 10) == instance
}

// areParts reports whether s is an issuer's name and n texts, each in its one percent-encoding. The
// last is a serial number that a certificate may have.
func areParts(s string, n int) bool {
	parts := strings.Split(s, "/")
	last := ""
	bad := func(part string) bool {
		text, err := url.PathUnescape(part)
		last = text
		return err != nil || text == "" || url.PathEscape(text) != part
	}
	return len(parts) == n+1 && names.ValidIssuer(parts[0]) && !slices.ContainsFunc(parts[1:], bad) && !isPlaceholder(last)
}
