package tpm

// ForgetSignatures empties the kind's memory of verified signatures, for the benchmarks of a
// verifier that sees a machine, or intermediates too, for the first time.
func (k *Kind) ForgetSignatures(intermediates bool) {
	if k.aks != nil {
		k.aks.ForgetSignatures(intermediates)
	}
	if k.eks != nil {
		k.eks.ForgetSignatures(intermediates)
	}
}
