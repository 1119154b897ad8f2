package attest

// ForgetIntermediates empties the verifier's memory of verified intermediates, for
// the benchmark of a verifier that sees a chain for the first time.
func (v *Verifier) ForgetIntermediates() {
	for _, i := range v.issuers {
		i.mu.Lock()
		clear(i.parents)
		i.mu.Unlock()
	}
}
