package tpm

// ForgetIntermediates empties the kind's memory of verified intermediates, for
// the benchmark of a verifier that sees a chain for the first time.
func (k *Kind) ForgetIntermediates() {
	if k.aks != nil {
		k.aks.ForgetIntermediates()
	}
	if k.eks != nil {
		k.eks.ForgetIntermediates()
	}
}
