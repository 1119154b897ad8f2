package forge

import "cmp"

// Attack is one change to something good, which F makes: a statement, a quote, an answer
// that was taken apart, a request, a text, a certificate.
type Attack[F any] struct {
	// Name is the vector's, What its description, Expect the check that refuses, "" where
	// there is no vector.
	Name, What, Expect string
	Change             F
	InCSR              bool     // expect, or inAnswer, is a check of package csr
	Also               []string // the other checks that refuse it
	Retry              bool     // the refusal is not final

	RSA      bool   // takes the RSA AK in place of the one on P-256
	Alone    bool   // leaves out the answer: it has no place for this change
	InAnswer string // what refuses the answer, where that is another check
	Resident bool   // asks for keys in the TPM
	Wanted   bool   // the policy asks for a quote
	Under    string // the policy that a request needs; "" is the common one

	// live is the name in the conformance runner, where that is another; "-" leaves it
	// out there.
	live string
}

// Live is the attack's name where it is live, "" where it needs RSA keys or another policy.
func (a *Attack[F]) Live() string { return a.liveAs("") }

// liveAs is Live with a prefix where there is no other name.
func (a *Attack[F]) liveAs(prefix string) string {
	if a.RSA || a.Under != "" || a.live == "-" {
		return ""
	}
	return cmp.Or(a.live, prefix+a.Name)
}
