package attest

// ForgetIntermediates empties the verifier's memory of verified intermediates, for
// the benchmark of a verifier that sees a chain for the first time.
func (v *Verifier) ForgetIntermediates() {
	for _, i := range v.issuers {
		i.forget()
	}
	if v.eks == nil {
		return
	}
	for _, i := range v.eks.issuers {
		i.forget()
	}
}

func (i *anchors) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.parents)
}
