package forge

import (
	"crypto/hmac"
	"crypto/sha256"
)

// Secret is S, a challenge's secret: HMAC-SHA256 under the challenge key K over
// "nodeattest/tpm/v1 secret", a zero byte, and the DER of the binding. It is written
// down here once more, beside package attest, so that both must be right.
func Secret(k, binding []byte) []byte {
	return labelled(k, "nodeattest/tpm/v1 secret", binding)
}

// QualifyingData is what a certify statement must contain: HMAC-SHA256 under S over
// "nodeattest/tpm/v1 certify", a zero byte, and the DER of the binding.
func QualifyingData(s, binding []byte) []byte {
	return labelled(s, "nodeattest/tpm/v1 certify", binding)
}

// QuotedData is what a quote must contain: as QualifyingData, under the label
// "nodeattest/tpm/v1 quote".
func QuotedData(s, binding []byte) []byte {
	return labelled(s, "nodeattest/tpm/v1 quote", binding)
}

func labelled(key []byte, label string, binding []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(append([]byte(label), 0))
	m.Write(binding)
	return m.Sum(nil)
}
